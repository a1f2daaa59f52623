"""Trio: one step against a naive one, and what its switches change."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ctta
from ctta.augment import AnyView
from ctta.bench.defaults import default_arguments
from ctta.methods.trio import GEOMETRIC
from ctta.testing.models import bn_cnn, gn_cnn, ln_vit
from ctta.testing.task import drifting_images


def rolled(x: Tensor, generator: torch.Generator) -> Tensor:
    """A view without random numbers."""
    return x.roll(1, dims=-1)


def trio(**settings: object) -> ctta.Trio:
    """A Trio in double precision, with statistics that no image changes and a view without random numbers."""
    given = {"view": rolled, "statistics": "source", "optimizer": "sgd", "lr": 0.1, "momentum": 0.0, "nesterov": False}
    return ctta.Trio(bn_cnn().double(), projection=None, **{**given, **settings})  # type: ignore[arg-type]


def naive_sce(a: Tensor, b: Tensor) -> Tensor:
    """Symmetric cross-entropy of two rows of logits."""
    p, q = a.softmax(0), b.softmax(0)
    return -(q * p.log()).sum() - (p * q.log()).sum()


def naive_contrastive(rows: list[tuple[int, Tensor]], tau: float) -> Tensor:
    """Every row against every other; rows of the same sample are positives."""
    total = torch.zeros((), dtype=torch.float64)
    for i, (sample, z) in enumerate(rows):
        others = [(s, F.cosine_similarity(z, w, dim=0) / tau) for j, (s, w) in enumerate(rows) if j != i]
        everything = torch.stack([similarity for _, similarity in others]).logsumexp(0)
        positives = [similarity for s, similarity in others if s == sample]
        total = total + sum((everything - similarity for similarity in positives), total * 0) / len(positives)
    return total / len(rows)


@pytest.mark.parametrize("view", [rolled, None])
def test_a_step_is_that_of_its_equations(view: AnyView | None) -> None:
    adapter = trio(batch_size=8, gamma=0.45, view=view)
    x = drifting_images(4).double()
    student, teacher = copy.deepcopy(adapter.student), copy.deepcopy(adapter.teacher)
    student.requires_grad_(True)
    weights = list(student.parameters())
    target = teacher(x.flip(-1)).detach()
    logits, g = student.with_features(x)
    passes = [(logits, g)] if view is None else [(logits, g), student.with_features(x.roll(1, dims=-1))]
    p_0 = student.weight.detach()
    p_t, nearest = p_0.clone(), []
    kept: dict[int, list[Tensor]] = {}
    for row in g.detach():
        distances = [0.5 * (1 - F.cosine_similarity(row, p, dim=0).item()) for p in p_0]
        nearest.append(distances.index(min(distances)))
        if min(distances) < 0.45:
            kept.setdefault(nearest[-1], []).append(row)
    for c, features in kept.items():
        p_t[c] = sum(features) / len(features)  # type: ignore[assignment]
    agreement = sum(naive_sce(own[i], target[i]) for own, _ in passes for i in range(4)) / (4 * len(passes))
    rows = [*((i, p_t[nearest[i]]) for i in range(4)), *(row for _, own in passes for row in enumerate(own))]
    loss = agreement + 2.0 * naive_contrastive(rows, 0.1)
    gradients = torch.autograd.grad(loss, weights)

    step = adapter.step(x)
    predicted = sum((own.detach() for own, _ in passes), target) / (1 + len(passes))
    torch.testing.assert_close(step.logits, predicted, rtol=0, atol=1e-12)
    assert adapter.passes == ((3, 2) if view else (2, 1))
    assert step.loss == pytest.approx(loss.item(), abs=1e-9)
    # Half of the batch size that the rates are meant for: half the learning rate, half the way of the teacher.
    expected = [p.detach() - 0.05 * gradient for p, gradient in zip(weights, gradients, strict=True)]
    for found, wanted in zip(adapter.student.parameters(), expected, strict=True):
        torch.testing.assert_close(found.detach(), wanted, rtol=0, atol=1e-9)
    e = sum(-(p * p.log()).sum().item() for p in logits.detach().softmax(1)) / 4 / math.log(10)
    alpha = 1 - 0.5 * 0.01 * (1 - e)
    assert step.log["alpha"] == pytest.approx(alpha, abs=1e-12)
    for found, old, wanted in zip(adapter.teacher.parameters(), teacher.parameters(), expected, strict=True):
        torch.testing.assert_close(found.detach(), alpha * old.detach() + (1 - alpha) * wanted, rtol=0, atol=1e-9)
    torch.testing.assert_close(adapter.p_t, p_t, rtol=0, atol=1e-12)


def test_without_a_mirror_the_teacher_looks_at_the_batch_and_the_view_is_not_flipped() -> None:
    x = drifting_images(4).double()
    adapter = trio(mirror=False)
    expected = (2 * adapter.student(x) + adapter.student(x.roll(1, dims=-1))).detach() / 3
    torch.testing.assert_close(adapter.predict(x), expected, rtol=0, atol=1e-12)
    flips = {False: 0, True: 0}
    bright_left = torch.zeros(1, 3, 16, 16).double()
    bright_left[..., :8] = 1
    for mirror, seed in ((mirror, seed) for mirror in flips for seed in range(20)):
        view = trio(mirror=mirror, view=GEOMETRIC, seed=seed).augment(bright_left)
        flips[mirror] += int(view[..., :8].mean() < view[..., 8:].mean())
    assert flips[False] == 0 and 0 < flips[True] < 20


def test_the_view_changes_no_colour() -> None:
    colours = torch.rand(8, 3, 1, 1, generator=torch.Generator().manual_seed(0)).double().expand(-1, -1, 16, 16)
    view = trio(view=GEOMETRIC).augment(colours)
    torch.testing.assert_close(view, colours, rtol=0, atol=1e-6)


def test_further_views_of_the_teacher_are_averaged() -> None:
    x = drifting_images(4).double()
    adapter = trio(teacher_views=3)
    expected = (adapter.teacher(x.flip(-1)) + 2 * adapter.teacher(x.roll(1, dims=-1))) / 3
    torch.testing.assert_close(adapter.look(x), expected, rtol=0, atol=1e-12)
    assert adapter.passes == (5, 2)


NOTHING_BUT_NORMS = {"learns_from": "norms"}


@pytest.mark.parametrize(
    ("build", "options"), [(bn_cnn, NOTHING_BUT_NORMS), (ln_vit, NOTHING_BUT_NORMS), (ln_vit, {}), (gn_cnn, {})]
)
def test_the_cheaper_form_and_networks_without_batch_norm_train_only_norm_layers(build, options) -> None:  # type: ignore[no-untyped-def]
    net = build()
    norms = {
        f"{name}.{part}"
        for name, layer in net.named_modules()
        if isinstance(layer, nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm)
        for part in ("weight", "bias")
    }
    assert moved(ctta.Trio(net, **options), net) == norms


def test_networks_with_batch_norm_or_without_norms_train_every_parameter() -> None:
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    no_weights = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4, affine=False), nn.Flatten(), nn.Linear(784, 10))
    for net, options in ((bn_cnn(), {}), (plain, {}), (no_weights, {}), (ln_vit(), {"learns_from": "all"})):
        trained = ctta.Trio(net, **options).student.model.parameters()
        assert all(parameter.requires_grad for parameter in trained)


def moved(adapter: ctta.Adapter, net: nn.Module) -> set[str]:
    """Return the names of the parameters that a step changes."""
    adapter.step(drifting_images(4))
    now = adapter.student.model.named_parameters()
    return {name for (name, p), old in zip(now, net.parameters(), strict=True) if not torch.equal(p, old)}


def test_a_frozen_trio_averages_the_student_and_the_mirrored_teacher() -> None:
    x = drifting_images(4)
    for mirror in (True, False):
        adapter = ctta.Trio(bn_cnn(), mirror=mirror, statistics="source")
        adapter.step(x)
        with torch.no_grad():
            expected = 0.5 * (adapter.student(x) + adapter.teacher(x.flip(-1) if mirror else x))
        torch.testing.assert_close(adapter.freeze()(x), expected, rtol=0, atol=1e-6)


def test_digits_are_never_mirrored() -> None:
    assert default_arguments(ctta.Trio, "digits")["mirror"] is False
    assert default_arguments(ctta.Trio, "cifar10-c")["mirror"] is True
    assert "mirror" not in default_arguments(ctta.DMSE, "digits")


def test_a_small_batch_learns_at_a_lower_rate_and_leaves_no_trace_of_it_in_the_state() -> None:
    adapter = trio(batch_size=64)
    before = adapter.state_dict()["_extra_state"]["optimizer"]["param_groups"]
    adapter.step(torch.rand(8, 3, 16, 16, dtype=torch.float64))
    assert adapter.state_dict()["_extra_state"]["optimizer"]["param_groups"] == before
