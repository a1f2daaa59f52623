"""Adapter: a classifier that predicts, then learns, batch after batch.

An adapter can be used by one thread at a time. A second call while one is running raises ConcurrentUse; the state is
not corrupted.
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ctta import errors
from ctta._adapter import checkpoint
from ctta._adapter.answer import Answer, finish
from ctta._adapter.layout import fastest_layout
from ctta._adapter.state import AdapterState
from ctta._checks.arguments import CheckedArguments, collected_options
from ctta._checks.images import check_images
from ctta.classifier import Classifier, Precision
from ctta.freeze import Frozen, Statistics, load_into
from ctta.functional import diversity
from ctta.norms import batch_norms, source_statistics_where_single
from ctta.options import AnswerOptions, Optimizer, SharedOptions, check_bounds
from ctta.recipes import NOTHING_SET

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


# What a method's adapt() returns: it yields the logits as soon as they are known, learns, and returns the Step.
Learning = Generator[Tensor, None, Step]


class Adapter(CheckedArguments, AdapterState):
    """Base class of every method: a classifier that adapts itself to each batch after predicting for it.

    It holds a copy of the source model (``student``) and everything that changes along the stream. The source model
    itself is never modified.

    To write a method, derive from this class. ``__init__`` creates the state of the method and ends with
    ``self.begin(parameters)``; ``adapt(x)`` is the algorithm. If the prediction is not that of the student alone, name
    the networks in ``answers_with`` and override ``combine``. `ctta.testing.check_adapter` tests a method.

    Args:
        model: The source model, which maps images in [0, 1] to logits, or a `Classifier` around it.
        optimizer: "adam", "sgd", or a function that takes the list of parameters and returns an optimizer.
        lr: Learning rate of "adam" and "sgd".
        momentum: Momentum of "sgd".
        nesterov: Use Nesterov momentum with "sgd".
        seed: Seed of the adapter's own random generator. The global generators are never used.
        window: Keep this many of the last images, so that batches of one image work. The window is forwarded together,
            the prediction is that of the newest images, and the method learns each time all images in it are new.
        precision: "fp32", or "bf16" to run the networks under autocast. Losses are computed in fp32 either way.
        reset_every: Return to the source every so many steps. None never does.
        invalid: What to do with NaN or Inf images: "raise" an error, or "answer": predict for the whole batch without
            learning from it. The invalid images get all-zero logits, so that every class is equally likely.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.get_method("tent")(bn_cnn(), window=8)
        >>> for x in torch.rand(3, 1, 3, 16, 16):  # three batches of one image
        ...     logits = model(x)
        >>> logits.shape
        torch.Size([1, 10])
    """

    learns: ClassVar[bool] = True
    uses_batch_statistics: bool = True
    trains: ClassVar[str] = "every parameter"
    # Whether the prediction for a batch is made before the method takes anything from the batch.
    predicts_first: ClassVar[bool] = True
    # Whether the prediction for an image depends on the rest of its batch although no batch norm takes part.
    predicts_batch_together: ClassVar[bool] = False
    # Forward passes of a batch through a network in one step, and how many of them are differentiated.
    passes: tuple[int, int]
    # The networks whose logits make the prediction, in the order in which combine takes them.
    answers_with: ClassVar[tuple[str, ...]] = ("student",)
    # The method's own defaults of shared options, if they differ from those of __init__ below.
    defaults: ClassVar[SharedOptions] = {}
    recipes: ClassVar[Mapping[str, Mapping[str, Any]]] = NOTHING_SET

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Optimizer = "adam",
        lr: float = 1e-3,
        momentum: float = 0.9,
        nesterov: bool = True,
        seed: int = 0,
        window: int | None = None,
        precision: Precision = "fp32",
        reset_every: int | None = None,
        invalid: Literal["raise", "answer"] = "raise",
    ) -> None:
        super().__init__(optimizer=optimizer, lr=lr, momentum=momentum, nesterov=nesterov, seed=seed, window=window)
        self.precision = precision
        self.reset_every = reset_every
        self.invalid = invalid
        check_bounds(self, lr=(0, 1e3), momentum=(0, 1), window=(2, math.inf), reset_every=(1, math.inf))

        source = model if isinstance(model, Classifier) else Classifier(model)
        if any(p.dtype == torch.float16 for p in source.parameters()):
            raise errors.ModelError(
                f"{type(source.model).__name__} has float16 weights, in which optimizer steps underflow and overflow. "
                'Use model.float(), with precision="bf16" for speed.'
            )
        self.source_digest = source.digest()
        # Eval mode: no dropout and no stochastic depth.
        self.student = copy.deepcopy(source).eval()
        self._layout = fastest_layout(self.student)
        self.student.to(memory_format=self._layout)  # type: ignore[call-overload]
        self.student.precision = precision

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
        return self.combine(*(getattr(self, name)(x) for name in self.answers_with))

    # A method calls these.

    def begin(self, parameters: Iterable[nn.Parameter]) -> None:
        """Finish the construction: set the parameters to train, build their optimizer, remember the initial state.

        Args:
            parameters: The parameters to train. All others are frozen.

        Raises:
            NothingToTrain: If the method learns and there are none.
        """
        trained = list(dict.fromkeys(parameters))
        if self.learns:
            self.require_trainable(trained)
        learning = {id(p) for p in trained}
        frozen = {f"student.{n}" for n, p in self.student.named_parameters() if id(p) not in learning}
        self._start(trained, frozen)

    def require_trainable(self, found: Sequence[object]) -> None:
        """Raise NothingToTrain if the method found nothing to adapt in the model.

        Args:
            found: The parameters or layers that the method found.
        """
        if not found:
            raise errors.NothingToTrain(
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
            raise errors.ModelError(
                f"{type(self).__name__} learns by gradients; none reaches the parameters of "
                f"{type(self.student.model).__name__}. Remove no_grad, inference_mode and detach from its forward."
            )

    def attempt(self, step: Callable[[], Result]) -> Result | None:
        """Run a part of a step that may not be finite. If it is not, count and log it, and leave no gradient behind.

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

    def descend(self, loss: Tensor) -> None:
        """Take one optimizer step; if the loss or a gradient is not finite, end the step and change nothing.

        Args:
            loss: The loss, a scalar.
        """
        self.require_gradient(loss.requires_grad)
        self.require_finite(loss).backward()  # type: ignore[no-untyped-call]
        self.apply_gradients()

    def apply_gradients(self) -> None:
        """Step the optimizer with the gradients that are there, if all of them are finite."""
        assert self._optimizer is not None, "a method's __init__ must end with self.begin(parameters)"
        self.require_gradient(any(p.grad is not None for p in self.student.parameters()))
        self.require_finite(nn.utils.get_total_norm([p.grad for p in self.trained if p.grad is not None]))
        self.keep_for_undo()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    # Users call these.

    def forward(self, x: Tensor) -> Tensor:
        """Predict for a batch, then learn from it.

        Args:
            x: Images (N, C, H, W) in [0, 1].

        Returns:
            The logits (N, C), made before learning from the batch.
        """
        return self.step(x).logits

    def step(self, x: Tensor) -> Step:
        """Predict for a batch, then learn from it.

        If an exception interrupts the step at any moment, Ctrl-C included, the state is as it was before.

        Args:
            x: Images (N, C, H, W) in [0, 1].

        Returns:
            The logits, made before learning from the batch, with the loss and the numbers that the method logs.

        Raises:
            InputError: If the images are not what an adapter takes.
            ConcurrentUse: If another call is running.
        """
        self._refuse_impossible()
        with self._lock, torch.enable_grad():
            x, broken = self._admit(x)
            return self._all_or_nothing(lambda: finish(self._step(x, broken)))

    def ask(self, x: Tensor) -> Answer:
        """Predict for a batch now and learn from it later: ``ask(x).learn()`` does the same as ``step(x)``.

        The answer locks the adapter: until its ``learn`` or ``forget`` is called, any other call raises ConcurrentUse.

        Args:
            x: Images (N, C, H, W) in [0, 1].

        Example:
            >>> import torch, ctta
            >>> from ctta.testing.models import bn_cnn
            >>> adapter = ctta.Tent(bn_cnn())
            >>> answer = adapter.ask(torch.rand(4, 3, 16, 16))
            >>> answer.logits.shape  # send these to the client, then learn
            torch.Size([4, 10])
            >>> answer.learn().log["diversity"] >= 1
            True
        """
        self._refuse_impossible()
        return Answer(self, lambda: self._step(*self._admit(x)))

    @torch.no_grad()
    def predict(self, x: Tensor, *, allow_small: bool = False) -> Tensor:
        """Predict for a batch without learning from it or changing anything.

        Args:
            x: Images (N, C, H, W) in [0, 1].
            allow_small: Accept batches below ``smallest_batch`` instead of raising BatchTooSmall. Batch norms then use
                the few images there are, or the source statistics if a channel has a single value.
        """
        self._refuse_tracing()
        with self._lock:
            x, broken = self._admit(x)
            return self._without_trace(lambda: self._predict(x, broken, allow_small))

    def freeze(self) -> Frozen:
        """Return a plain module that predicts as this adapter does now, for export or deployment without learning.

        It is a copy: later steps of the adapter do not change it. CoTTA's average over random views and LAME's
        correction by the rest of the batch are not part of it.

        Example:
            >>> import torch, ctta
            >>> from ctta.testing.models import bn_cnn
            >>> adapter = ctta.DMSE(bn_cnn())
            >>> x = torch.rand(4, 3, 16, 16)
            >>> torch.allclose(adapter.freeze()(x), adapter.predict(x), atol=1e-5)
            True
        """
        with self._lock:
            return Frozen([getattr(self, name) for name in self.answers_with], self.combine)

    def load_into(
        self,
        net: nn.Module,
        *,
        network: str | None = None,
        statistics: Statistics | Tensor | Iterable[Tensor] = "adapter",
    ) -> None:
        """Copy the adapted weights into the user's own net, in place.

        Args:
            net: The net that this adapter was built around, or one of the same architecture.
            network: "student" or "teacher". The default is the network that predicts.
            statistics: What its batch norms normalise with in eval mode: "adapter" (the same as this adapter),
                "source", "batch", or images from which to estimate new running statistics.
        """
        name = network or self.answers_with[0]
        adapted = getattr(self, name, None)
        if not isinstance(adapted, Classifier):
            raise errors.ParameterError(f"{type(self).__name__} has no network {name!r}.")
        with self._lock:
            load_into(adapted, net, statistics=statistics)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to one safetensors file, atomically.

        Args:
            path: The file to write.
        """
        checkpoint.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module, **overrides: Any) -> Self:
        """Rebuild a saved adapter around the same source model; it continues the stream bit for bit.

        Args:
            path: A file written by ``save``.
            model: The source model that the saved adapter was built around.
            overrides: Constructor arguments that replace the saved ones, or that a file cannot hold, such as functions.
        """
        return checkpoint.load(path, model, cls, overrides)

    @classmethod
    def recipe(cls, stream: str) -> dict[str, Any]:
        """Return the constructor arguments published for a benchmark.

        Args:
            stream: The benchmark, such as "cifar10-c".

        Example:
            >>> import ctta
            >>> ctta.Tent.recipe("imagenet-c")
            {'optimizer': 'sgd', 'lr': 0.00025}
        """
        if stream not in cls.recipes:
            raise errors.UnknownStream(stream, cls.recipes)
        return dict(cls.recipes[stream])

    @classmethod
    def arguments(cls) -> dict[str, Any]:
        """Return every constructor argument with its default."""
        own = inspect.signature(cls.__init__).parameters
        base = inspect.signature(Adapter.__init__).parameters
        found = {name: p.default for name, p in own.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in own.values()):
            # If the options are not annotated, assume the usual ones.
            kind = collected_options(cls.__init__) or (SharedOptions if cls.learns else AnswerOptions)
            found |= {name: base[name].default for name in kind.__annotations__ if name not in found}
            found |= cls.defaults
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """Every constructor argument with its value."""
        return {name: getattr(self, name) for name in self.arguments()}

    @property
    def smallest_batch(self) -> int:
        """The fewest images that a step takes with this model."""
        return 2 if self.uses_batch_statistics and batch_norms(self.student) else 1

    def __repr__(self) -> str:
        """Summarise the adapter in one line: method, settings that differ from the defaults, and what it adapts."""
        defaults = self.arguments()
        given = [f"{k}={_short(v)}" for k, v in self.settings.items() if not _same(v, defaults[k])]
        parameters = list(self.student.parameters())
        trained, total = sum(p.numel() for p in parameters if p.requires_grad), sum(p.numel() for p in parameters)
        device = next((p.device for p in self.student.parameters()), torch.device("cpu"))
        facts = [
            f"{type(self.student.model).__name__} with head {self.student.head_name!r}",
            f"{trained:,} of {total:,} parameters learn" if self.learns else "nothing learns",
            f"{self.steps} steps",
            str(device),
        ]
        return f"{type(self).__name__}({', '.join(given)}): {', '.join(facts)}"

    def train(self, mode: bool = True) -> Self:
        """Record the mode and change nothing else: a stream has no training phase.

        Args:
            mode: The mode.
        """
        self.training = mode
        return self

    # One batch.

    def _count_skipped(self) -> None:
        self.skipped += 1
        logger.warning("step %d of %s was not finite and was skipped", self.steps, type(self).__name__)

    def _drop_gradients(self) -> None:
        if self._optimizer is not None:
            self._optimizer.zero_grad(set_to_none=True)

    def _refuse_impossible(self) -> None:
        self._refuse_tracing()
        if torch.is_inference_mode_enabled():
            raise errors.InferenceMode(
                f"{type(self).__name__}.step learns and needs gradients; it was called inside torch.inference_mode. "
                "Use torch.no_grad, or predict() to predict without learning."
            )

    def _refuse_tracing(self) -> None:
        tracing = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
        if tracing or torch.compiler.is_exporting():
            raise errors.NotTraceable(
                f"{type(self).__name__} changes with every batch and cannot be traced, scripted or exported. "
                "Export adapter.freeze(), a plain module that predicts as the adapter does now."
            )

    def _admit(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Check a batch and convert it for the student; also return which images are invalid, None if none is."""
        broken = check_images(x)
        if broken is not None and self.invalid == "raise":
            raise errors.NonFiniteImages(
                f"Images must be finite; {int(broken.sum())} of {len(x)} contain NaN or Inf. Repair them, or use "
                'invalid="answer" to predict for such a batch without learning from it.'
            )
        like = next(self.student.parameters(), x)
        x = x.detach().to(like.device, like.dtype, memory_format=self._layout)
        return (x.clone() if x.is_inference() else x), broken

    def _step(self, x: Tensor, broken: Tensor | None) -> Learning:
        if broken is not None:
            logits = self._without_trace(lambda: self._answer_around(x, broken))
            yield logits
            return Step(logits, log={"invalid": float(broken.sum())})
        if self._window is None:
            return (yield from self._learn(x))
        held, all_new = self._window.push(x)
        if not all_new:
            logits = self._answer_newest(held, len(x))
            yield logits
            return Step(logits)
        learning = self._learn(held)
        yield next(learning)[-len(x) :]
        step = finish(learning)
        return Step(step.logits[-len(x) :], step.loss, step.log)

    def _predict(self, x: Tensor, broken: Tensor | None, allow_small: bool) -> Tensor:
        if broken is not None:
            return self._answer_around(x, broken)
        if self._window is None:
            return self._answer_newest(x, len(x)) if allow_small else self._answer(x)
        return self._answer_newest(self._window.seen_with(x), len(x))

    def _learn(self, x: Tensor) -> Learning:
        self._refuse_too_small(x)
        if self.reset_every is not None and self.steps and self.steps % self.reset_every == 0:
            self.restore()
        logits, step = None, None
        try:
            work = self.adapt(x)
            if isinstance(work, Step):
                step = work
            else:
                first = next(work)
                self.require_finite(first.sum())
                logits = first
                yield logits
                step = finish(work)
        except _NonFiniteStep:
            self._count_skipped()
        finally:
            self._drop_gradients()
        if logits is None:
            logits = self._answer(x) if step is None else step.logits
            yield logits
        step = step or Step(logits, log={"skipped": 1.0})
        self.steps += 1
        return Step(step.logits, step.loss, {**step.log, "diversity": diversity(step.logits).item()})

    @torch.no_grad()
    def _answer(self, x: Tensor) -> Tensor:
        self._refuse_too_small(x)
        return self.answer(x)

    def _refuse_too_small(self, x: Tensor) -> None:
        if len(x) < self.smallest_batch:
            raise errors.BatchTooSmall(
                f"{type(self).__name__} normalises by batch statistics and needs at least {self.smallest_batch} "
                f"images; got {len(x)}. Use window=16 or a model without batch norm."
            )

    def _answer_around(self, x: Tensor, broken: Tensor) -> Tensor:
        """Predict for the valid images; an invalid one gets all-zero logits, so that every class is equally likely."""
        # If none is valid, black images tell how many classes there are.
        sound = x.new_zeros(x.shape) if broken.all() else x[~broken]
        answers = self._answer_newest(sound, len(sound))
        logits = answers.new_zeros(len(x), answers.shape[1])
        if not broken.all():
            logits[~broken] = answers
        return logits

    @torch.no_grad()
    def _answer_newest(self, held: Tensor, newest: int) -> Tensor:
        """Predict for the last images of a window; batch norms take their statistics from the whole window."""
        if self.smallest_batch == 1 and not self.predicts_batch_together:
            return self.answer(held[-newest:])
        with source_statistics_where_single(self):
            return self.answer(held)[-newest:]


def _same(value: object, default: object) -> bool:
    return value is default or (isinstance(value, (bool, int, float, str)) and value == default)


def _short(value: object) -> str:
    plain = isinstance(value, (bool, int, float, str, type(None)))
    return repr(value) if plain else getattr(value, "__qualname__", type(value).__qualname__)


class _NonFiniteStep(Exception):
    """Ends adapt() if a loss or gradient is not finite."""
