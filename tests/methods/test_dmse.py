"""DMSE's own promises: the controlled teacher, the recalibrated prototypes, the switches of the ablations."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ctta
from reference import flip, net, projector, stream, vector


def dmse(**options: object) -> ctta.DMSE:
    return ctta.DMSE(net(), **({"projection": projector(), "view": flip} | options))


def teacher_of(adapter: ctta.DMSE) -> list[Tensor]:
    return [p.clone() for p in adapter.teacher.parameters()]


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 10), st.floats(0, 1), st.floats(0, 1))
def test_alpha_stays_between_alpha_min_and_one(e: float, alpha_min: float, beta: float) -> None:
    alpha, _ = dmse(alpha_min=alpha_min, beta=beta, teacher_reset=False).control_teacher(e)
    assert alpha_min <= alpha <= 1
    assert alpha == pytest.approx(min(alpha_min + beta * e, 1))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 0.6))
def test_a_prototype_moves_only_with_a_confident_sample(seed: int, gamma: float) -> None:
    adapter = dmse(gamma=gamma)
    g = torch.randn(6, 16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).abs()
    p_t, nearest, confident = adapter.recalibrate(g)
    for c in range(10):
        mine = [g[i] for i in range(6) if nearest[i] == c and confident[i]]
        expected = torch.stack(mine).mean(0) if mine else adapter.p_t[c]
        torch.testing.assert_close(p_t[c], expected)


def test_the_teacher_is_the_moving_average_of_the_student() -> None:
    adapter = dmse()
    x = stream()[1]
    before = teacher_of(adapter)
    alpha = adapter.step(x).log["alpha"]
    assert alpha < 1
    for old, new, student in zip(before, adapter.teacher.parameters(), adapter.student.parameters(), strict=True):
        torch.testing.assert_close(new, alpha * old + (1 - alpha) * student, rtol=0, atol=1e-12)


def test_a_reset_returns_the_teacher_alone_to_the_source_and_replaces_the_average() -> None:
    adapter = dmse(e_min=1e9)
    source = teacher_of(adapter)
    for x in stream()[:3]:
        assert adapter.step(x).log["teacher_reset"] == 1
    assert all(torch.equal(a, b) for a, b in zip(source, adapter.teacher.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(source, adapter.student.parameters(), strict=True))
    assert not torch.equal(adapter.p_t, adapter.p_0)


def test_without_reset_the_teacher_never_returns() -> None:
    adapter = dmse(e_min=1e9, teacher_reset=False)
    assert all(adapter.step(x).log["teacher_reset"] == 0 for x in stream())


def test_the_average_of_the_entropy_decides_and_starts_anew_after_a_reset() -> None:
    adapter = dmse(reset_by="average", e_min=0.5, alpha=1.0)
    entropies = [vector("dmse_ref/trace")[i, 0].item() for i in range(8)]
    adapter.recalibrated = True
    average, expected = None, []
    for e in entropies:
        average = e if average is None else 0.9 * average + 0.1 * e
        expected.append(average < 0.5)
        average = None if expected[-1] else average
    assert [adapter.control_teacher(e)[1] for e in entropies] == expected


def test_a_fixed_alpha_is_used_whatever_the_entropy() -> None:
    adapter = dmse(alpha=0.5)
    assert {adapter.step(x).log["alpha"] for x in stream()} == {0.5}


def test_fixed_prototypes_stay_the_rows_of_the_classifier() -> None:
    adapter = dmse(recalibrated=False)
    for x in stream():
        assert adapter.step(x).log["prototypes_moved"] == 0
    torch.testing.assert_close(adapter.p_t, vector("w/fc.weight").double())


def test_the_prototypes_are_a_copy_that_training_the_head_does_not_move() -> None:
    adapter = dmse()
    for x in stream():
        adapter(x)
    torch.testing.assert_close(adapter.p_0, vector("w/fc.weight").double(), rtol=0, atol=0)
    assert not torch.equal(adapter.student.weight, adapter.p_0)


def test_given_prototypes_replace_the_classifiers_and_end_source_freedom() -> None:
    given_ = vector("prototypes_src")
    adapter = dmse(prototypes=given_)
    assert torch.equal(adapter.p_0, given_) and adapter.p_0 is not given_
    assert not adapter.source_free and dmse().source_free


def test_the_answer_is_the_mean_of_student_and_teacher_before_the_update() -> None:
    adapter = dmse()
    for x in stream()[:4]:
        with torch.no_grad():
            expected = (adapter.student(x) + adapter.teacher(x)) / 2
        torch.testing.assert_close(adapter(x), expected, rtol=0, atol=1e-12)


def test_saturated_entropy_freezes_the_teacher() -> None:
    adapter = dmse(beta=10.0)
    before = teacher_of(adapter)
    adapter(stream()[0])
    assert all(torch.equal(a, b) for a, b in zip(before, adapter.teacher.parameters(), strict=True))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"gamma": -3}, "gamma"),
        ({"alpha_min": 1.5}, "alpha_min"),
        ({"tau": 0}, "tau"),
        ({"loss": "mse"}, "loss"),
        ({"centre": "moving"}, "centre"),
        ({"projection": "linear"}, "projection"),
        ({"prototypes": torch.zeros(3, 3)}, "rototypes"),
        ({"lr": -1.0}, "lr"),
        ({"window": 1}, "window"),
        ({"precision": "fp16"}, "precision"),
    ],
)
def test_a_parameter_outside_its_range_is_named(options: dict[str, object], name: str) -> None:
    with pytest.raises(ctta.CttaError, match=name):
        dmse(**options)


@pytest.mark.parametrize("cls", [ctta.DMSE, ctta.RMT, ctta.SANTA, ctta.Trio])
def test_a_projection_sees_the_features_of_all_views_as_rows(cls: type[ctta.DMSE]) -> None:
    shapes = []
    own = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)).double()
    adapter = cls(net(), projection=own)
    adapter.project.register_forward_hook(lambda module, given, out: shapes.append((*given[0].shape, *out.shape)))
    for x in stream()[:2]:
        adapter.step(x)
    assert shapes == [(48, 16, 48, 4)] * 2 and adapter.skipped == 0
    assert adapter.project[1].running_mean.abs().max() > 0
