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
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ctta import errors
from ctta._adapter import checkpoint
from ctta._adapter.answer import Answer, finish
from ctta._adapter.batches import BatchPart
from ctta._adapter.layout import fastest_layout
from ctta._adapter.method import FromSource, Learning, Step
from ctta._checks.arguments import CheckedArguments, collected_options
from ctta._checks.model import check_weights
from ctta._system.processor import WITHOUT_AMX, bf16_crashes
from ctta.classifier import Classifier, Precision
from ctta.freeze import Frozen, LoadedStatistics, load_into
from ctta.norms import batch_norms, choose_statistics
from ctta.options import AnswerOptions, ChosenStatistics, Optimizer, SharedOptions, check_bounds
from ctta.recipes import NOTHING_SET, BatchRate, OtherNorm
from ctta.statistics import Batch, as_statistics, short_form
from ctta.statistics.short_form import stored_form

__all__ = ["Adapter", "FromSource", "Learning", "Step"]

logger = logging.getLogger("ctta")


class Adapter(CheckedArguments, BatchPart):
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
        window: Keep this many of the last images, so that batches of one image work. The whole window is forwarded at
            once, the prediction is that of the newest images, and the method learns each time all images in it are new.
        precision: "fp32", or "bf16" to run the networks under autocast. Losses are computed in fp32 either way.
        reset_every: Number of steps after which the adapter returns to the source. None never resets.
        invalid: What to do with NaN or Inf images: "raise" an error, or "answer": predict for the whole batch without
            learning from it. The invalid images get all-zero logits, so that every class is equally likely.
        statistics: Which statistics batch norms use: "batch", as published; "source"; "auto", which chooses by the
            shift; or another blend, "prior:16", "share:0.4", "misfit" or "moving:0.05". With all but "batch", batches
            of one image work too. `ctta.statistics` explains them and provides them as classes. Models without batch
            norm ignore it, and methods that replace batch norms, such as `RoTTA`, do not take it.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.get_method("tent")(bn_cnn(), window=8)
        >>> for x in torch.rand(3, 1, 3, 16, 16):  # three batches of one image
        ...     logits = model(x)
        >>> logits.shape
        torch.Size([1, 10])
    """

    # The method's own defaults for shared options, if they differ from those of __init__ below.
    defaults: ClassVar[SharedOptions] = {}
    recipes: ClassVar[Mapping[str, Mapping[str, Any]]] = NOTHING_SET
    # Published settings for networks with layer or group norm instead of batch norm, if there are any.
    norm_recipes: ClassVar[Mapping[OtherNorm, BatchRate]] = {}

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
        statistics: ChosenStatistics = "batch",
    ) -> None:
        super().__init__(optimizer=optimizer, lr=lr, momentum=momentum, nesterov=nesterov, seed=seed, window=window)
        self.precision = precision
        self.reset_every = reset_every
        self.invalid = invalid
        chosen = as_statistics(statistics)
        self.statistics = short_form(chosen)
        self._keeps_statistics = chosen.keeps_state
        self._follows_predictions = chosen.follows_predictions
        self.register_buffer("recent_classes", None)
        check_bounds(self, lr=(0, 1e3), momentum=(0, 1), window=(2, math.inf), reset_every=(1, math.inf))

        source = model if isinstance(model, Classifier) else Classifier(model)
        check_weights(source.model)
        on_cpu = all(p.device.type == "cpu" for p in source.parameters())
        in_bf16 = precision == "bf16" or any(p.dtype == torch.bfloat16 for p in source.parameters())
        if in_bf16 and on_cpu and bf16_crashes():
            raise errors.ParameterError(
                "This processor announces AMX instructions and traps them: bfloat16 would end the process. Start "
                f'with {"=".join(WITHOUT_AMX)} in its environment, or use precision="fp32" and a float32 network.'
            )
        self.source_digest = source.digest()
        # Eval mode: no dropout and no stochastic depth.
        self.student = copy.deepcopy(source).eval()
        self._layout = fastest_layout(self.student)
        self._layout_proven = self._layout is not torch.channels_last
        self.student.to(memory_format=self._layout)  # type: ignore[call-overload]
        self.student.precision = precision
        if not isinstance(chosen, Batch):
            self._refuse_own_statistics(self.uses_batch_statistics)
            choose_statistics(self.student, chosen)
        usual = stored_form(self.defaults.get("statistics", "batch"))
        if self.statistics != usual and not batch_norms(self.student):
            logger.warning(
                "statistics=%s has no effect: %s has no batch norm", self.statistics, type(source.model).__name__
            )

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
            InputError: If the images are not valid input.
            ConcurrentUse: If another call is running.
        """
        self._refuse_impossible()
        with self._lock, torch.enable_grad():
            return self._in_safe_layout(lambda: self._all_or_nothing(lambda: finish(self._step(*self._admit(x)))))

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
        return self._in_safe_layout(lambda: Answer(self, lambda: self._step(*self._admit_for_later(x))))

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

        It is a copy: later steps of the adapter do not change it. The random views of CoTTA, PETAL and Trio and
        LAME's correction by the rest of the batch are not included.

        Example:
            >>> import torch, ctta
            >>> from ctta.testing.models import bn_cnn
            >>> adapter = ctta.DMSE(bn_cnn())
            >>> x = torch.rand(4, 3, 16, 16)
            >>> torch.allclose(adapter.freeze()(x), adapter.predict(x), atol=1e-5)
            True
        """
        with self._lock:
            self._tell_networks()
            networks = [getattr(self, name) for name in self.answers_with]
            return Frozen(networks, self.combine, [name in self.mirrored for name in self.answers_with])

    def load_into(
        self,
        net: nn.Module,
        *,
        network: str | None = None,
        statistics: LoadedStatistics | Tensor | Iterable[Tensor] = "adapter",
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
            self._tell_networks()
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
    def recipe(cls, stream: str, *, norm: OtherNorm | None = None, batch_size: int = 64) -> dict[str, Any]:
        """Return the constructor arguments published for a benchmark.

        Args:
            stream: The benchmark, such as "cifar10-c".
            norm: "layer" or "group" for the optimizer that was published for networks with layer norm (ViT, Swin,
                ConvNeXt) or group norm, in place of the benchmark's. Tent, EATA, SAR and DeYO have one.
            batch_size: Images per batch, on which the learning rate for these networks depends.

        Example:
            >>> import ctta
            >>> ctta.Tent.recipe("imagenet-c")
            {'optimizer': 'sgd', 'lr': 0.00025}
            >>> ctta.Tent.recipe("imagenet-c", norm="layer", batch_size=64)
            {'optimizer': 'sgd', 'lr': 0.001, 'momentum': 0.9, 'nesterov': False}
        """
        if stream not in cls.recipes:
            raise errors.UnknownStream(stream, cls.recipes)
        return dict(cls.recipes[stream]) | ({} if norm is None else cls.for_norm(norm, batch_size))

    @classmethod
    def for_norm(cls, norm: OtherNorm, batch_size: int) -> dict[str, Any]:
        """Return the arguments published for networks without batch norm; they are the same on every benchmark.

        Args:
            norm: "layer" or "group": the norm layers of the network.
            batch_size: Images per batch.

        Raises:
            ParameterError: If nothing was published for such networks; use the recipe of the benchmark then.
        """
        if norm not in get_args(OtherNorm):
            raise errors.ParameterError(f"The 'norm' of a recipe must be 'layer' or 'group'. Got {norm!r} instead.")
        if norm not in cls.norm_recipes:
            raise errors.ParameterError(
                f"No settings of {cls.__name__} were published for networks with {norm} norm: use its recipe for the "
                "benchmark, and choose the learning rate yourself."
            )
        return cls.norm_recipes[norm].arguments(batch_size)

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
            if not cls.uses_batch_statistics:
                found.pop("statistics", None)
            found |= cls.defaults
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """Every constructor argument with its value."""
        self._check_constructed()
        return {name: getattr(self, name) for name in self.arguments()}

    def _check_constructed(self) -> None:
        """Raise MethodError if an argument is not stored."""
        for name in self.arguments():
            if not hasattr(self, name):
                raise errors.MethodError(
                    f"{type(self).__name__} takes {name!r} and does not store it, so that it could not be saved. Write "
                    f"self.{name} = {name} in __init__."
                )

    def __repr__(self) -> str:
        """Summarise the adapter in one line: method, settings that differ from the defaults, and what it adapts."""
        defaults = self.arguments()
        if "statistics" in defaults:
            defaults["statistics"] = stored_form(defaults["statistics"])
        given = [f"{k}={_short(v)}" for k, v in self.settings.items() if not checkpoint.is_default(v, defaults[k])]
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
            mode: The mode to record.
        """
        self.training = mode
        return self


def _short(value: object) -> str:
    plain = isinstance(value, (bool, int, float, str, type(None)))
    return repr(value) if plain else getattr(value, "__qualname__", type(value).__qualname__)
