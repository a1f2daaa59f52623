"""Hints for mistakes that new users make: they name the cause and the way out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import ctta
from cli import command
from ctta.bench.prequential import evaluate
from ctta.cli.served import load_source
from ctta.doctor import examine
from ctta.errors import HeadNotFound, ParameterError
from ctta.nets.by_name import load_model
from ctta.protocol import Protocol, StreamParts
from ctta.recommend import MIRROR, cautions, on_command_line
from ctta.testing.models import bn_cnn, gn_cnn, ln_vit

SOFT = nn.Sequential(bn_cnn(), nn.Softmax(1))


def test_the_first_step_on_a_model_that_returns_probabilities_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    for model, warnings in ((SOFT, 1), (bn_cnn(), 0)):
        caplog.clear()
        adapter = ctta.Tent(model)
        for _ in range(2):
            adapter.step(torch.rand(4, 3, 16, 16))
        assert sum("remove the softmax" in message for message in caplog.messages) == warnings
        assert not adapter.student._forward_hooks


def test_a_head_behind_a_softmax_is_not_asked_for_by_name() -> None:
    with pytest.raises(HeadNotFound, match="remove the softmax"):
        ctta.DMSE(SOFT).step(torch.rand(4, 3, 16, 16))


def test_doctor_takes_the_channels_of_the_model(caplog: pytest.LogCaptureFixture) -> None:
    grey = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    diagnosis = examine(grey, image_size=16, among={"bn": ctta.BN})
    assert diagnosis.methods[0].refusal is None and diagnosis.seconds
    five = ctta.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(5 * 256, 3)), mean=[0.5] * 5, std=[0.5] * 5)
    assert examine(five, image_size=16, among={"source": ctta.Source}).methods[0].refusal is None
    assert not caplog.records  # the recommendation is in the report


def test_cautions_are_what_adapt_would_set_or_say() -> None:
    assert on_command_line(MIRROR).endswith("If not (digits, letters, signs), add --set mirror=False.")
    assert cautions("trio", bn_cnn(), ()) == [on_command_line(MIRROR)]
    assert cautions("trio", bn_cnn(), ("mirror",)) == cautions("tent", bn_cnn(), ()) == []
    careful, mirror = cautions("trio", ln_vit(), ())
    assert "--set lr=0.0001 for" in careful and mirror == on_command_line(MIRROR)
    assert cautions("trio", ln_vit(), ("lr", "mirror")) == []


def test_serving_trio_warns_as_adapt_does(caplog: pytest.LogCaptureFixture) -> None:
    load_source("trio", "digits_resnet8", None, [], "cpu")
    load_source("trio", "digits_resnet8", None, ["mirror=False"], "cpu")
    load_source("trio", "digits_resnet8", None, [], "cpu", recipe="digits")
    assert caplog.messages == [on_command_line(MIRROR)]


def test_a_service_without_a_method_adapts_as_recommended() -> None:
    network = load_source(None, "digits_resnet8", None, ["mirror=False"], "cpu")
    assert repr(network.make(network.classifier)).startswith("Trio(mirror=False): ")
    transformer = load_source(None, "cifar10_vit_ctta", None, ["lr=0.01"], "cpu")
    assert repr(transformer.make(transformer.classifier)).startswith("Trio(lr=0.01): ")


@pytest.fixture
def own(tmp_path: Path) -> SimpleNamespace:
    """Images of one's own as an npz, with labels from 0 and from 1."""
    x, y = np.zeros((20, 32, 32, 3), np.uint8), np.arange(20) % 10
    np.savez(tmp_path / "zero.npz", x=x, y=y)
    np.savez(tmp_path / "one.npz", x=x, y=y + 1)
    return SimpleNamespace(folder=tmp_path, options=["--model", "digits_resnet8", "--batch-size", "10"])


def run(own: SimpleNamespace, method: str, *more: str) -> str:
    return " ".join(command.ctta("run", method, *more, *own.options, "--out", own.folder / "runs").output.split())


def test_labels_that_count_from_one_are_named(own: SimpleNamespace) -> None:
    told = run(own, "source", str(own.folder / "one.npz"))
    assert "LabelError" in told and "must be lowered by 1" in told


def test_a_folder_of_clean_images_is_told_from_a_missing_file(own: SimpleNamespace) -> None:
    told = run(own, "source", str(own.folder / "zero.npz"), "--protocol", "clean", "--clean", str(own.folder))
    assert "MissingData" in told and "is a folder, and an npz file" in told


def test_running_trio_on_images_of_ones_own_names_the_mirror(own: SimpleNamespace) -> None:
    for more, told in (((), True), (("--set", "mirror=False"), False)):
        assert ("add --set mirror=False" in run(own, "trio", str(own.folder / "zero.npz"), *more)) is told


def test_a_protocol_that_returns_no_stream_is_named() -> None:
    wrong = Protocol("wrong", lambda parts: list(parts.domains))  # type: ignore[arg-type,return-value]
    with pytest.raises(ParameterError, match=r"must return a ctta.streams.Stream; it returned list"):
        wrong.stream(StreamParts([], batch_size=4))


def test_a_report_prints_as_one_line() -> None:
    images = [(torch.rand(4, 3, 32, 32), torch.arange(4))] * 2
    report = evaluate(ctta.Source(load_model("digits_resnet8").classifier), images)
    assert repr(report) == f"Report(source: {report.mean:.2f} % mean error, 1 domain, 8 images)"
    guarded = ctta.Guarded(ctta.Source(load_model("digits_resnet8").classifier))
    assert evaluate(guarded, images).method == "guarded source"


def test_statistics_of_a_network_without_batch_norm_are_said_to_have_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ctta.Trio(gn_cnn())
    ctta.Tent(bn_cnn(), statistics="source")
    ctta.Tent(gn_cnn())
    assert not caplog.records
    ctta.Tent(gn_cnn(), statistics="prior:16")
    assert caplog.messages == ["statistics=prior:16 has no effect: ConvNet has no batch norm"]


def test_an_adapter_with_its_default_statistics_does_not_print_them() -> None:
    net = load_model("digits_resnet8").classifier
    assert repr(ctta.Trio(net)).startswith("Trio(): ")
    assert repr(ctta.Trio(net, statistics="auto:0.3")).startswith("Trio(statistics='auto:0.3'): ")
