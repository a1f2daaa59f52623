"""ASR resets the tensors it should, CMF filters, SHOT clusters and COME does not overflow."""

from __future__ import annotations

import math

import pytest
import torch

import ctta
from ctta.errors import ParameterError
from ctta.functional import generalised_cross_entropy, opinion_entropy
from ctta.methods.shot import cluster_labels
from reference import flip, net, stream


@pytest.mark.parametrize("base", ["eta", "roid"])
def test_asr_returns_the_later_tensors_to_the_source_and_keeps_the_first(base: str) -> None:
    adapter = ctta.ASR(net(), base=base, view=flip, lr=0.05, e_margin=1.0)
    adapter.step(stream()[0])
    moved = [p.detach().clone() for p in adapter.trained]
    with torch.no_grad():
        adapter.reset_later_layers(0.25)
    source = adapter.source_of_trained()
    kept = math.ceil(0.25 * len(moved))
    for i, parameter in enumerate(adapter.trained):
        assert torch.equal(parameter, moved[i] if i < kept else source[i])
    assert adapter.p_bar is None and not adapter._optimizer.state


@pytest.mark.parametrize("base", ["eta", "roid"])
def test_a_full_reset_after_a_selective_one_returns_asr_to_the_source(base: str) -> None:
    adapter = ctta.ASR(net(), base=base, view=flip, a_0=1.0, lr=0.05, e_margin=1.0)
    first = adapter.step(stream()[0])
    assert first.log["reset"] == 1
    adapter.reset()
    assert torch.equal(adapter.step(stream()[0]).logits, first.logits)


def test_cmf_with_a_fixed_hidden_model_is_roid() -> None:
    # 280 parameters and q = 1e-6: the filter keeps all of the hidden model, which stays at the source.
    cmf, roid = ctta.CMF(net(), q=1e-6, view=flip), ctta.ROID(net(), view=flip)
    for x in stream()[:3]:
        torch.testing.assert_close(cmf(x), roid(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("q", [100.0, 300.0, 1e25])
def test_cmf_keeps_its_least_share_of_the_hidden_model_if_the_variance_is_large(q: float) -> None:
    adapter, drift, v = ctta.CMF(net(), q=q, view=flip, lr=0.01), q * 280 / 38400, 0.0
    for x in stream()[:3]:
        v = 0.99**2 * v + drift
        beta = 0.89 if drift >= 1 else max((1 - drift) / (v + 1 - drift), 0.89)
        v *= beta
        assert adapter.step(x).log["hidden_kept"] == pytest.approx(beta, abs=1e-12)


@pytest.mark.parametrize("stale", [False, True])
def test_sar_forgets_its_average_with_the_weights_unless_told_otherwise(stale: bool) -> None:
    adapter = ctta.SAR(net(), e_margin=1.0, reset_constant=5.0, stale_average=stale, loss="come")
    average: float | None = None
    for x in stream()[:4]:
        step = adapter.step(x)
        assert step.log["restored"] == 1
        average = step.loss if average is None else 0.9 * average + 0.1 * step.loss
        if stale:
            assert adapter.average is not None and adapter.average.item() == pytest.approx(average, abs=1e-12)
        else:
            assert adapter.average is None


def test_shot_labels_by_the_nearest_of_two_rounds_of_centroids() -> None:
    generator = torch.Generator().manual_seed(0)
    g = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    p = torch.randn(9, 5, generator=generator, dtype=torch.float64).softmax(1)
    unit = [row / row.norm() for row in g]
    weight = p.tolist()
    for _ in range(2):
        sums = [sum(weight[i][c] * unit[i] for i in range(9)) for c in range(5)]
        centroids = [sums[c] / (1e-8 + sum(weight[i][c] for i in range(9))) for c in range(5)]
        labels = [min(range(5), key=lambda c: (unit[i] - centroids[c]).norm().item()) for i in range(9)]
        weight = [[float(label == c) for c in range(5)] for label in labels]
    assert cluster_labels(g, p).tolist() == labels


def test_shot_without_a_confident_prediction_is_information_maximisation() -> None:
    plain, unsure = ctta.SHOT(net(), beta=0.0), ctta.SHOT(net(), labels="confident", threshold=1.0)
    for x in stream()[:2]:
        assert torch.equal(plain(x), unsure(x))


def test_the_opinion_entropy_equals_its_definition_and_does_not_overflow() -> None:
    logits = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    e = [math.exp(z) for z in logits[0].tolist()]
    opinion = [value / (sum(e) + 7) + 1e-7 for value in (*e, 7.0)]
    assert opinion_entropy(logits, 7.0).item() == pytest.approx(-sum(q * math.log(q) for q in opinion), abs=1e-12)
    extreme = torch.tensor([[200.0, 0.0], [0.0, 0.0]], requires_grad=True)
    opinion_entropy(extreme).sum().backward()
    assert opinion_entropy(extreme).isfinite().all() and extreme.grad.isfinite().all()


def test_the_gradient_of_the_opinion_entropy_leaves_the_norm_of_the_logits_alone() -> None:
    logits = torch.randn(4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(opinion_entropy(logits).sum(), logits)
    torch.testing.assert_close((gradient * logits).sum(1), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-12)
    assert gradient.abs().max() > 1e-3


def test_the_generalised_cross_entropy_lies_between_cross_entropy_and_absolute_error() -> None:
    logits, label = torch.tensor([[0.3, -0.4, 1.1]], dtype=torch.float64), torch.tensor([2])
    p = logits.softmax(1)[0, 2].item()
    assert generalised_cross_entropy(logits, label, 1.0).item() == pytest.approx(1 - p)
    assert generalised_cross_entropy(logits, label, 1e-6).item() == pytest.approx(-math.log(p), rel=1e-5)
    assert generalised_cross_entropy(logits, label, 0.8).item() == pytest.approx((1 - p**0.8) / 0.8)


def test_come_runs_sgd_without_nesterov_unless_asked() -> None:
    assert not ctta.Tent(net(), loss="come", optimizer="sgd").nesterov
    assert ctta.Tent(net(), loss="come", optimizer="sgd", nesterov=True).nesterov
    assert ctta.Tent(net(), optimizer="sgd").nesterov


@pytest.mark.parametrize("cls", [ctta.EATA, ctta.SAR])
def test_a_margin_above_ln_c_is_for_opinions_only(cls: type[ctta.EATA] | type[ctta.SAR]) -> None:
    step = cls(net(), loss="come", come_mass=1000.0, e_margin=1.2).step(stream()[0])
    assert step.log["kept"] == len(step.logits)
    with pytest.raises(ParameterError, match="e_margin"):
        cls(net(), e_margin=1.2)


def test_the_constant_of_shot_is_in_both_logarithms() -> None:
    shot, logits = ctta.SHOT(net(), eps=0.01), torch.randn(5, 4, dtype=torch.float64)
    p = logits.exp() / logits.exp().sum(1, keepdim=True)
    each = sum(-(q * math.log(q + 0.01)) for row in p.tolist() for q in row) / 5
    together = sum(q * math.log(q + 0.01) for q in p.mean(0).tolist())
    assert shot.information(logits).item() == pytest.approx(each + together, rel=1e-9)
