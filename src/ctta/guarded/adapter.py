"""Guarded: an adapter with a guard, which is an adapter like any other."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any

from torch import Tensor, nn
from typing_extensions import Self

from ctta._adapter.answer import Answer
from ctta._adapter.checkpoint import read, rebuild, settings_of
from ctta._adapter.state import OptionalState
from ctta._checks.arguments import Between
from ctta.adapter import Adapter, Step
from ctta.errors import AnswerFinished, CheckpointError, MethodMismatch, ParameterError
from ctta.freeze import Frozen, LoadedStatistics
from ctta.guard import DEFAULT_TEXT, Signals, Verdict, Watch, parse_rules
from ctta.guarded.answer import GuardedAnswer
from ctta.guarded.confidence import Confidence, shifted
from ctta.guarded.facade import Facade
from ctta.guarded.good_states import GoodStates
from ctta.guarded.pool import Pool
from ctta.guarded.reference import Reference

_INNER = "inner."
_Count = Annotated[int, Between(1, math.inf)]


class Guarded(Facade):
    """Guards an adapter, and is an adapter like any other.

    While no rule fires, the guarded adapter predicts and learns as it would on its own. When a rule fires, it stops
    learning for a while and, depending on the rule, returns to its last good state and lets the unadapted network
    predict (see `ctta.guard.Rule`). ``Step.log`` then has "alarm": 1, and always "guard": 0 for ok, 1 for cooldown, 2
    for probation.

    Args:
        adapter: The adapter to guard; its current state counts as good.
        rules: The rules, separated by semicolons; "" for none.
        every: Number of batches from one comparison with the unadapted network to the next; the first 8 batches are
            all compared.
        cooldown: Batches without learning after an alarm.
        keep_every: Number of learnt batches after which the state is kept; it counts as good after as many more without
            an alarm.
        patience: How much excess over a rule's limit, summed over images, raises an alarm.
        reference: The unadapted network, if several adapters share one.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> adapter = ctta.Guarded(ctta.Tent(bn_cnn()), rules="drift > usual + 1: fallback")
        >>> adapter(torch.rand(4, 3, 16, 16)).shape
        torch.Size([4, 10])
    """

    signals: Signals | None
    verdict: Verdict

    def __init__(
        self,
        adapter: Adapter,
        *,
        rules: str = DEFAULT_TEXT,
        every: _Count = 2,
        cooldown: _Count = 20,
        keep_every: _Count = 25,
        patience: Annotated[float, Between(0, math.inf)] = 150.0,
        reference: Reference | None = None,
    ) -> None:
        if not isinstance(adapter, Adapter) or isinstance(adapter, Guarded):
            raise ParameterError(f"Guarded takes an adapter, such as ctta.Tent(model). Got {type(adapter).__name__}.")
        OptionalState.__init__(self)
        self.show(adapter)
        self.rules = rules
        self.every = every
        self.cooldown = cooldown
        self.keep_every = keep_every
        self.patience = patience
        self.reference = reference or Reference.of(adapter)
        self._states = GoodStates(adapter, keep_every)
        self._new_guard()

    def ask(self, x: Tensor) -> Answer:
        """Predict for a batch now and learn from it later."""
        self._refuse_impossible()
        return GuardedAnswer(self, x)

    def step(self, x: Tensor) -> Step:
        """Predict for a batch, then learn from it if the guard allows it."""
        answer = None
        try:
            answer = self.ask(x)
            return answer.learn()
        except BaseException:
            # A traceback would keep the answer alive, and with it the lock.
            if answer is not None:
                with suppress(AnswerFinished):
                    answer.forget()
            raise

    def predict(self, x: Tensor, *, allow_small: bool = False) -> Tensor:
        """Predict for a batch without changing anything; in a fallback, with the unadapted network."""
        if not self.watch.falls_back():
            return self.inner.predict(x, allow_small=allow_small)
        self._refuse_tracing()
        with self._lock:
            admitted, _ = self.inner._admit(x)
            if not allow_small and self.inner._window is None:
                self.inner._refuse_too_small(admitted)
            return self.refer(admitted, pushed=False, draws=self.inner.generator.get_state())

    def see(self, x: Tensor) -> None:
        """Add images to the window, if there is one, without learning from them.

        Args:
            x: Images (N, C, H, W) in [0, 1].
        """
        window = self.inner._window
        if window is None:
            return
        with self._lock:
            admitted, broken = self.inner._admit(x)
            if broken is None:
                window.images = window.seen_with(admitted).clone()

    def reset(self) -> None:
        """Return adapter and guard to their initial state, bit for bit."""
        self.inner.reset()
        self._begin()

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Replace the state of the guarded adapter; the guard restarts and takes the new state as good.

        Args:
            state: The ``state_dict`` of an adapter of the same method and source.
        """
        self.inner.load_state_dict(state)
        self._begin()

    def judge(self, signals: Signals, learnt: bool) -> Verdict:
        """Let the guard decide after a batch, and carry out its decision.

        Args:
            signals: The signals of the batch.
            learnt: Whether the adapter learnt from it.
        """
        self.signals, self.verdict = signals, self.watch.observe(signals)
        if self.verdict.restore is not None:
            self._states.restore(self.verdict.restore)
        elif learnt and self.watch.rules and self.watch.calm():
            self._states.learnt()
        return self.verdict

    def refer(self, x: Tensor, *, pushed: bool, draws: Tensor, moved: bool = False) -> Tensor:
        """Let the unadapted network predict for a batch, with the images of the window if there is one.

        Args:
            x: Images (N, C, H, W), as the adapter admits them.
            pushed: Whether the window holds them already.
            draws: The state of the adapter's generator before it predicted for them.
            moved: Whether to shift all images a little.
        """
        window, held = self.inner._window, x
        if window is not None:
            held = window.images if pushed and window.images is not None else window.seen_with(x)
        return self.reference.predict(shifted(held) if moved else held, len(x), self.inner.recent_classes, draws)

    def freeze(self) -> Frozen:
        """Return a plain module that predicts as the guarded adapter does now; in a fallback, the unadapted network."""
        return self._predicting().freeze()

    def load_into(
        self,
        net: nn.Module,
        *,
        network: str | None = None,
        statistics: LoadedStatistics | Tensor | Iterable[Tensor] = "adapter",
    ) -> None:
        """Copy the weights that predict now into the user's own net, in place; in a fallback, the unadapted ones."""
        self._predicting().load_into(net, network=network, statistics=statistics)

    def footprint(self) -> int:
        """Return the bytes of everything held between batches, including the good states."""
        return self.inner.footprint() + self._states.nbytes()

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return a snapshot of the adapter and its guard, with the good states it may return to."""
        inner = {f"{_INNER}{name}": value for name, value in self.inner.state_dict().items()}
        return inner | {"_extra_state": self.get_extra_state()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a snapshot of a guarded adapter of the same method; one that does not fit changes nothing."""
        extra = state_dict.get("_extra_state")
        if not isinstance(extra, Mapping) or "watch" not in extra:
            raise CheckpointError("The state is not of a guarded adapter. Load it into the adapter without its guard.")
        watch, pool, states = self._new_watch(), Pool(), GoodStates(self.inner, self.keep_every)
        confidence = Confidence()
        try:
            watch.load(extra["watch"])
            pool.load(extra["pool"])
            if "confidence" in extra:  # older snapshots do not have it
                confidence.load(extra["confidence"])
            states.load(extra["states"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"The state of the guard is damaged ({type(error).__name__}: {error}).") from error
        result = self.inner.load_state_dict(_inner_state(state_dict), strict, assign)
        self.watch, self.pool, self.confidence, self._states = watch, pool, confidence, states
        return result

    def get_extra_state(self) -> dict[str, Any]:
        """Return the guard's memory, and the states that it may return to."""
        return {
            "watch": self.watch.state(),
            "pool": self.pool.state(),
            "confidence": self.confidence.state(),
            "states": self._states.state(),
            "inner": {"method": type(self.inner).__name__.lower(), "settings": settings_of(self.inner)},
            "optimizer": None,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Do nothing: load_state_dict does it all."""

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module, **overrides: Any) -> Self:
        """Rebuild a saved guarded adapter around the same source model; the stream continues bit for bit.

        Args:
            path: A file written by ``save``.
            model: The source model.
            overrides: Arguments of the guarded adapter that a file cannot hold.
        """
        header, state = read(path)
        if header["method"] != cls.__name__.lower():
            raise MethodMismatch(f"{path} holds the state of {header['method']}, which is not guarded.")
        own = state["_extra_state"]["inner"]
        inner = rebuild(own["method"], own["settings"], header["source"], model, overrides, path)
        inner.cast_like(_inner_state(state))
        guarded = cls(inner, **header["settings"])
        guarded.load_state_dict(state)
        return guarded

    @classmethod
    def arguments(cls) -> dict[str, Any]:
        """Return every argument of the guard with its default."""
        return {name: default for name, default in super().arguments().items() if name != "reference"}

    def __repr__(self) -> str:
        """Show the guarded adapter, and the guard's phase."""
        return f"Guarded({self.inner!r}, guard {self.watch.phase})"

    def _predicting(self) -> Adapter:
        """The adapter that predicts now."""
        if not self.watch.falls_back():
            return self.inner
        with self._lock:
            self.reference.adapter.recent_classes = self.inner.recent_classes
        return self.reference.adapter

    def _guard_savepoint(self) -> Callable[[], None]:
        """Remember the state of the guard and the window; the function that is returned puts it back."""
        window = self.inner._window
        held = None if window is None else window.state()
        watch, pool, states = self.watch.state(), self.pool.state(), self._states.state()
        confidence = self.confidence.state()
        signals, verdict = self.signals, self.verdict

        def put_back() -> None:
            if window is not None and held is not None:
                window.load(held)
            self.watch.load(watch)
            self.pool.load(pool)
            self.confidence.load(confidence)
            self._states.load(states)
            self.signals, self.verdict = signals, verdict

        return put_back

    def _begin(self) -> None:
        self._states.begin()
        self._new_guard()

    def _new_guard(self) -> None:
        self.watch = self._new_watch()
        self.pool = Pool()
        self.confidence = Confidence()
        self.signals = None
        self.verdict = Verdict()

    def _new_watch(self) -> Watch:
        return Watch(
            parse_rules(self.rules),
            every=self.every,
            cooldown=self.cooldown,
            patience=self.patience,
            unadapted=self._states.at_source,
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        nn.Module._apply(self, fn, recurse)  # type: ignore[no-untyped-call]
        self.reference.adapter._apply(fn)
        return self


def _inner_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a guarded adapter's state that is the adapter's own."""
    return {name.removeprefix(_INNER): value for name, value in state.items() if name.startswith(_INNER)}
