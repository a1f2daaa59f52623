"""The known faults of public code, each with the test that would catch it."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import ctta
from ctta.functional import nearest_prototype
from ctta.methods._parts.rotta import Memory
from reference import net, source_batches, stream


def test_the_nearest_prototype_search_never_builds_a_class_by_sample_by_feature_tensor() -> None:
    """C=1000, N=64, d=2048: public code takes 2 x 524 MB; ours must stay below 10 MB beyond its inputs."""
    g, p = torch.randn(64, 2048), torch.randn(1000, 2048)
    made = 0

    class Count(TorchDispatchMode):
        """The bytes of every new tensor, freed or not: no peak can be higher."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal made
            out = func(*args, **(kwargs or {}))
            given = {t.untyped_storage().data_ptr() for t in tree_leaves(args) if isinstance(t, Tensor)}
            new = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
            made += sum(t.nbytes for t in new if t.untyped_storage().data_ptr() not in given)
            return out

    with Count():
        nearest_prototype(g, p)
    assert 64 * 1000 * 4 <= made < 10e6


def test_sar_uses_the_reset_constant_it_is_given() -> None:
    never, always = ctta.SAR(net(), reset_constant=0.0), ctta.SAR(net(), reset_constant=1e9)
    for x in stream():
        never(x), always(x)
    assert never.restores == 0 and always.restores == 8


def test_sar_starts_its_average_anew_after_a_reset() -> None:
    adapter = ctta.SAR(net(), reset_constant=1e9)
    adapter(stream()[0])
    assert adapter.average is None


def test_sar_makes_a_step_with_zero_gradient_where_nothing_is_reliable() -> None:
    adapter = ctta.SAR(net(), lr=0.1)
    adapter(stream()[0])
    weights = [p.detach().clone() for p in adapter.trained]
    adapter.e_margin = 0.0
    step = adapter.step(stream()[1])
    assert step.log["kept"] == 0 and step.logits.isfinite().all()
    # Momentum still moves the weights.
    assert any(not torch.equal(a, b) for a, b in zip(weights, adapter.trained, strict=True))
    assert all(p.isfinite().all() for p in adapter.trained)


def test_sar_and_deyo_leave_the_last_stage_alone() -> None:
    for cls in (ctta.SAR, ctta.DeYO):
        adapter = cls(net())
        names = {n for n, p in adapter.student.model.named_parameters() if any(p is t for t in adapter.trained)}
        assert "layer3.bn1.weight" in names and not any("layer4" in name for name in names)


@pytest.mark.parametrize("options", [{"e_margin": 0.0}, {"d_margin": 0.0}])
def test_eata_makes_no_step_where_nothing_is_kept(options: dict[str, float]) -> None:
    adapter = ctta.EATA(net(), lr=0.1, **options)
    adapter(stream()[0])
    weights, p_bar = [p.detach().clone() for p in adapter.trained], adapter.p_bar
    for x in stream()[1:]:
        assert adapter.step(x).log["kept"] == 0
    assert all(torch.equal(a, b) for a, b in zip(weights, adapter.trained, strict=True))
    assert adapter.p_bar is p_bar


@pytest.mark.parametrize("options", [{"tau_ent": 0.0}, {"tau_plpd": 1.0}])
@pytest.mark.parametrize("destroy", ["patch", "occlusion"])
def test_deyo_makes_no_step_where_nothing_is_kept(options: dict[str, float], destroy: str) -> None:
    adapter = ctta.DeYO(net(), lr=0.1, destroy=destroy, **options)
    weights = [p.detach().clone() for p in adapter.trained]
    for x in stream():
        step = adapter.step(x)
        assert step.log["kept"] == 0 and step.logits.isfinite().all()
    assert adapter.skipped == 0
    assert all(torch.equal(a, b) for a, b in zip(weights, adapter.trained, strict=True))


def test_deyo_occludes_the_central_half_with_the_mean_colour() -> None:
    x = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    out = ctta.DeYO(net(), destroy="occlusion")._destroyed(x, torch.Generator())
    for n in range(2):
        for c in range(3):
            for i in range(8):
                for j in range(8):
                    inside = 2 <= i < 6 and 2 <= j < 6
                    assert out[n, c, i, j].item() == pytest.approx(x[n, c].mean().item() if inside else x[n, c, i, j])


def test_deyo_shuffles_every_image_in_an_order_of_its_own() -> None:
    x = torch.rand(1, 3, 16, 16).expand(6, -1, -1, -1)
    out = ctta.DeYO(net())._destroyed(x, torch.Generator().manual_seed(0))
    assert not torch.equal(out[0], out[1])
    for image in out:
        assert torch.equal(image.flatten().sort().values, x[0].flatten().sort().values)


