"""Every equation against a naive loop, and the properties that must hold for any input."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ctta import functional as f


def softmax(row: list[float]) -> list[float]:
    top = max(row)
    weights = [math.exp(v - top) for v in row]
    return [w / sum(weights) for w in weights]


def logits(n: int = 5, c: int = 4, seed: int = 0) -> Tensor:
    return 3 * torch.randn(n, c, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def expect(found: Tensor, rows: list[float]) -> None:
    torch.testing.assert_close(found, torch.tensor(rows, dtype=torch.float64), rtol=0, atol=1e-12)


def test_entropy_equals_a_loop() -> None:
    z = logits()
    expect(f.entropy(z), [-sum(p * math.log(p) for p in softmax(row)) for row in z.tolist()])


def test_entropy_and_its_gradient_are_finite_for_certain_predictions() -> None:
    z = torch.tensor([[1000.0, 0.0, -1000.0]], requires_grad=True)
    h = f.entropy(z)
    h.sum().backward()
    assert h.item() == 0
    assert z.grad is not None and z.grad.isfinite().all()


def test_cross_entropy_weighs_the_logarithm_of_the_first_by_the_second() -> None:
    z, t = logits(seed=1), logits(seed=2)
    rows = [
        -sum(q * math.log(p) for p, q in zip(softmax(a), softmax(b), strict=True))
        for a, b in zip(z.tolist(), t.tolist(), strict=True)
    ]
    expect(f.cross_entropy(z, t), rows)


def test_symmetric_cross_entropy_equals_a_loop() -> None:
    z, t = logits(seed=1), logits(seed=2)
    rows = []
    for a, b in zip(z.tolist(), t.tolist(), strict=True):
        p, q = softmax(a), softmax(b)
        rows.append(-sum(q[i] * math.log(p[i]) + p[i] * math.log(q[i]) for i in range(len(p))))
    expect(f.symmetric_cross_entropy(z, t), rows)


def naive_contrastive(z: list[list[list[float]]], tau: float) -> float:
    """Eq. 6 as it is written: anchors, positives, all other rows in the denominator."""
    rows = []
    for view, samples in enumerate(z):
        for sample, values in enumerate(samples):
            length = math.sqrt(sum(v * v for v in values))
            rows.append((view, sample, [v / length for v in values]))
    total = 0.0
    for view, sample, anchor in rows:
        others = [(v, s, r) for v, s, r in rows if (v, s) != (view, sample)]
        exps = {(v, s): math.exp(sum(a * b for a, b in zip(anchor, r, strict=True)) / tau) for v, s, r in others}
        positives = [-math.log(e / sum(exps.values())) for (v, s), e in exps.items() if s == sample]
        total += sum(positives) / len(positives)
    return total / len(rows)


@pytest.mark.parametrize("tau", [0.1, 0.5])
def test_contrastive_equals_the_double_sum(tau: float) -> None:
    z = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert f.contrastive(z, tau=tau).item() == pytest.approx(naive_contrastive(z.tolist(), tau), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(5)), st.integers(0, 1000))
def test_contrastive_does_not_depend_on_the_order_of_the_batch(order: list[int], seed: int) -> None:
    z = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert f.contrastive(z[:, order]).item() == pytest.approx(f.contrastive(z).item(), abs=1e-10)


finite = st.floats(-1e3, 1e3, allow_nan=False, width=32)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=6))
def test_distances_lie_between_0_and_1(rows: list[tuple[float, float, float]]) -> None:
    g = torch.tensor(rows)
    dist = f.cosine_distance(g, g)
    assert (dist >= 0).all() and (dist <= 1).all()


def test_nearest_prototype_equals_a_loop() -> None:
    generator = torch.Generator().manual_seed(5)
    g = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    p = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    dist, index = f.nearest_prototype(g, p)
    for i, feature in enumerate(g.tolist()):
        by_class = []
        for prototype in p.tolist():
            dot = sum(a * b for a, b in zip(feature, prototype, strict=True))
            by_class.append(0.5 * (1 - dot / math.hypot(*feature) / math.hypot(*prototype)))
        assert index[i].item() == by_class.index(min(by_class))
        assert dist[i].item() == pytest.approx(min(by_class), abs=1e-12)


def test_class_means_equal_a_loop_and_leave_absent_classes_at_zero() -> None:
    g = torch.arange(12, dtype=torch.float64).view(4, 3)
    means, counts = f.class_means(g, torch.tensor([2, 0, 2, 2]), 4)
    assert counts.tolist() == [1, 0, 3, 0]
    expected = [[3, 4, 5], [0, 0, 0], [(0 + 6 + 9) / 3, (1 + 7 + 10) / 3, (2 + 8 + 11) / 3], [0, 0, 0]]
    torch.testing.assert_close(means, torch.tensor(expected, dtype=torch.float64))


def test_diversity_is_one_for_a_collapse_and_c_for_a_uniform_spread() -> None:
    assert f.diversity(torch.tensor([[1e4, 0.0, 0.0]] * 6)).item() == pytest.approx(1)
    assert f.diversity(1e4 * torch.eye(5)).item() == pytest.approx(5)
