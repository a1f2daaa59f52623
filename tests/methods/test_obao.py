"""OBAO: what enters its buffer, what it replays, and what it trains."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import ctta
from ctta.methods._parts.image_memory import EntropyBuffer
from ctta.methods.obao import relation_change, relations
from reference import flip, net, stream


def numbered(numbers: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(numbers, dtype=torch.float32).view(-1, 1, 1, 1), torch.tensor(numbers)


def test_newcomers_take_free_places_and_then_those_of_the_highest_entropy() -> None:
    buffer = EntropyBuffer(4)
    buffer.add(*numbered([0, 1, 2]), torch.tensor([0.3, 0.9, 0.1]))
    assert len(buffer) == 3
    # 3 takes the free place; 4 and 5 replace those with 0.9 and 0.7, one of which has just come.
    buffer.add(*numbered([3, 4, 5]), torch.tensor([0.7, 2.0, 0.2]))
    assert buffer.label.tolist() == [0, 4, 2, 5] and buffer.images.flatten().tolist() == [0, 4, 2, 5]
    torch.testing.assert_close(buffer.entropy, torch.tensor([0.3, 2.0, 0.1, 0.2]))


def test_more_newcomers_than_places_leave_a_full_buffer() -> None:
    buffer = EntropyBuffer(2)
    buffer.add(*numbered(list(range(9))), torch.linspace(0, 1, 9))
    assert len(buffer) == 2 and torch.equal(buffer.images.flatten().long(), buffer.label)


def test_relations_are_cosines_between_classes_with_ones_on_the_diagonal() -> None:
    means = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = relations(means)
    for i in range(5):
        for j in range(5):
            expected = 1.0 if i == j else F.cosine_similarity(means[i], means[j], dim=0).item()
            assert found[i, j].item() == pytest.approx(expected)
    other = relations(means.flip(1).cumsum(1))
    product = (found * other).sum() / ((found**2).sum() * (other**2).sum()).sqrt()
    assert relation_change(found, other, "cosine").item() == pytest.approx(-product.item())
    assert relation_change(found, other, "squared").item() == pytest.approx(((found - other) ** 2).mean().item())


def test_a_step_with_a_filled_buffer_takes_the_passes_it_declares() -> None:
    adapter = ctta.OBAO(net(), e_margin=1.0, view=flip)
    adapter(stream()[0])
    forward, backward = [], []

    def seen(module: object, args: object, logits: torch.Tensor) -> None:
        forward.append(len(logits))
        if logits.requires_grad:
            logits.register_hook(lambda gradient: backward.append(1))

    for network in (adapter.student, adapter.teacher):
        network.register_forward_hook(seen)
    adapter(stream()[1])
    assert (len(forward), len(backward)) == adapter.passes


def test_the_head_is_not_trained_and_only_confident_images_are_kept() -> None:
    adapter = ctta.OBAO(net(), e_margin=0.3, view=flip)
    head = adapter.student.weight.clone()
    for x in stream()[:3]:
        adapter(x)
    assert torch.equal(adapter.student.weight, head)
    limit = 0.3 * torch.log(torch.tensor(10.0))
    held = len(adapter.buffer)
    assert 0 < held < 48 and (adapter.buffer.entropy[:held] < limit).all()


def test_all_weights_are_restored_with_certainty() -> None:
    adapter = ctta.OBAO(net(), restore_p=1.0, view=flip)
    adapter(stream()[0])
    assert all(torch.equal(p, s) for p, s in zip(adapter.trained, adapter.source_of_trained(), strict=True))