def count_passes(adapter: ctta.Adapter, x: Tensor) -> tuple[int, int]:
    """Forward passes of a network in one step, and how many of them a gradient came back through."""
    forward, backward = [], []

    def seen(module: object, args: object, logits: Tensor) -> None:
        forward.append(len(logits))
        if logits.requires_grad:
            logits.register_hook(lambda gradient: backward.append(1))

    networks = [m for m in adapter.modules() if isinstance(m, ctta.Classifier)]
    handles = [network.register_forward_hook(seen) for network in networks]
    adapter(x)
    for handle in handles:
        handle.remove()
    return len(forward), len(backward)


def test_cotta_computes_its_views_only_when_it_needs_them() -> None:
    assert count_passes(ctta.CoTTA(net(), p_th=0.0), stream()[0]) == (3, 1)
    assert count_passes(ctta.CoTTA(net(), p_th=2.0, views=5), stream()[0]) == (2 + 5, 1)


# MEMO takes its passes image by image, and OBAO replays nothing at first: see their own tests.
@pytest.mark.parametrize("name", sorted(set(ctta.registry.methods()) - {"memo", "obao"}))
def test_a_step_takes_the_passes_the_method_declares(name: str) -> None:
    cls = ctta.method(name)
    always = {
        "cotta": {"p_th": 2.0},
        "deyo": {"tau_plpd": -1.0},
        "note": {"update_every": 16},
        "petal": {"p_th": 2.0},
        "rotta": {"update_every": 16},
    }
    adapter = cls(net(), **always.get(name, {}))
    assert count_passes(adapter, stream()[0]) == adapter.passes


def test_replay_and_fewer_views_change_the_passes_a_method_declares() -> None:
    replaying = ctta.RMT(net(), source=source_batches(), lambda_src=1.0)
    assert count_passes(replaying, stream()[0]) == replaying.passes == (4, 3)
    fewer = ctta.CoTTA(net(), p_th=2.0, views=3)
    assert count_passes(fewer, stream()[0]) == fewer.passes == (5, 1)


def test_rmt_walks_its_source_in_order_and_wraps() -> None:
    source = source_batches()
    adapter = ctta.RMT(net(), source=source, lambda_src=1.0)
    for i in range(12):
        x, y = adapter.next_source_batch()
        assert torch.equal(x, source[i % 10][0]) and torch.equal(y, source[i % 10][1])


def test_rmt_without_source_refuses_what_needs_it() -> None:
    with pytest.raises(ctta.CttaError, match="no 'source' to replay"):
        ctta.RMT(net(), lambda_src=1.0)
    with pytest.raises(ctta.CttaError, match="needs 'source'"):
        ctta.RMT(net()).warm_up(1)


def test_only_methods_given_source_data_say_so() -> None:
    fisher = ctta.fisher_from_source(net(), source_batches())
    assert ctta.EATA(net()).source_free and not ctta.EATA(net(), fisher=fisher).source_free
    assert ctta.RMT(net()).source_free and not ctta.RMT(net(), source=source_batches()).source_free


def test_an_absent_class_is_named_not_nan() -> None:
    first = [(x, torch.zeros_like(y)) for x, y in source_batches()[:2]]
    with pytest.raises(ctta.CttaError, match="9 of 10 have none"):
        ctta.prototypes_from_source(net(), first)
    filled = ctta.prototypes_from_source(net(), first, missing="classifier")
    assert filled.isfinite().all() and torch.equal(filled[1:], ctta.Classifier(net()).weight[1:])


def test_prototypes_read_no_batch_after_the_last_image_they_want() -> None:
    loader = iter([source_batches()[0]] * 3)
    ctta.prototypes_from_source(net(), loader, most=2 * 16, missing="classifier")
    assert len(list(loader)) == 1


def test_roid_divides_by_the_configured_batch_size() -> None:
    losses = [ctta.ROID(net(), batch_size=b).step(stream()[0][:8]).loss for b in (8, 16, None)]
    assert losses[0] == losses[2] and losses[1] == pytest.approx(losses[0] / 2)


def test_rotta_memory_balances_classes_and_keeps_the_timely_and_certain() -> None:
    memory = Memory(4, lambda_t=1.0, lambda_u=1.0)
    image = torch.zeros(1)
    for label, uncertainty in [(0, 0.1), (0, 0.5), (0, 0.2), (1, 0.1), (1, 0.6)]:
        memory.offer(image + uncertainty, label, uncertainty, classes=2)
    # Class 0 is full at two: 0.2 replaced the worse of 0.1 and 0.5.
    images, age = memory.content()
    torch.testing.assert_close(images.flatten(), torch.tensor([0.1, 0.2, 0.1, 0.6]))
    assert (age * 4).tolist() == [5, 3, 2, 1]


def test_memory_stays_flat_when_nothing_is_kept() -> None:
    adapter = ctta.EATA(net(), e_margin=0.0)
    for _ in range(5):
        adapter(stream()[0])
    tracemalloc.start()
    start = tracemalloc.get_traced_memory()[0]
    for _ in range(50):
        adapter(stream()[0])
    grown = tracemalloc.get_traced_memory()[0] - start
    tracemalloc.stop()
    assert grown < 20_000
