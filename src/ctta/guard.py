"""The guard: from signals of a stream to the decision to stop learning for a while. Pure: numbers in, decisions out.

A stream is "ok" until a rule fires. Then comes a cooldown without learning, then a probation in which the adapter
learns but an alarm still counts against it, then it is "ok" again.
"""

from __future__ import annotations

import re
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ctta.errors import ParameterError

Action = Literal["freeze", "rollback", "fallback"]
Signal = Literal["agreement", "drift", "lost_diversity", "diversity", "entropy", "loss", "skipped"]
Phase = Literal["ok", "cooldown", "probation"]
Restore = Literal["good", "source"]

_SIGNALS: tuple[Signal, ...] = get_args(Signal)
_ACTIONS: tuple[Action, ...] = get_args(Action)
_PHASES: tuple[Phase, ...] = get_args(Phase)
#: Signals that need the reference.
_COMPARED: tuple[Signal, ...] = ("agreement", "drift", "lost_diversity")
#: Batches of probation for every batch of cooldown: harm that was slow to show must have the time to show again.
_PROBATION = 3
_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
_TEXT = re.compile(
    rf"\s*(\w+)\s*([<>])\s*(?:{_NUMBER}|(?:{_NUMBER}\s*\*\s*)?usual(?:\s*([+-])\s*{_NUMBER})?)\s*:\s*(\w+)\s*",
    re.IGNORECASE,
)
_HELP = (
    "Write one like 'agreement < usual - 0.25: fallback', 'diversity < 0.5 * usual: freeze' or 'skipped > 0.5: freeze'"
)


