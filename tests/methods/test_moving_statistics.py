"""BNEMA, DUA and MEMO: whose statistics a batch norm uses, and what is left of a batch afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta.methods._parts.memo import BlendedNorm
from ctta.methods._parts.norm_layers import substitute
from ctta.methods.dua import random_copies
from reference import flip, net, stream


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_copies_are_shifts_flips_and_turns_of_the_image() -> None:
    image = torch.arange(1.0, 257).view(1, 1, 16, 16)
    copies = random_copies(image, 64, generator())
    padded = torch.nn.functional.pad(image, (2, 2, 2, 2))
    known = {
        padded[..., top : top + 16, left : left + 16].rot90(turn, (2, 3)).flip(axes).contiguous().numpy().tobytes()
        for top in range(5)
        for left in range(5)
        for turn in range(4)
        for axes in ((), (-1,))
    }
    found = {copy.contiguous().numpy().tobytes() for copy in copies.split(1)}
    assert found <= known and len(found) > 40


def test_an_oblong_image_keeps_its_shape() -> None:
    copies = random_copies(torch.rand(1, 3, 8, 16), 20, generator())
    assert copies.shape == (20, 3, 8, 16)


def test_dua_takes_the_statistics_of_the_newest_image_alone() -> None:
    x = stream()[0]
    other = torch.cat([1 - x[:-1], x[-1:]])
    means = []
    for batch in (x, other):
        adapter = ctta.DUA(net(), copies=4)
        adapter(batch)
        means.append(adapter.student.model.bn1.mean)
    assert torch.equal(*means) and not torch.equal(means[0], net().bn1.running_mean)


def test_bnema_moves_nothing_where_a_channel_has_a_single_value() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()
    adapter = ctta.BNEMA(model)
    x = torch.rand(1, 3, 2, 2)
    assert torch.equal(adapter(x), model(x))


def test_a_layer_used_in_two_places_stays_one_layer() -> None:
    shared = nn.BatchNorm2d(4)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    (made,) = substitute(model, lambda layer: BlendedNorm(layer, 0.1))
    assert model[0] is made and model[2] is made


def naive_blend(layer: nn.BatchNorm2d, x: Tensor, alpha: float) -> Tensor:
    """Each image with (1 - alpha) source + alpha of its own statistics, in loops."""
    out = torch.empty_like(x)
    for i, image in enumerate(x):
        for c, values in enumerate(image):
            mean = (1 - alpha) * layer.running_mean[c] + alpha * values.mean()
            var = (1 - alpha) * layer.running_var[c] + alpha * values.var(unbiased=True)
            out[i, c] = (values - mean) / (var + layer.eps).sqrt() * layer.weight[c] + layer.bias[c]
    return out


@torch.no_grad()
def test_memo_gives_every_image_of_a_batch_its_own_statistics() -> None:
    layer = nn.BatchNorm2d(3).double()
    for values in (layer.weight, layer.bias, layer.running_mean):
        values.copy_(torch.randn(3, generator=generator()))
    x = torch.rand(4, 3, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(BlendedNorm(layer, 0.3)(x), naive_blend(layer, x, 0.3), rtol=0, atol=1e-12)


def test_memo_leaves_nothing_of_an_image_behind_unless_told_to() -> None:
    x = stream()[0][:3]
    adapter, keeping = (ctta.MEMO(net(), views=2, view=flip, episodic=e) for e in (True, False))
    weights = [p.clone() for p in adapter.trained]
    answers = adapter(x)
    assert all(torch.equal(a, b) for a, b in zip(weights, adapter.trained, strict=True))
    one_by_one = torch.cat([ctta.MEMO(net(), views=2, view=flip)(image) for image in x.split(1)])
    assert torch.equal(answers, one_by_one)
    kept = keeping(x)
    assert torch.equal(kept[0], answers[0]) and not torch.equal(kept[1], answers[1])


def test_memo_forwards_the_images_it_declares() -> None:
    adapter, sizes = ctta.MEMO(net(), views=5, view=flip), []
    adapter.student.register_forward_hook(
        lambda module, args, logits: sizes.append((len(logits), logits.requires_grad))
    )
    adapter(stream()[0][:1])
    assert (sum(n for n, _ in sizes), sum(n for n, learns in sizes if learns)) == adapter.passes == (6, 5)


@pytest.mark.parametrize("method", ["bnema", "dua", "memo"])
def test_methods_that_take_in_a_batch_first_say_so(method: str) -> None:
    assert not ctta.method(method).predicts_first
