"""Frozen modules, weights that go back, guards, answers, statistics of the source and training on another device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta import Classifier
from ctta.methods._parts.feature_statistics import feature_statistics_from_source
from ctta.methods._parts.swag import swag_from_source
from ctta.nets.train import Training, error, train
from ctta.testing.compare import difference
from ctta.testing.models import bn_cnn
from ctta.testing.task import labelled_images
from device.cases import CASES, batches, on_cpu

Place = torch.device | str


def adapter_on(place: Place, name: str = "dmse") -> ctta.Adapter:
    return CASES[name].build(CASES[name].classifier().to(place))


@pytest.mark.parametrize("statistics", ["adapter", "source", "batch", "images"])
def test_adapted_weights_go_into_a_net_on_either_device(device: torch.device, statistics: str) -> None:
    nets = []
    for ours, theirs, images in (("cpu", "cpu", "cpu"), (device, "cpu", "cpu"), ("cpu", device, device)):
        adapter, net = adapter_on(ours), CASES["dmse"].source().to(theirs)
        adapter.step(batches()[0])
        given: Any = [x.to(images) for x in batches()[:2]] if statistics == "images" else statistics
        adapter.load_into(net, statistics=given)
        assert {value.device for value in net.state_dict().values()} == {torch.device(theirs)}
        nets.append(on_cpu(dict(net.state_dict())))
    assert difference(nets[0], nets[1]) is None and difference(nets[0], nets[2]) is None


@pytest.mark.parametrize("name", ["tent", "dmse", "rotta", "t3a"])
def test_a_frozen_adapter_predicts_on_the_device(device: torch.device, name: str) -> None:
    frozen = [adapter_on(place, name).freeze()(batches()[0].to(place)) for place in ("cpu", device)]
    assert frozen[1].device == device
    assert difference(frozen[0], frozen[1].cpu()) is None


def asked(adapter: Any) -> list[Any]:
    learnt, forgotten = adapter.ask(batches()[0]), None
    logits = [learnt.logits, learnt.learn().logits]
    forgotten = adapter.ask(batches()[1])
    forgotten.forget()
    return [*logits, forgotten.logits, adapter.step(batches()[2]).logits]


@pytest.mark.parametrize(
    "build",
    [
        lambda place: adapter_on(place, "tent"),
        lambda place: adapter_on(place, "rotta"),
        lambda place: ctta.Guarded(adapter_on(place)),
        lambda place: ctta.adapt(CASES["dmse"].classifier().to(place)),
    ],
    ids=["tent", "rotta", "guarded", "adapt"],
)
def test_answers_are_learnt_and_forgotten_on_the_device(device: torch.device, build: Callable[[Place], Any]) -> None:
    here, there = asked(build("cpu")), asked(build(device))
    assert {logits.device for logits in there} == {device}
    assert difference(here, on_cpu(there)) is None


def loader(place: Place) -> list[tuple[Tensor, Tensor]]:
    x, _ = labelled_images(20, seed=6)
    return [(x.to(place), (torch.arange(20) % 10).to(place))] * 2


@pytest.mark.parametrize("measure", [swag_from_source, feature_statistics_from_source])
def test_statistics_of_the_source_are_on_the_models_device(device: torch.device, measure: Callable[..., Any]) -> None:
    expected = list(measure(Classifier(bn_cnn()), loader("cpu")))
    for place in ("cpu", device):
        found = list(measure(Classifier(bn_cnn()).to(device), loader(place)))
        assert {value.device for value in found} == {device}
        assert difference(expected, on_cpu(found)) is None


def test_training_on_the_device_gives_the_weights_of_the_cpu(device: torch.device) -> None:
    x, y = labelled_images(8, seed=6)
    nets: list[nn.Module] = [train(bn_cnn, x, y, Training(passes=1, batch_size=4), device=d) for d in ("cpu", device)]
    assert difference(*(on_cpu(dict(net.state_dict())) for net in nets)) is None


@pytest.mark.parametrize("images_there", [False, True])
@pytest.mark.parametrize("labels_there", [False, True])
def test_the_error_is_measured_wherever_images_and_labels_are(
    device: torch.device, images_there: bool, labels_there: bool
) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 3, bias=False))
    nn.init.eye_(model[1].weight)
    x, y = torch.eye(3).view(3, 3, 1, 1)[[0, 1, 2, 0]], torch.tensor([0, 1, 2, 1])  # only the last label differs
    places = (device if images_there else "cpu", device if labels_there else "cpu")
    assert error(model.to(device), x.to(places[0]), y.to(places[1]), batch_size=3) == 25.0