@dataclass(frozen=True)
class Rule:
    """When to act, and how.

    The limit is ``factor * usual + offset``, where usual is the median of the signal while the stream was ok. A rule
    fires when the signal has been beyond its limit by enough for long enough: the excess as a share of the limit,
    summed over images and never below zero, must reach the guard's patience. A collapse fires at once, a slow decline
    after some batches, a single odd batch never.

    Args:
        signal: "agreement" with the reference (share of equal answers); "drift" (share of different answers, divided by
            the reference's own normalised entropy: where the reference is unsure, more answers may differ);
            "lost_diversity" (how much less diverse the answers are than the reference's for the same images);
            "diversity" and "entropy" of the answers, both 0 to 1; "loss"; "skipped" (1 for a step that was not finite).
        below: Whether values below the limit count, or values above it.
        factor: The share of the usual value in the limit; 0 for a fixed limit.
        offset: The fixed part of the limit.
        action: "freeze" stops learning; "rollback" also returns the adapter to its last good state; "fallback" also
            answers with the reference until the adapter has proved itself again.
    """

    signal: Signal
    below: bool
    factor: float
    offset: float
    action: Action

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read a rule, such as ``drift > usual + 0.75: fallback``.

        Args:
            text: A signal, ``<`` or ``>``, a limit, a colon and an action.

        Raises:
            ParameterError: The text is not a rule.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ParameterError(f"{text!r} is not a rule of the guard. {_HELP}.")
        name, side, fixed, factor, sign, offset, what = found.groups()
        signal = next((known for known in _SIGNALS if known == name), None)
        action = next((known for known in _ACTIONS if known == what), None)
        if signal is None or action is None:
            raise ParameterError(
                f"{text!r} is not a rule of the guard. Signals: {', '.join(_SIGNALS)}; actions: {', '.join(_ACTIONS)}. "
                f"{_HELP}."
            )
        if fixed is not None:
            return cls(signal, side == "<", 0.0, float(fixed), action)
        by = float(offset or 0) * (-1 if sign == "-" else 1)
        return cls(signal, side == "<", float(factor or 1), by, action)

    def __str__(self) -> str:
        limit = f"{self.offset:g}"
        if self.factor:
            times = "" if self.factor == 1 else f"{self.factor:g} * "
            more = f" {'-' if self.offset < 0 else '+'} {abs(self.offset):g}" if self.offset else ""
            limit = f"{times}usual{more}"
        return f"{self.signal} {'<' if self.below else '>'} {limit}: {self.action}"

    def excess(self, value: float, usual: float | None) -> float:
        """Return how far a value is beyond the limit, as a share of the limit; negative within it.

        Args:
            value: The value of the signal.
            usual: Its usual value, or None if that is not known yet.
        """
        if self.factor and usual is None:
            return 0.0
        limit = self.factor * (usual or 0.0) + self.offset
        beyond = limit - value if self.below else value - limit
        return beyond / max(abs(limit), 1e-6)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read rules that are separated by semicolons.

    Args:
        text: The rules; an empty text has none.
    """
    return tuple(Rule.parse(part) for part in text.split(";") if part.strip())


#: Chosen on the digits stream; `python -m benchmarks.guard` measures them.
DEFAULT_TEXT = "lost_diversity > 0.025: fallback; drift > usual + 0.75: fallback; skipped > 0.5: rollback"
DEFAULT_RULES: tuple[Rule, ...] = parse_rules(DEFAULT_TEXT)


@dataclass(frozen=True)
class Compared:
    """A comparison with the reference over some images.

    Args:
        images: How many.
        agreement: Share of equal answers.
        drift: Share of different answers, divided by the reference's normalised entropy.
        lost_diversity: The reference's diversity minus the adapter's.
    """

    images: int
    agreement: float
    drift: float
    lost_diversity: float


@dataclass(frozen=True)
class Signals:
    """What one batch showed.

    Args:
        images: Images in the batch.
        entropy: Mean entropy of the adapter's answers, divided by log K.
        diversity: Entropy of their mean prediction, divided by log K.
        loss: The step's loss, if it has one.
        finite: Whether the step was finite.
        compared: The comparison with the reference, if enough images were compared by now.
    """

    images: int
    entropy: float
    diversity: float
    loss: float | None = None
    finite: bool = True
    compared: Compared | None = None

    def values(self) -> dict[str, float]:
        """Every signal that is known, by name."""
        found = {"diversity": self.diversity, "entropy": self.entropy, "skipped": float(not self.finite)}
        if self.loss is not None:
            found["loss"] = self.loss
        if self.compared is not None:
            found |= {name: getattr(self.compared, name) for name in _COMPARED}
        return found


@dataclass(frozen=True)
class Verdict:
    """What to do after a batch.

    Args:
        alarm: The rule that fired, as text; None if none did.
        restore: The state to return to, if any.
    """

    alarm: str | None = None
    restore: Restore | None = None


QUIET = Verdict()


@dataclass
class Watch:
    """The guard of one stream.

    Args:
        rules: The rules; the first that fires decides.
        every: Ask the reference on every so many batches; in probation it is asked on all of them.
        cooldown: Batches without learning after an alarm; three times as many of probation follow. An alarm in
            probation doubles both, up to eight times.
        patience: How much excess, in images, makes an alarm. Recent alarms divide it.
        memory: Values from which the usual one is taken.
        forgive: Batches without an alarm after which an alarm is forgotten.
        phase: "ok", "cooldown" or "probation".
        action: The action of the last alarm, while it lasts.
        left: Batches left of the cooldown or the probation.
        length: Batches of the last cooldown.
        batches: Batches observed.
        alarms: Alarms so far.
        strikes: Alarms that are not forgotten yet.
        since: Batches since the last alarm, or since one was forgotten.
        sums: The excess of every rule so far.
        usual: The values from which the usual one of each signal is taken.
    """

    rules: Sequence[Rule] = DEFAULT_RULES
    every: int = 2
    cooldown: int = 20
    patience: float = 150.0
    memory: int = 128
    forgive: int = 200
    phase: Phase = "ok"
    action: Action | None = None
    left: int = 0
    length: int = 0
    batches: int = 0
    alarms: int = 0
    strikes: int = 0
    since: int = 0
    sums: list[float] = field(default_factory=list)
    usual: dict[str, deque[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start every rule without excess."""
        self.sums = self.sums or [0.0] * len(self.rules)

    def learns(self) -> bool:
        """Whether the next batch may be learnt."""
        return self.phase != "cooldown"

    def falls_back(self) -> bool:
        """Whether the reference answers the next batch."""
        return self.phase != "ok" and self.action == "fallback"

    def asks_reference(self) -> bool:
        """Whether the next batch is compared with the reference."""
        needed = any(rule.signal in _COMPARED for rule in self.rules)
        return needed and self.phase != "cooldown" and (self.phase == "probation" or self.batches % self.every == 0)

    def calm(self) -> bool:
        """Whether the state of now may count as good: the stream is ok and no rule is halfway to an alarm."""
        return self.phase == "ok" and all(total < self._limit() / 4 for total in self.sums)

    def observe(self, signals: Signals) -> Verdict:
        """Take in what a batch showed, and decide.

        Args:
            signals: What the batch showed.
        """
        self.batches += 1
        self._forgive()
        if self.phase == "cooldown":
            self.left -= 1
            if self.left <= 0:
                self._enter("probation", _PROBATION * self.length)
            return QUIET
        fired = self._add(signals)
        if fired is not None:
            return self._alarm(fired)
        if self.phase == "ok":
            for name, value in signals.values().items():
                self.usual.setdefault(name, deque(maxlen=self.memory)).append(value)
            return QUIET
        self.left -= 1
        if self.left <= 0:
            self.length = max(self.cooldown, self.length // 2)
            self._enter("ok", 0)
        return QUIET

    def state(self) -> dict[str, Any]:
        """Everything that changes along a stream, as JSON takes it."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        usual = {name: list(values) for name, values in self.usual.items()}
        return {"phase": self.phase, "action": self.action, "sums": list(self.sums), "usual": usual, **numbers}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave.

        Args:
            state: The state of a guard with the same rules.

        Raises:
            KeyError, TypeError, ValueError: It is damaged, or of other rules. Nothing changes.
        """
        usual = {str(name): deque(map(float, v), maxlen=self.memory) for name, v in state["usual"].items()}
        sums = [float(total) for total in state["sums"]]
        numbers = {name: int(state[name]) for name in _NUMBERS}
        phase, action = state["phase"], state["action"]
        if phase not in _PHASES or action not in (None, *_ACTIONS) or len(sums) != len(self.rules):
            raise ValueError(f"phase {phase!r}, action {action!r}, {len(sums)} sums for {len(self.rules)} rules")
        self.phase, self.action, self.sums, self.usual = phase, action, sums, usual
        for name, value in numbers.items():
            setattr(self, name, value)

    def _add(self, signals: Signals) -> Rule | None:
        """Add up every rule's excess; the first rule that has had enough."""
        values = signals.values()
        fired = None
        for i, rule in enumerate(self.rules):
            if rule.signal not in values:
                continue
            compared = rule.signal in _COMPARED and signals.compared is not None
            images = signals.compared.images if compared and signals.compared else signals.images
            known = self.usual.get(rule.signal)
            excess = rule.excess(values[rule.signal], statistics.median(known) if known else None)
            self.sums[i] = max(0.0, self.sums[i] + images * excess)
            if fired is None and self.sums[i] >= self._limit():
                fired = rule
        return fired

    def _limit(self) -> float:
        return self.patience / (1 + self.strikes)

    def _forgive(self) -> None:
        self.since += 1
        if self.since >= self.forgive and self.strikes:
            self.strikes, self.since = self.strikes - 1, 0

    def _alarm(self, rule: Rule) -> Verdict:
        # A second alarm right after a return to the good state means that it is not good.
        again = self.phase == "probation"
        self.length = min(2 * self.length, 8 * self.cooldown) if again else max(self.length, self.cooldown)
        self.alarms += 1
        self.strikes, self.since = min(self.strikes + 1, 3), 0
        self.action = rule.action
        self._enter("cooldown", self.length)
        if rule.action == "freeze":
            return Verdict(str(rule))
        return Verdict(str(rule), "source" if again else "good")

    def _enter(self, phase: Phase, left: int) -> None:
        self.phase, self.left = phase, left
        self.sums = [0.0] * len(self.rules)
        if phase == "ok":
            self.action = None


_NUMBERS = ("left", "length", "batches", "alarms", "strikes", "since")
