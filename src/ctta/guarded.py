"""An adapter with a guard: it stops learning, goes back, or lets the unadapted network answer when learning harms."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ctta._adapter.answer import Answer
from ctta._adapter.checkpoint import read, rebuild, settings_of
from ctta._adapter.state import OptionalState
from ctta._checks.arguments import Between
from ctta.adapter import Adapter, Step
from ctta.errors import AnswerFinished, CheckpointError, MethodMismatch, ParameterError
from ctta.freeze import Frozen
from ctta.functional import diversity, entropy
from ctta.guard import DEFAULT_TEXT, Compared, Restore, Signals, Verdict, Watch, parse_rules

_INNER = "inner."
_Count = Annotated[int, Between(1, math.inf)]
State = dict[str, Any]


#: Images that are compared before the guard looks: fewer say too little about diversity.
_POOL = 48
#: A reference that is sure of everything still errs now and then.
_LEAST_ENTROPY = 0.05


class Reference:
    """The unadapted network under the adapter's own choice of statistics.

    Args:
        adapter: An adapter in its initial state. It never learns.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        # The images of the guarded adapter's window are given with every call.
        adapter._window = None

    def predict(self, held: Tensor, newest: int) -> Tensor:
        """Predict for the last images of those that an adapter holds.

        Args:
            held: The images of the window, or the batch.
            newest: How many of them to predict for.
        """
        return self.adapter.predict(held, allow_small=True)[-newest:]


