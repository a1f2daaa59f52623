"""PeTTA: the drift it senses, what the drift changes, and classes without statistics."""

from __future__ import annotations

import math

import pytest
import torch

import ctta
from ctta import errors
from reference import flip, net, source_batches, stream


def adapter(**options: object) -> ctta.PeTTA:
    statistics = ctta.feature_statistics_from_source(net(), source_batches())
    given = {"feature_mean": statistics.mean, "feature_var": statistics.var} | options
    return ctta.PeTTA(net(), memory_size=16, view=flip, **given)


def test_the_drift_is_the_mean_squared_shift_of_the_predicted_classes_in_units_of_variance() -> None:
    found = adapter()
    found.class_mean = found.feature_mean + torch.rand(10, 16, generator=torch.Generator().manual_seed(0)).double()
    terms = [
        (found.class_mean[c, j] - found.feature_mean[c, j]).item() ** 2 / (found.feature_var[c, j].item() + 1e-6)
        for c in (2, 5)
        for j in range(16)
    ]
    expected = 1 - math.exp(-sum(terms) / len(terms))
    assert found.drift(torch.tensor([5, 2, 5, 5])) == pytest.approx(expected, abs=1e-12)


def test_classes_that_the_source_never_predicts_do_not_count() -> None:
    x = source_batches()[0][0]
    predicted = net()(x).argmax(1)
    statistics = ctta.feature_statistics_from_source(net(), [x])
    counts = torch.bincount(predicted, minlength=10)
    assert torch.equal(statistics.mean.isnan().all(1), counts == 0) and (counts == 0).any()
    assert torch.equal(statistics.var.isnan().all(1), counts < 2)
    found = adapter(feature_mean=statistics.mean, feature_var=statistics.var)
    steps = [found.step(batch) for batch in stream()]
    assert found.skipped == 0 and all(0 <= step.log["drift"] <= 1 and math.isfinite(step.loss) for step in steps)
    assert found.drift((counts < 2).nonzero().flatten()) == 0.0


def test_class_means_follow_the_predicted_classes_only() -> None:
    found = adapter()
    features = torch.rand(3, 16, generator=torch.Generator().manual_seed(0)).double()
    before = found.class_mean
    found.follow(features, torch.tensor([4, 4, 7]))
    torch.testing.assert_close(found.class_mean[4], 0.95 * before[4] + 0.05 * (features[0] + features[1]) / 2)
    torch.testing.assert_close(found.class_mean[7], 0.95 * before[7] + 0.05 * features[2])
    rest = [c for c in range(10) if c not in (4, 7)]
    assert torch.equal(found.class_mean[rest], before[rest])


def test_the_distance_is_a_mean_over_tensors() -> None:
    squared, cosine = adapter(regularizer="l2"), adapter()
    with torch.no_grad():
        for parameter in squared.trained:
            parameter.add_(0.5)
    sizes = [p.numel() for p in squared.trained]
    assert squared.distance().item() == pytest.approx(0.25 * sum(sizes) / len(sizes))
    terms = [(p @ p / (p.norm() * p.norm()).clamp(min=1e-8)).item() for p in cosine.trained]
    assert cosine.distance().item() == pytest.approx(-sum(terms) / len(terms))


def test_without_statistics_no_source_data_is_needed_and_nothing_adapts() -> None:
    plain = ctta.PeTTA(net(), memory_size=16, view=flip)
    still = adapter(adaptive_alpha=False, adaptive_lambda=False)
    assert plain.source_free and not still.source_free
    for x in stream()[:3]:
        assert torch.equal(plain(x), still(x))
    assert "drift" not in plain.step(stream()[3]).log


def test_half_of_the_statistics_are_refused() -> None:
    with pytest.raises(errors.ParameterError, match="both of shape"):
        adapter(feature_var=None)
    with pytest.raises(errors.DataError, match="two source images of one predicted class"):
        ctta.feature_statistics_from_source(net(), [stream()[0][:1]])
