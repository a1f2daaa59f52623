"""PALM and LAW: one learning rate per tensor, in a new Adam at every step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta.methods._parts.layer_rates import LayerRates
from ctta.testing.models import bn_cnn
from reference import flip, net, stream


def same(x: Tensor, generator: torch.Generator) -> Tensor:
    return x


class Stepping(LayerRates):
    """Takes steps on a given loss at given rates."""

    def __init__(self, model: nn.Module, weight_decay: float) -> None:
        super().__init__(model, lr=1e-2, weight_decay=weight_decay, lambda_ce=0.0, view=same)
        self.begin(self.convolutions_and_norms())


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_step_is_that_of_a_new_adam_with_one_group_per_tensor(weight_decay: float) -> None:
    adapter, twin = Stepping(net(), weight_decay), Stepping(net(), weight_decay)
    rates = torch.rand(len(adapter.trained), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for x in stream()[:2]:
        adapter.descend_at(adapter.student(x).square().mean(), rates)
        groups = [{"params": [p], "lr": 1e-2 * r.item()} for p, r in zip(twin.trained, rates, strict=True)]
        adam = torch.optim.Adam(groups, weight_decay=weight_decay)
        adam.zero_grad()
        twin.student(x).square().mean().backward()
        adam.step()
    for mine, expected in zip(adapter.trained, twin.trained, strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("cls", [ctta.PALM, ctta.LAW])
def test_convolutions_and_norms_learn_and_the_head_does_not(cls: type[ctta.Adapter]) -> None:
    adapter = cls(bn_cnn())
    names = {name for name, p in adapter.student.model.named_parameters() if p.requires_grad}
    assert names == {name for name, _ in bn_cnn().named_parameters() if not name.startswith("head.")}
    head = nn.Conv2d(8, 10, 1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), head, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert len(cls(model).trained) == 4


def test_palm_does_not_move_a_tensor_that_was_never_uncertain() -> None:
    adapter = ctta.PALM(net(), eta=0.0, view=flip)
    before = [p.detach().clone() for p in adapter.trained]
    step = adapter.step(stream()[0])
    assert step.log["uncertain"] == 0
    assert all(torch.equal(p, old) for p, old in zip(adapter.trained, before, strict=True))


def test_palm_scales_the_first_rate_by_its_momentum_alone() -> None:
    adapter = ctta.PALM(net(), temperature=1.0, beta=0.2, eta=1e9, view=flip)
    adapter.step(stream()[0])
    # Where a gradient is nearly zero, the 1e-8 in the ratio counts.
    assert adapter.rates.median().item() == pytest.approx(0.2 / 0.8, rel=1e-3)


def test_law_adds_up_its_information_and_does_not_move_the_tensor_with_the_least() -> None:
    adapter = ctta.LAW(net(), view=flip)
    adapter.step(stream()[0])
    first = adapter.fisher.clone()
    least = int(first.argmin())
    adapter.step(stream()[1])
    assert (adapter.fisher > first).all()
    assert adapter.rates_of(first)[least] == 0 and adapter.rates_of(first).max() == pytest.approx(1, abs=1e-4)
