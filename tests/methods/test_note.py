"""NOTE: instance-aware batch norm against loops, and the balance of its reservoir."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta.methods._parts.note import IABN, BalancedReservoir
from reference import net, stream


def naive(x: Tensor, mean: Tensor, var: Tensor, layer: nn.BatchNorm2d, k: float) -> Tensor:
    """The equations for every image and channel."""
    out, n = torch.empty_like(x), x.shape[2] * x.shape[3]
    for i, image in enumerate(x):
        for c, values in enumerate(image):
            own_mean, own_var = values.mean().item(), values.var(unbiased=True).item()
            m, v = mean[c].item(), var[c].item()
            spread = (v + layer.eps) * math.sqrt(2 / (n - 1))
            m2 = m + soft(own_mean - m, k * math.sqrt((v + layer.eps) / n))
            v2 = max(v + soft(own_var - v, k * spread), 0)
            out[i, c] = (values - m2) / math.sqrt(v2 + layer.eps) * layer.weight[c] + layer.bias[c]
    return out


def soft(x: float, threshold: float) -> float:
    return math.copysign(max(abs(x) - threshold, 0), x)


@torch.no_grad()
@pytest.mark.parametrize("k", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("base", ["stored", "batch"])
def test_the_layer_equals_its_equations(k: float, base: str) -> None:
    layer = nn.BatchNorm2d(3).double()
    for values in (layer.weight, layer.bias, layer.running_mean):
        values.copy_(torch.randn(3, generator=torch.Generator().manual_seed(0)))
    x = 2 * torch.rand(5, 3, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    by_channel = x.transpose(0, 1).flatten(1)
    batch = (by_channel.mean(1), by_channel.var(1, unbiased=True))
    mean, var = batch if base == "batch" else (layer.running_mean, layer.running_var)
    found = IABN(layer, k=k, base=base)(x)
    torch.testing.assert_close(found, naive(x, mean, var, layer, k), rtol=0, atol=1e-12)


@torch.no_grad()
def test_an_image_alone_is_normalised_as_a_batch_of_one() -> None:
    layer = nn.BatchNorm2d(3).double()
    x = torch.rand(4, 3, 4, 4, dtype=torch.float64)
    together = IABN(layer, k=4.0, base="image")(x)
    alone = torch.cat([IABN(layer, k=4.0, base="batch")(image) for image in x.split(1)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)


@torch.no_grad()
def test_an_update_moves_the_statistics_as_torch_does_in_training() -> None:
    adapter = ctta.NOTE(net(), memory_size=16, update_every=16, statistics_share=0.3)
    x = stream()[0]
    adapter(x)
    first = net().conv1(adapter.memory.content())
    layer = nn.BatchNorm2d(8, momentum=0.3).double()
    layer.load_state_dict(net().bn1.state_dict())
    layer.train()(first)
    torch.testing.assert_close(adapter.student.model.bn1.mean, layer.running_mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(adapter.student.model.bn1.var, layer.running_var, rtol=0, atol=1e-12)


def fill(labels: list[int], size: int, seed: int = 0) -> tuple[BalancedReservoir, list[int]]:
    """Offer numbered images, and return the numbers that are held."""
    chance, memory = random.Random(seed), BalancedReservoir(size)
    for number, label in enumerate(labels):
        image = torch.full((1, 1, 1), float(number))
        memory.offer(image, label, classes=4, choice=chance.choice, uniform=chance.random)
    return memory, [int(v) for v in memory.content().flatten()]


def test_the_reservoir_holds_as_many_of_each_class_in_a_sorted_stream() -> None:
    labels = [label for label in range(4) for _ in range(50)]
    memory, held = fill(labels, 16)
    assert Counter(labels[number] for number in held) == {0: 4, 1: 4, 2: 4, 3: 4}
    assert memory.seen.tolist() == [50] * 4 and memory.label[memory.label >= 0].numel() == 16


def test_of_one_class_all_times_are_held_alike() -> None:
    # Reservoir sampling: after 40 images each is held with probability 8 / 40.
    times = 400
    held = torch.zeros(40)
    for seed in range(times):
        held[fill([0] * 40, 8, seed)[1]] += 1
    share = 8 / 40
    assert (held / times - share).abs().max() < 4.5 * math.sqrt(share * (1 - share) / times)


def test_a_large_reservoir_is_learnt_from_in_shuffled_batches() -> None:
    adapter = ctta.NOTE(net(), memory_size=70, update_every=80)
    sizes = []
    adapter.student.register_forward_hook(lambda module, args, logits: sizes.append(len(logits)))
    for x in stream()[:5]:
        adapter(x)
    assert sizes == [16] * 5 + [64, 6]


@pytest.mark.parametrize("size", [16, 7, 5, 40])
@pytest.mark.parametrize("update_every", [6, 8, 16])
def test_images_after_an_update_inside_a_batch_are_predicted_after_it(size: int, update_every: int) -> None:
    images = stream()[:5].flatten(0, 1)
    options = {"memory_size": 8, "update_every": update_every, "optimizer": "sgd", "lr": 0.05}
    alone, batched = ctta.NOTE(net(), **options), ctta.NOTE(net(), **options)
    expected = torch.cat([alone(image) for image in images.split(1)])
    found = [batched.step(batch) for batch in images.split(size)]
    torch.testing.assert_close(torch.cat([step.logits for step in found]), expected, rtol=0, atol=1e-9)
    assert sum(step.log["updates"] for step in found) == len(images) // update_every


@pytest.mark.parametrize("reset_every", [None, 1])
def test_logits_that_are_not_finite_undo_the_updates_of_their_batch(reset_every: int | None) -> None:
    options = {"memory_size": 8, "update_every": 6, "lr": 0.05, "reset_every": reset_every}
    adapter = ctta.NOTE(net(), **options)
    adapter.step(stream()[0])
    before = adapter.state_dict() if reset_every is None else ctta.NOTE(net(), **options).state_dict()
    last = stream()[1][14:]
    adapter.student.register_forward_hook(
        lambda module, given, logits: logits * (torch.nan if torch.equal(given[0][-2:], last) else 1)
    )
    assert adapter.step(stream()[1]).log["skipped"] == 1
    for name in ("student.model.bn1.weight", "memory.seen"):
        found, expected = adapter.state_dict().get(name), before.get(name)
        assert found is expected is None or torch.equal(found, expected)
