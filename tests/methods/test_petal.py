"""PETAL: the posterior from training on source data, and which weights are restored."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import ctta
from ctta import errors
from ctta.methods.petal import linear_quantile
from ctta.norms import use_batch_statistics
from reference import flip, net, source_batches, stream


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 0.77, 1.0])
@pytest.mark.parametrize("count", [1, 2, 10, 999])
def test_the_quantile_is_that_of_sorted_values(share: float, count: int) -> None:
    values = torch.randn(count, generator=torch.Generator().manual_seed(count), dtype=torch.float64)
    expected = np.quantile(values.numpy(), share, method="linear")
    assert linear_quantile(values, share).item() == pytest.approx(expected, abs=1e-12)


def test_the_posterior_is_the_mean_and_variance_of_the_weights_along_the_training() -> None:
    model = copy.deepcopy(net())
    use_batch_statistics(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    passed = []
    for number, (x, y) in enumerate(source_batches()[:6], 1):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if number % 2 == 0:
            passed.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    weights = torch.stack(passed)
    found = ctta.swag_from_source(net(), source_batches()[:6], lr=0.05, momentum=0.5, every=2)
    torch.testing.assert_close(found.mean, weights.mean(0), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.var, weights.var(0, unbiased=False), rtol=1e-9, atol=1e-15)


def test_a_posterior_needs_batches_and_a_training_that_does_not_diverge() -> None:
    with pytest.raises(errors.DataError, match="too few"):
        ctta.swag_from_source(net(), source_batches()[:1], every=2)
    with pytest.raises(errors.DataError, match="diverged at lr 1e"):
        ctta.swag_from_source(net(), source_batches()[:3], lr=1e200)


def test_without_a_posterior_weights_are_held_near_the_source_all_alike() -> None:
    adapter = ctta.PETAL(net(), views=1, view=flip)
    with torch.no_grad():
        for parameter in adapter.trained:
            parameter.add_(0.5)
    expected = 0.5 * 0.25 * sum(p.numel() for p in adapter.trained) / (1 + 1e-6)
    assert adapter.source_free and adapter.energy().item() == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_the_weights_of_the_smallest_squared_gradients_return_to_the_source(share: float) -> None:
    adapter = ctta.PETAL(net(), views=1, view=flip, quantile=share)
    fisher = [torch.rand(p.shape, generator=torch.Generator().manual_seed(p.numel())).double() for p in adapter.trained]
    with torch.no_grad():
        for parameter in adapter.trained:
            parameter.add_(1.0)
    adapter.restore_least_important(fisher)
    threshold = np.quantile(torch.cat([f.flatten() for f in fisher]).numpy(), share)
    for parameter, source, f in zip(adapter.trained, adapter.source_of_trained(), fisher, strict=True):
        assert torch.equal(parameter == source, f < threshold)


def test_a_posterior_of_another_model_is_refused() -> None:
    with pytest.raises(errors.ParameterError, match="'prior_mean' parameter of PETAL must hold one finite value"):
        ctta.PETAL(net(), prior_mean=torch.zeros(3))
    count = sum(p.numel() for p in net().parameters())
    with pytest.raises(errors.ParameterError, match="'prior_var' parameter of PETAL"):
        ctta.PETAL(net(), prior_var=torch.full((count,), -1.0))


def test_a_strong_posterior_holds_the_student() -> None:
    free, held = (ctta.PETAL(net(), views=1, view=flip, prior_weight=w, quantile=0.0) for w in (0.0, 1e3))
    for x in stream()[:4]:
        free(x)
        held(x)

    def moved(adapter: ctta.PETAL) -> float:
        pairs = zip(adapter.trained, adapter.source_of_trained(), strict=True)
        return sum(((p - s) ** 2).sum().item() for p, s in pairs)

    assert moved(held) < moved(free)
