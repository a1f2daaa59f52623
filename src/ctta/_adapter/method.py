"""What a method overrides and calls: the algorithm, its parameters, and steps that must be finite."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from ctta._adapter.state import AdapterState
from ctta.batch_norm import statistics_of
from ctta.classifier import Classifier
from ctta.errors import MethodError, ModelError, NothingToTrain, ParameterError
from ctta.norms import batch_norms
from ctta.statistics import Batch, Source

logger = logging.getLogger("ctta")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Step:
    """The result of one batch.

    Args:
        logits: The logits (N, C), made before learning from the batch.
        loss: The loss, or None if there was no learning step.
        log: Further numbers, such as the entropy or how many samples were kept.
    """

    logits: Tensor
    loss: float | None = None
    log: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class FromSource:
    """The arguments that a method takes from source data.

    Args:
        names: The arguments.
        make: Makes their values, in this order, from the source model and batches of source images and labels.
    """

    names: tuple[str, ...]
    make: Callable[[nn.Module, Iterable[Any]], Tensor | tuple[Tensor, ...]]

    def arguments(self, model: nn.Module, loader: Iterable[Any]) -> dict[str, Tensor]:
        """Make the arguments.

        Args:
            model: The source model.
            loader: Batches of source images and labels.
        """
        made = self.make(model, loader)
        return dict(zip(self.names, (made,) if isinstance(made, Tensor) else made, strict=True))


# What a method's adapt() returns: it yields the logits as soon as they are known, learns, and returns the Step.
Learning = Generator[Tensor, None, Step]


class _NonFiniteStep(Exception):
    """Ends adapt() if a loss or gradient is not finite."""


class MethodPart(AdapterState):
    """The part of `Adapter` that a method overrides and calls."""

    learns: ClassVar[bool] = True
    uses_batch_statistics: ClassVar[bool] = True
    trains: ClassVar[str] = "every parameter"
    # Whether the prediction for a batch is made before the method uses anything from the batch.
    predicts_first: ClassVar[bool] = True
    # Whether the prediction for an image depends on the rest of its batch even without batch norm.
    predicts_batch_together: ClassVar[bool] = False
    # What the logits are, if their softmax is not the confidence of the prediction: it completes "the logits are ...".
    logits_are: ClassVar[str | None] = None
    # The arguments that come from source data; None if the method takes none.
    from_source: ClassVar[FromSource | None] = None
    # Forward passes of a batch through a network in one step, and how many of them are differentiated.
    passes: tuple[int, int]
    # The networks whose logits make the prediction, in the order in which combine takes them.
    answers_with: ClassVar[tuple[str, ...]] = ("student",)
    # Those of them that look at the mirrored batch.
    mirrored: tuple[str, ...] = ()

    student: Classifier

    # A method overrides these.

    def adapt(self, x: Tensor) -> Step | Learning:
        """Predict for a batch and learn from it: the algorithm of the paper.

        Write it as a generator that yields the logits as soon as they are known and returns the Step at the end. A
        method may also return a Step directly; `ask` then has to learn before it can return the prediction.

        Args:
            x: Images (N, C, H, W) in [0, 1], on the device and in the dtype of the student.
        """
        raise NotImplementedError

    @staticmethod
    def combine(*logits: Tensor) -> Tensor:
        """Turn the logits of the networks in ``answers_with`` into the prediction.

        Args:
            logits: The logits (N, C) of each network, in the order of ``answers_with``.
        """
        return logits[0]

    def answer(self, x: Tensor) -> Tensor:
        """Predict without learning: the combined logits of the networks in ``answers_with``.

        Args:
            x: Images (N, C, H, W) in [0, 1].
        """
        shown = {name: x.flip(-1) if name in self.mirrored else x for name in self.answers_with}
        return self.combine(*(getattr(self, name)(images) for name, images in shown.items()))

    def first_pass(self) -> AbstractContextManager[None]:
        """Return the context of the first forward pass of learning, in which a method may look at the network."""
        return nullcontext()

    # A method calls these.

    def begin(self, parameters: Iterable[nn.Parameter]) -> None:
        """Finish the construction: set the parameters to train, build their optimizer, remember the initial state.

        Args:
            parameters: The parameters to train. All others are frozen.

        Raises:
            NothingToTrain: If the method learns and there are none.
            MethodError: If one of them is not a parameter, or the method does not declare its passes.
        """
        trained = list(dict.fromkeys(parameters))
        self._refuse_undeclared()
        self._refuse_buffers(trained)
        if self.learns:
            self.require_trainable(trained)
        layers = [layer for layer in batch_norms(self.student) if not isinstance(statistics_of(layer), Batch | Source)]
        self._refuse_own_statistics(all(layer.running_mean is None for layer in layers))
        learning = {id(p) for p in trained}
        frozen = {f"student.{n}" for n, p in self.student.named_parameters() if id(p) not in learning}
        self._start(trained, frozen)

    def _refuse_undeclared(self) -> None:
        if not hasattr(self, "passes"):
            raise MethodError(
                f"{type(self).__name__} declares no passes. Add passes = (forward, backward) to the class: the forward "
                "passes of a batch through a network in one step, and how many of them are differentiated."
            )

    def _refuse_buffers(self, trained: Sequence[Tensor]) -> None:
        names = {id(buffer): name for name, buffer in self.named_buffers()}
        for tensor in trained:
            if not isinstance(tensor, nn.Parameter):
                what = f"the buffer {names[id(tensor)]!r}" if id(tensor) in names else "a tensor that is none"
                raise MethodError(
                    f"{type(self).__name__} can train parameters only; begin() was given {what}. Make it an "
                    "nn.Parameter, or leave it out."
                )

    def require_trainable(self, found: Sequence[object]) -> None:
        """Raise NothingToTrain if the method found nothing to adapt in the model.

        Args:
            found: The parameters or layers that the method found.
        """
        if not found:
            raise NothingToTrain(
                f"{type(self).__name__} adapts {self.trains}; {type(self.student.model).__name__} has none. "
                "Use a method that adapts every parameter, such as dmse."
            )

    def require_finite(self, value: Tensor) -> Tensor:
        """Return a finite scalar; any other value ends the step, which then changes nothing.

        Args:
            value: A scalar, such as a loss.
        """
        if not torch.isfinite(value):
            raise _NonFiniteStep
        return value

    def require_gradient(self, found: bool) -> None:
        """Raise ModelError if no gradient reaches the parameters of the model.

        Args:
            found: Whether there is a gradient.
        """
        if not found:
            raise ModelError(
                f"{type(self).__name__} learns by gradients; none reaches the parameters of "
                f"{type(self.student.model).__name__}. Remove no_grad, inference_mode and detach from its forward."
            )

    def attempt(self, step: Callable[[], Result]) -> Result | None:
        """Run a part of a step that may become non-finite. If it does, count and log it, and leave no gradient behind.

        Args:
            step: The part to run.

        Returns:
            What the part returned, or None if it was not finite.
        """
        try:
            return step()
        except _NonFiniteStep:
            self._count_skipped()
            return None
        finally:
            self._drop_gradients()

    def descend(self, loss: Tensor, *, rate: float = 1.0) -> None:
        """Take one optimizer step; if the loss or a gradient is not finite, end the step and change nothing.

        Args:
            loss: The loss, a scalar.
            rate: A factor on the learning rate in this step.
        """
        self.require_gradient(loss.requires_grad)
        self.require_finite(loss).backward()  # type: ignore[no-untyped-call]
        self.apply_gradients(rate=rate)

    def apply_gradients(self, *, rate: float = 1.0) -> None:
        """Step the optimizer with the current gradients, if all of them are finite.

        Args:
            rate: A factor on the learning rate in this step.
        """
        assert self._optimizer is not None, "a method's __init__ must end with self.begin(parameters)"
        self.require_gradient(any(p.grad is not None for p in self.student.parameters()))
        self.require_finite(nn.utils.get_total_norm([p.grad for p in self.trained if p.grad is not None]))
        self.keep_for_undo()
        with self.scaled_lr(rate):
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _refuse_own_statistics(self, free: bool) -> None:
        if not free:
            raise ParameterError(
                f"The 'statistics' parameter is for methods that normalise by batch statistics; {type(self).__name__} "
                "has statistics of its own. Leave it out."
            )

    def _count_skipped(self) -> None:
        self.skipped += 1
        logger.warning("step %d of %s was not finite and was skipped", self.steps, type(self).__name__)

    def _drop_gradients(self) -> None:
        if self._optimizer is not None:
            self._optimizer.zero_grad(set_to_none=True)