class Pool:
    """Answers of adapter and reference for the same images, until there are enough to compare."""

    def __init__(self) -> None:
        self.images = self.equal = 0
        self.entropy = 0.0
        self.own: Tensor | None = None
        self.referred: Tensor | None = None

    @torch.no_grad()
    def add(self, own: Tensor, referred: Tensor) -> Compared | None:
        """Add a batch, and return the comparison once there are enough images; the pool is then empty again.

        Args:
            own: The logits of the adapter.
            referred: The logits of the reference for the same images.
        """
        p, q = own.double().softmax(1).sum(0).cpu(), referred.double().softmax(1).sum(0).cpu()
        self.own, self.referred = (
            p if self.own is None else self.own + p,
            q if self.referred is None else self.referred + q,
        )
        self.images += len(own)
        self.equal += int((own.argmax(1) == referred.argmax(1)).sum())
        self.entropy += entropy(referred.double()).sum().item() / _scale(referred)
        if self.images < _POOL:
            return None
        agreement = self.equal / self.images
        drift = (1 - agreement) / max(self.entropy / self.images, _LEAST_ENTROPY)
        compared = Compared(self.images, agreement, drift, _spread(self.referred) - _spread(self.own))
        self.load(Pool().state())
        return compared

    def state(self) -> State:
        """Everything in it."""
        return dict(vars(self))

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave.

        Args:
            state: The content of another pool.
        """
        for name in vars(self):
            setattr(self, name, state[name])


class Guarded(Adapter):
    """Guards an adapter, and is an adapter like any other.

    While the guard is content, the guarded adapter answers and learns as it would alone. When a rule fires, it stops
    learning for a while, and depending on the rule returns to its last good state and lets the unadapted network answer
    (see `ctta.guard.Rule`). ``Step.log`` then has "alarm": 1, and always "guard": 0 for ok, 1 for cooldown, 2 for
    probation.

    Args:
        adapter: The adapter to guard; its present state counts as good.
        rules: The rules, separated by semicolons; "" for none.
        every: Compare with the unadapted network on every so many batches.
        cooldown: Batches without learning after an alarm.
        keep_every: Learnt batches after which the state is kept; it counts as good after as many more without an alarm.
        patience: How much excess over a rule's limit, summed over images, makes an alarm.
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
    _since_kept: int

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
        self.inner = adapter
        self.rules = rules
        self.every = every
        self.cooldown = cooldown
        self.keep_every = keep_every
        self.patience = patience
        self.reference = reference or Reference(_as_new(adapter))
        self._anew()
        self._good = self._candidate = self._moving()
        for name in ("learns", "uses_batch_statistics", "trains", "predicts_first", "passes", "answers_with"):
            if hasattr(adapter, name):
                vars(self)[name] = getattr(adapter, name)

    def ask(self, x: Tensor) -> Answer:
        """Predict for a batch now and leave the learning for later."""
        self._refuse_impossible()
        return _GuardedAnswer(self, x)

    def step(self, x: Tensor) -> Step:
        """Predict for a batch, then learn from it if the guard lets it."""
        return self.ask(x).learn()

    def predict(self, x: Tensor, *, allow_small: bool = False) -> Tensor:
        """Predict for a batch and leave no trace; in a fallback, as the unadapted network does."""
        if not self.watch.falls_back():
            return self.inner.predict(x, allow_small=allow_small)
        self._refuse_tracing()
        admitted, _ = self.inner._admit(x)
        if not allow_small and self.inner._window is None:
            self.inner._refuse_too_small(admitted)
        return self._refer(admitted, pushed=False)

    def see(self, x: Tensor) -> None:
        """Take images into the window, if there is one, without learning from them.

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
        self._anew()
        self._good = self._candidate = self._moving()

    def judge(self, signals: Signals, learnt: bool) -> Verdict:
        """Let the guard decide after a batch, and do what it says.

        Args:
            signals: What the batch showed.
            learnt: Whether the adapter learnt from it.
        """
        self.signals, self.verdict = signals, self.watch.observe(signals)
        if self.verdict.restore is not None:
            self._return_to(self.verdict.restore)
        elif learnt and self.watch.calm():
            self._since_kept += 1
            if self._since_kept >= self.keep_every:
                self._good, self._candidate, self._since_kept = self._candidate, self._moving(), 0
        return self.verdict

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Replace the state of the guarded adapter; the guard starts anew and takes it as good.

        Args:
            state: The ``state_dict`` of an adapter of the same method and source.
        """
        self.inner.load_state_dict(state)
        self._anew()
        self._good = self._candidate = self._moving()

    def freeze(self) -> Frozen:
        """A plain module that predicts as the guarded adapter does now."""
        return self.inner.freeze()

    def state_dict(self, *args: Any, **kwargs: Any) -> State:  # type: ignore[override]
        """A snapshot of the adapter and its guard, with the good states it may return to."""
        inner = {f"{_INNER}{name}": value for name, value in self.inner.state_dict().items()}
        return inner | {"_extra_state": self.get_extra_state()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take over a snapshot of a guarded adapter of the same method; one that does not fit changes nothing."""
        extra = state_dict.get("_extra_state")
        if not isinstance(extra, Mapping) or "watch" not in extra:
            raise CheckpointError("The state is not of a guarded adapter. Load it into the adapter without its guard.")
        watch, pool = self._new_watch(), Pool()
        try:
            watch.load(extra["watch"])
            pool.load(extra["pool"])
            good, candidate, since = dict(extra["good"]), dict(extra["candidate"] or extra["good"]), int(extra["since"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"The state of the guard is damaged ({type(error).__name__}: {error}).") from error
        inner = {name.removeprefix(_INNER): v for name, v in state_dict.items() if name.startswith(_INNER)}
        result = self.inner.load_state_dict(inner, strict, assign)
        self.watch, self._pool, self._good, self._since_kept = watch, pool, good, since
        self._candidate = good if extra["candidate"] is None else candidate
        return result

    def get_extra_state(self) -> State:
        """The guard: its memory, and the states that it may return to."""
        candidate = None if self._candidate is self._good else self._candidate
        return {
            "watch": self.watch.state(),
            "pool": _copied(self._pool.state()),
            "good": _copied(self._good),
            "candidate": _copied(candidate),
            "since": self._since_kept,
            "inner": {"method": type(self.inner).__name__.lower(), "settings": settings_of(self.inner)},
            "optimizer": None,
        }

    def set_extra_state(self, state: State) -> None:
        """Nothing: load_state_dict does it all."""

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module, **overrides: Any) -> Self:
        """Rebuild a saved guarded adapter around the same source model; the stream goes on bit for bit.

        Args:
            path: A file written by ``save``.
            model: The source model.
            overrides: Arguments of the guarded adapter that a file cannot carry.
        """
        header, state = read(path)
        if header["method"] != cls.__name__.lower():
            raise MethodMismatch(f"{path} holds the state of {header['method']}, which is not guarded.")
        own = state["_extra_state"]["inner"]
        inner = rebuild(own["method"], own["settings"], header["source"], model, overrides, path)
        guarded = cls(inner, **header["settings"])
        guarded.load_state_dict(state)
        return guarded

    @classmethod
    def arguments(cls) -> dict[str, Any]:
        """Every argument of the guard and its default."""
        return {name: default for name, default in super().arguments().items() if name != "reference"}

    # What an adapter shows of itself is the guarded one's.

    @property
    def student(self) -> Any:  # type: ignore[override]
        """The guarded adapter's student."""
        return self.inner.student

    @property
    def trained(self) -> list[nn.Parameter]:  # type: ignore[override]
        """The parameters that learn."""
        return self.inner.trained

    @property
    def generator(self) -> torch.Generator:  # type: ignore[override]
        """The guarded adapter's generator."""
        return self.inner.generator

    @property
    def steps(self) -> int:  # type: ignore[override]
        """Steps learnt; a return to an earlier state sets them back as well."""
        return self.inner.steps

    @property
    def skipped(self) -> int:  # type: ignore[override]
        """Steps that were not finite."""
        return self.inner.skipped

    @property
    def restores(self) -> int:  # type: ignore[override]
        """Returns to the source by the guarded adapter itself."""
        return self.inner.restores

    @property
    def source_digest(self) -> str:  # type: ignore[override]
        """The digest of the source weights."""
        return self.inner.source_digest

    @property
    def _lock(self) -> Any:  # type: ignore[override]
        return self.inner._lock

    @property
    def smallest_batch(self) -> int:
        """The fewest images a step can take with this model."""
        return self.inner.smallest_batch

    def footprint(self) -> int:
        """Bytes of everything held between batches, the good states included."""
        kept = {id(t): t.nbytes for kept in (self._good, self._candidate) for t in _tensors(kept)}
        return self.inner.footprint() + sum(kept.values())

    def __repr__(self) -> str:
        """The guarded adapter, and the guard's phase."""
        return f"Guarded({self.inner!r}, guard {self.watch.phase})"

    def _anew(self) -> None:
        self.watch, self._pool = self._new_watch(), Pool()
        self.signals = None
        self.verdict = Verdict()
        self._since_kept = 0

    def _new_watch(self) -> Watch:
        return Watch(parse_rules(self.rules), every=self.every, cooldown=self.cooldown, patience=self.patience)

    def _moving(self) -> State:
        """A copy of the state without the parameters that never change."""
        return {name: v for name, v in self.inner.state_dict().items() if name not in self.inner._frozen}

    def _return_to(self, what: Restore) -> None:
        window = None if self.inner._window is None else self.inner._window.state()
        if what == "source":
            self.inner.reset()
        else:
            still = {name: v for name, v in self.inner.state_dict().items() if name in self.inner._frozen}
            self.inner.load_state_dict(still | self._good)
        if self.inner._window is not None and window is not None:
            # The images at hand tell more about the stream than those of then.
            self.inner._window.load(window)
        self._good = self._candidate = self._good if what == "good" else self._moving()
        self._since_kept = 0

    def _refer(self, x: Tensor, *, pushed: bool) -> Tensor:
        window = self.inner._window
        if window is None:
            return self.reference.predict(x, len(x))
        held = window.images if pushed and window.images is not None else window.seen_with(x)
        return self.reference.predict(held, len(x))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        nn.Module._apply(self, fn, recurse)  # type: ignore[no-untyped-call]
        self.reference.adapter._apply(fn)
        return self


class _GuardedAnswer(Answer):
    """The prediction of a guarded adapter, by the adapter or by the reference."""

    def __init__(self, guarded: Guarded, x: Tensor) -> None:
        self._guarded = guarded
        self._inner: Answer | None = None
        self._open = False
        watch = guarded.watch
        self._compares = watch.asks_reference()
        if watch.learns():
            self._inner = guarded.inner.ask(x)
            self._own: Tensor | None = self._inner.logits
        else:
            guarded._lock.hold(self)
            self._own = None
        self._open = True
        try:
            self._x, self._broken = guarded.inner._admit(x)
            if watch.falls_back():
                self._referred: Tensor | None = self._refer()
                self.logits = self._referred
            else:
                self._referred = None
                self.logits = self._answer_frozen(x) if self._own is None else self._own
        except BaseException:
            self.forget()
            raise

    def learn(self) -> Step:
        """Learn from the batch if the guard lets it, and let the guard look at it."""
        self._finish()
        guarded = self._guarded
        if self._inner is None or self._own is None:
            guarded._lock.release()
            guarded.see(self._x)
            verdict = guarded.judge(_signals(self.logits), learnt=False)
            return Step(self.logits, log=self._log(verdict))
        if self._compares and self._referred is None and self._broken is None:
            self._referred = self._refer()
        step = self._inner.learn()
        if self._broken is not None:
            return Step(self.logits, step.loss, step.log)
        compared = None
        if self._compares and self._referred is not None:
            compared = guarded._pool.add(self._own, self._referred)
        verdict = guarded.judge(_signals(self._own, step, compared), learnt=True)
        return Step(self.logits, step.loss, {**step.log, **self._log(verdict)})

    def forget(self) -> None:
        """Leave no trace of the batch in the adapter."""
        self._finish()
        if self._inner is None:
            self._guarded._lock.release()
        else:
            self._inner.forget()

    def _log(self, verdict: Verdict) -> dict[str, float]:
        watch, signals = self._guarded.watch, self._guarded.signals
        log = {"guard": float(("ok", "cooldown", "probation").index(watch.phase))}
        if verdict.alarm is not None:
            log["alarm"] = 1.0
        if signals is not None and signals.compared is not None:
            log |= {"agreement": signals.compared.agreement, "drift": signals.compared.drift}
            log["lost_diversity"] = signals.compared.lost_diversity
        return log

    def _refer(self) -> Tensor:
        return self._guarded._refer(self._x, pushed=self._inner is not None and self._broken is None)

    @torch.no_grad()
    def _answer_frozen(self, x: Tensor) -> Tensor:
        inner = self._guarded.inner
        if inner._window is None:
            inner._refuse_too_small(self._x)
        return inner._without_trace(lambda: inner._predict(self._x, self._broken, False))

    def _finish(self) -> None:
        if not self._open:
            raise AnswerFinished("This answer was learnt from or forgotten before. Ask the adapter again.")
        self._open = False

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.forget()


@torch.no_grad()
def _signals(own: Tensor, step: Step | None = None, compared: Compared | None = None) -> Signals:
    return Signals(
        len(own),
        entropy(own).mean().item() / _scale(own),
        diversity(own).log().item() / _scale(own),
        None if step is None else step.loss,
        step is None or "skipped" not in step.log,
        compared,
    )


def _scale(logits: Tensor) -> float:
    """The largest entropy there is."""
    return math.log(logits.shape[1]) or 1.0


def _spread(total: Tensor) -> float:
    """The normalised entropy of a sum of predictions."""
    mean = total / total.sum()
    return -mean.xlogy(mean).sum().item() / (math.log(len(total)) or 1.0)


def _as_new(adapter: Adapter) -> Adapter:
    """A copy in its initial state, which shares the parameters that never change."""
    still = {id(p): p for name, p in adapter.named_parameters() if name in adapter._frozen}
    new = copy.deepcopy(adapter, dict(still))
    new.reset()
    return new


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(item) for item in value]
    return value


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in items for tensor in _tensors(item)]
