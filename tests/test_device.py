"""--device: which device is used, and how images get there."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import ctta
from ctta._system.device import available_devices, choose_device, to_device
from ctta.cli import app
from ctta.datasets.digits import digits
from ctta.errors import DeviceUnavailable
from ctta.streams.protocols import clean


def test_the_default_is_the_first_of_the_available_devices_and_the_cpu_is_the_last() -> None:
    assert str(choose_device()) == available_devices()[0]
    assert available_devices()[-1] == "cpu" and choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "meta", "cuda:99", "cpu:x", ""])
def test_a_device_that_cannot_be_used_is_a_named_error(name: str) -> None:
    with pytest.raises(DeviceUnavailable, match=r"cannot be used here: .* Available: .*cpu"):
        choose_device(name)


@pytest.mark.parametrize(
    "words",
    [
        ("run", "source", "digits", "--images", "2"),
        ("reproduce", "main", "digits", "--methods", "source", "--images", "2"),
        ("demo", "--methods", "source", "--images", "20", "--domains", "1"),
        ("doctor", "digits_resnet8"),
        ("train", "digits", "--out", "m.safetensors"),
    ],
)
def test_every_command_that_computes_refuses_a_device_that_is_not_there(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*words, "--device", "cuda:99"])
    assert result.exit_code == 1
    assert result.stderr.startswith("DeviceUnavailable: The device 'cuda:99' cannot be used here")


def test_the_record_names_the_device_and_the_address_does_not_depend_on_it(tmp_path: Path) -> None:
    words = ["run", "source", "digits", "--images", "2", "--corruptions", "fog", "--quiet", "--json"]
    (record,) = json.loads(CliRunner().invoke(app, [*words, "--device", "cpu", "--out", str(tmp_path)]).stdout)
    assert record["environment"]["device"] == "cpu" and "device" not in json.dumps(record["spec"])


def test_a_stream_puts_images_on_its_device_and_leaves_labels_on_the_cpu() -> None:
    stream = clean(digits().stream, batch_size=2, seed=0, most=6).on(torch.device("meta"))
    for batch in (*stream, *stream.starting_at(2)):
        assert batch.x.device.type == "meta" and batch.y.device.type == "cpu"


@pytest.mark.parametrize(("pinned", "device"), [(True, "cuda"), (False, "cuda"), (True, "cpu")])
def test_only_pinned_memory_moves_without_waiting(pinned: bool, device: str) -> None:
    moved: dict[str, Any] = {}

    def to(where: torch.device, *, non_blocking: bool) -> None:
        moved.update(where=where, non_blocking=non_blocking)

    images = SimpleNamespace(to=to, is_pinned=lambda: pinned, device=torch.device("cpu"))
    to_device(cast(Tensor, images), torch.device(device))
    assert moved == {"where": torch.device(device), "non_blocking": pinned and device == "cuda"}


def test_the_error_is_one_of_ctta() -> None:
    assert issubclass(ctta.errors.DeviceUnavailable, ctta.CttaError)
