"""Corruptions, views, streams, source statistics and the benchmark loop on another device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ctta import Classifier, Tent
from ctta.augment import View
from ctta.bench import evaluate
from ctta.corruptions import CORRUPTIONS, HELD_OUT, corrupt
from ctta.doctor import examine
from ctta.methods import fisher_from_source
from ctta.methods.deyo import occlude, shuffle_patches
from ctta.prototypes import prototypes_from_source
from ctta.streams import Images, Stream, continual, corrupted, mixed
from ctta.streams.protocols import clean, correlated, gradual, recurring
from ctta.testing.compare import difference, same_bits
from ctta.testing.models import bn_cnn
from ctta.testing.task import labelled_images


@pytest.mark.parametrize("name", [*CORRUPTIONS, *HELD_OUT])
def test_a_corruption_is_the_same_and_stays_on_the_device(device: torch.device, name: str) -> None:
    x, _ = labelled_images(2, seed=3)
    for images in (x, (255 * x).to(torch.uint8)):
        found = corrupt(images.to(device), name, severity=3)
        assert found.device == device
        assert same_bits(found.cpu(), corrupt(images, name, severity=3))


VIEWS = {
    "cotta": View(),
    "roid": View(border="reflect", blur=None, noise=0.0),
    "patches": shuffle_patches,
    "patches that do not fit": lambda x, generator: shuffle_patches(x, generator, grid=3),
    "occlusion": occlude,
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_draws_on_the_cpu_and_stays_on_the_device(device: torch.device, name: str, channels: int) -> None:
    x = labelled_images(3, seed=3)[0][:, :channels]
    here, there = torch.Generator().manual_seed(4), torch.Generator().manual_seed(4)
    for _ in range(3):
        found = VIEWS[name](x.to(device), there)
        assert found.device == device
        assert same_bits(found.cpu(), VIEWS[name](x, here))


def _streams(images: Images) -> dict[str, Callable[[], Stream]]:
    domains = corrupted(images, ["brightness", "gaussian_noise"])
    rising = corrupted(images, ["contrast"], range(1, 6))
    return {
        "continual": lambda: continual(domains, batch_size=4),
        "kept": lambda: continual(corrupted(images, ["contrast"], keep=True), batch_size=4),
        "mixed": lambda: mixed(domains, batch_size=4),
        "correlated": lambda: correlated(domains, batch_size=4),
        "gradual": lambda: gradual(rising, batch_size=4, images=4),
        "recurring": lambda: recurring(clean(images, batch_size=4), 2),
    }


def _seen(stream: Stream) -> list[tuple[Any, ...]]:
    return [(batch.x.cpu(), batch.y.cpu(), batch.domain, batch.index) for batch in stream]


@pytest.mark.parametrize("name", ["continual", "kept", "mixed", "correlated", "gradual", "recurring"])
def test_a_stream_of_images_on_the_device_is_the_same_stream(device: torch.device, name: str) -> None:
    x, y = labelled_images(12, seed=5)
    found = _streams(Images(x.to(device), y.to(device)))[name]()
    assert all(batch.x.device == batch.y.device == device for batch in found)
    assert difference(_seen(found), _seen(_streams(Images(x, y))[name]())) is None


@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.parametrize("images_on_the_device", [True, False])
def test_evaluate_gives_the_same_report(device: torch.device, images_on_the_device: bool, learn: bool) -> None:
    x, y = labelled_images(12, seed=5)
    moved = (x.to(device), y.to(device)) if images_on_the_device else (x, y)
    reports = [
        evaluate(Tent(Classifier(bn_cnn()).to(place)), _streams(Images(*data))["continual"](), learn=learn)
        for place, data in (("cpu", (x, y)), (device, moved))
    ]
    here, there = ([{k: v for k, v in s.items() if k != "seconds"} for s in report.steps] for report in reports)
    assert difference(here, there) is None
    assert reports[0].errors == reports[1].errors


def _loader(*, where: torch.device | str = "cpu") -> list[tuple[Tensor, Tensor]]:
    x, y = labelled_images(24, seed=6)
    y = torch.arange(24) % 10
    return [(x[:16].to(where), y[:16].to(where)), (x[16:].to(where), y[16:].to(where))]


@pytest.mark.parametrize("loader_on_the_device", [True, False])
def test_source_statistics_are_the_same_and_on_the_models_device(
    device: torch.device, loader_on_the_device: bool
) -> None:
    model = Classifier(bn_cnn(), mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    moved = Classifier(bn_cnn(), mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2)).to(device)
    loader = _loader(where=device if loader_on_the_device else "cpu")
    for measure in (prototypes_from_source, fisher_from_source):
        found = measure(moved, loader)
        assert found.device == device
        assert same_bits(found.cpu(), measure(model, _loader()))


def test_doctor_examines_a_model_on_the_device(device: torch.device) -> None:
    assert examine(bn_cnn().to(device), image_size=16) == examine(bn_cnn(), image_size=16)
