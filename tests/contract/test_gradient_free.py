"""A method that keeps a state and takes no gradients is a kind of its own, with a seed and resets."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Step
from ctta.functional import class_means
from ctta.options import AnswerOptions, SharedOptions, StateOptions
from ctta.testing import check_adapter
from ctta.testing.models import bn_cnn


class ClassMeans(Adapter):
    """Predict with running class means of the features, updated from a random share of every batch."""

    learns = False
    uses_batch_statistics = False
    passes = (1, 0)

    means: Tensor

    def __init__(
        self, model: nn.Module, *, rate: float = 0.2, share: float = 0.5, **options: Unpack[StateOptions]
    ) -> None:
        super().__init__(model, **options)
        self.rate = rate
        self.share = share
        self.register_buffer("means", F.normalize(self.student.weight.clone()))
        self.begin(())

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Step:
        logits, g = self.predicted(x)
        self.require_finite(logits.sum())
        chosen = (torch.rand(len(x), generator=self.generator) < self.share).to(x.device)
        means, counts = class_means(g[chosen], logits[chosen].argmax(1), len(self.means))
        moved = F.normalize(self.means.lerp(means, self.rate))
        self.means = torch.where((counts > 0).unsqueeze(1), moved, self.means)
        return Step(logits, log={"classes": float((counts > 0).sum())})

    def answer(self, x: Tensor) -> Tensor:
        return self.predicted(x)[0]

    def predicted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, g = self.student.with_features(x)
        g = F.normalize(g.detach())
        return logits.detach() + 2 * g @ self.means.mT, g


def batches(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.rand(8, 3, 16, 16, generator=generator) for _ in range(count)]


@pytest.mark.slow
def test_it_keeps_the_whole_contract() -> None:
    check_adapter(ClassMeans)


def test_it_takes_a_seed_and_resets_and_nothing_for_an_optimizer() -> None:
    taken = set(ClassMeans.arguments())
    assert {"rate", "share", "seed", "reset_every", "window", "precision", "invalid"} == taken
    assert set(AnswerOptions.__annotations__) < set(StateOptions.__annotations__) < set(SharedOptions.__annotations__)


def test_reset_every_returns_to_the_initial_means() -> None:
    x = batches(3)
    adapter, fresh = ClassMeans(bn_cnn(), reset_every=2), ClassMeans(bn_cnn())
    initial = adapter.means.clone()
    adapter.step(x[0])
    adapter.step(x[1])
    assert not torch.equal(adapter.means, initial)
    assert torch.equal(adapter.step(x[2]).logits, fresh.predict(x[2]))
    assert adapter.restores == 1


def test_the_seed_chooses_the_samples_and_a_reset_draws_the_same_again() -> None:
    x = batches(3)

    def means(adapter: ClassMeans) -> Tensor:
        for batch in x:
            adapter.step(batch)
        return adapter.means.clone()

    one, other = ClassMeans(bn_cnn(), seed=1), ClassMeans(bn_cnn(), seed=2)
    first = means(one)
    assert not torch.equal(first, means(other))
    one.reset()
    assert torch.equal(means(one), first)


class Unannotated(Adapter):
    """A method as users often write it."""

    learns = False
    passes = (1, 0)

    def __init__(self, model, **options) -> None:  # type: ignore[no-untyped-def]
        super().__init__(model, **options)
        self.begin(())

    def adapt(self, x: Tensor) -> Step:
        return Step(self.student(x).detach())


def test_options_that_are_not_annotated_are_those_of_a_method_that_only_predicts() -> None:
    assert set(Unannotated.arguments()) == set(AnswerOptions.__annotations__)
