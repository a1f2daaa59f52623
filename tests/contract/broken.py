"""Adapters that break one point of the contract each, and one that keeps them all."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ctta._adapter.answer import Answer
from ctta.adapter import Adapter, Step
from ctta.errors import NothingToTrain
from ctta.functional import entropy
from ctta.norms import batch_norms, norm_affine, use_batch_statistics


class Sound(Adapter):
    """A small method that keeps the contract; ``weight`` scales its loss."""

    passes = (1, 1)

    def __init__(self, model: nn.Module, *, weight: float = 1.0, **shared: Any) -> None:
        super().__init__(model, **shared)
        self.weight = weight
        use_batch_statistics(self.student)
        self.prepare()
        self.begin(norm_affine(self.student))

    def prepare(self) -> None:
        """Hook in which the broken adapters set up what they break."""

    def adapt(self, x: Tensor) -> Step:
        logits = self.student(x)
        loss = entropy(logits).mean()
        self.descend(self.weight * loss + 0.1 * self.weight**2 * loss**2)
        return Step(logits.detach(), loss.item())


class AttachedLogits(Sound):
    def adapt(self, x: Tensor) -> Step:
        logits = self.student(x)
        self.descend(entropy(logits).mean())
        return Step(logits)


class WritesToImages(Sound):
    def step(self, x: Tensor) -> Step:
        step = super().step(x)
        x.mul_(0.5)
        return step


class TrainsMore(Sound):
    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        with torch.no_grad():
            self.student.head.bias.add_(1e-3)
        return step


class ChangesTheModel(Sound):
    def __init__(self, model: nn.Module, **shared: Any) -> None:
        super().__init__(model, **shared)
        next(model.parameters()).data.mul_(1.01)


class KeepsTheOptimizer(Sound):
    def reset(self) -> None:
        old = self._optimizer
        super().reset()
        self._optimizer = old


class CountsInSecret(Sound):
    """Its prediction depends on a number that is neither reset nor saved."""

    def prepare(self) -> None:
        self.secret = 0

    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        self.secret += 1
        return Step(step.logits + 0.01 * self.secret, step.loss)


class ForgetsInCheckpoints(CountsInSecret):
    def reset(self) -> None:
        super().reset()
        self.secret = 0


class DrawsFromTorch(Sound):
    def adapt(self, x: Tensor) -> Step:
        return super().adapt((x + 0.01 * torch.rand_like(x)).clamp(0, 1))


class DrawsFromNumpy(Sound):
    def prepare(self) -> None:
        np.random.rand()  # noqa: NPY002


class DrawsFromPython(Sound):
    def answer(self, x: Tensor) -> Tensor:
        return super().answer(x) + random.random()


class PredictCounts(Sound):
    def prepare(self) -> None:
        self.answered: list[int] = []

    def answer(self, x: Tensor) -> Tensor:
        self.answered.append(len(x))
        return super().answer(x) + 0.01 * len(self.answered)


class NeedsGrad(Sound):
    """Steps with the caller's grad mode."""

    def step(self, x: Tensor) -> Step:
        return self.adapt(x)


class AllowsInferenceMode(Sound):
    learns = False

    def step(self, x: Tensor) -> Step:
        return Step(self.predict(x))


class StumblesOverOne(Sound):
    uses_batch_statistics = False

    def adapt(self, x: Tensor) -> Step:
        if len(x) == 1:
            raise ValueError("expected more than 1 value per channel")
        return super().adapt(x)


class NeedsBatchNorm(Sound):
    def prepare(self) -> None:
        batch_norms(self.student)[0]


class LearnsFromNan(Sound):
    def adapt(self, x: Tensor) -> Step:
        logits = self.student(x)
        loss = entropy(logits).mean()
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return Step(logits.detach(), 0.0)


class LeavesATraceOfNan(Sound):
    """Moves its own state before it knows whether the step can be learnt."""

    def prepare(self) -> None:
        self.register_buffer("seen", torch.zeros(()))

    def adapt(self, x: Tensor) -> Step:
        self.seen += 1
        return super().adapt(x)


class KeepsTensors(Sound):
    def prepare(self) -> None:
        self.history: list[Any] = []

    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        self.history.append(self.kept(step))
        return step

    def kept(self, step: Step) -> Any:
        return step.logits


class KeepsNumbers(KeepsTensors):
    def kept(self, step: Step) -> Any:
        return step.loss


class KeepsGraphs(Sound):
    def prepare(self) -> None:
        self.total: Tensor | float = 0.0

    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        self.total = self.total + self.trained[0].sum()
        return step


class GrowsABuffer(Sound):
    def prepare(self) -> None:
        self.register_buffer("seen", torch.zeros(1))

    def adapt(self, x: Tensor) -> Step:
        self.seen = torch.cat([self.seen, torch.zeros(1)])
        return super().adapt(x)


class ListensToTrain(Sound):
    def train(self, mode: bool = True) -> ListensToTrain:
        return nn.Module.train(self, mode)


class IgnoresAnArgument(Sound):
    def __init__(self, model: nn.Module, *, strength: float = 1.0, **shared: Any) -> None:
        self.strength = strength
        super().__init__(model, **shared)
        self.strength = strength


class SingleOnly(Sound):
    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        return Step(step.logits.float(), step.loss)


class ReadsAFile(Sound):
    def prepare(self) -> None:
        Path(__file__).read_text()


class AsksTheNetwork(Sound):
    def prepare(self) -> None:
        with contextlib.suppress(OSError):
            socket.create_connection(("localhost", 9))


class Collapses(Sound):
    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        return Step(-step.logits if self.steps > 5 else step.logits, step.loss)


class RefusesFamilies(Sound):
    """Raises a named error if it cannot work, which is allowed."""

    def prepare(self) -> None:
        if not batch_norms(self.student):
            raise NothingToTrain("Sound needs batch norm; there is none.")


class PredictsAfterLearning(Sound):
    def adapt(self, x: Tensor) -> Step:
        step = super().adapt(x)
        return Step(self.student(x).detach(), step.loss)


class AsksTwice(Sound):
    def ask(self, x: Tensor) -> Answer:
        super().ask(x).learn()
        return super().ask(x)


class RemembersWhatWasForgotten(Sound):
    def prepare(self) -> None:
        self.asked: list[int] = []

    def adapt(self, x: Tensor) -> Step:
        self.asked.append(len(x))
        step = super().adapt(x)
        return Step(step.logits + 0.01 * len(self.asked), step.loss)


class HasASentinel(Sound):
    """Keeps the contract: the lowest loss so far begins at infinity."""

    def prepare(self) -> None:
        self.register_buffer("lowest", torch.tensor(float("inf")))


class RegistersLate(Sound):
    def __init__(self, model: nn.Module, **shared: Any) -> None:
        super().__init__(model, **shared)
        self.register_buffer("late", torch.zeros(()))


class NeverDescends(Sound):
    def adapt(self, x: Tensor) -> Step:
        return Step(self.student(x).detach())


class SeedsItself(Sound):
    """Has a generator of its own, which neither reset nor the seed reach."""

    own = torch.Generator().manual_seed(0)

    def adapt(self, x: Tensor) -> Step:
        return super().adapt((x + 0.01 * torch.rand(x.shape, generator=self.own)).clamp(0, 1))
