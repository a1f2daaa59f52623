"""CoTTA's stochastic restoration: independent for every weight, whatever its shape and layout."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta.methods._parts.restore import successes


def draws(trials: int, p: float, times: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [successes(trials, p, generator) for _ in range(times)]


@pytest.mark.parametrize(("trials", "p"), [(2000, 0.01), (300, 0.3), (40, 0.9), (1, 0.5)])
def test_the_number_of_restored_weights_has_the_binomial_mean_and_variance(trials: int, p: float) -> None:
    times = 4000
    counts = torch.tensor([float(len(at)) for at in draws(trials, p, times)], dtype=torch.float64)
    variance = trials * p * (1 - p)
    assert abs(counts.mean().item() - trials * p) < 4 * math.sqrt(variance / times)
    # The variance of a sample variance is about 2 s^4 / n for a bell curve, and smaller for one trial.
    assert abs(counts.var().item() - variance) < 5 * math.sqrt(2 / times) * variance


def test_every_position_is_restored_as_often_and_neighbours_are_independent() -> None:
    trials, p, times = 50, 0.2, 20_000
    hits = torch.zeros(times, trials, dtype=torch.float64)
    for row, at in zip(hits, draws(trials, p, times), strict=True):
        row[at] = 1
    assert (hits.mean(0) - p).abs().max() < 5 * math.sqrt(p * (1 - p) / times)
    both = (hits[:, 1:] * hits[:, :-1]).mean(0)
    assert (both - p * p).abs().max() < 5 * math.sqrt(p * p * (1 - p * p) / times)


@pytest.mark.parametrize(("p", "share"), [(0.0, 0.0), (1.0, 1.0), (1e-12, 0.0)])
def test_nothing_or_everything_is_restored_at_the_ends(p: float, share: float) -> None:
    (at,) = draws(1000, p, 1)
    assert at.tolist() == list(range(1000))[: int(1000 * share)]


class ScaledNet(nn.Module):
    """A convolution, whose weight the adapter stores in another layout, and a scalar parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.fc = nn.Linear(8, 4)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv(x).mean((2, 3)) + self.bias)


@pytest.mark.parametrize(("restore_p", "restored"), [(1.0, True), (0.0, False)])
def test_restored_weights_have_their_source_value_in_any_shape_and_layout(restore_p: float, restored: bool) -> None:
    torch.manual_seed(0)
    adapter = ctta.CoTTA(ScaledNet(), restore_p=restore_p)
    with torch.no_grad():
        for parameter in adapter.trained:
            parameter.add_(1)
    adapter.restore_randomly()
    for parameter, source in zip(adapter.trained, adapter.source_of_trained(), strict=True):
        assert torch.equal(parameter, source) is restored


def test_a_part_of_the_weights_is_restored() -> None:
    torch.manual_seed(0)
    adapter = ctta.CoTTA(ScaledNet(), restore_p=0.3)
    with torch.no_grad():
        for parameter in adapter.trained:
            parameter.add_(1)
    adapter.restore_randomly()
    kept = [p - s for p, s in zip(adapter.trained, adapter.source_of_trained(), strict=True)]
    for difference in kept:
        assert torch.all((difference == 0) | ((difference - 1).abs() < 1e-6))
    share = torch.cat([(d == 0).flatten() for d in kept]).double().mean().item()
    assert abs(share - 0.3) < 4 * math.sqrt(0.21 / sum(d.numel() for d in kept))
