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
Signal = Literal["agreement", "diversity", "entropy", "loss", "skipped"]
Phase = Literal["ok", "cooldown", "probation"]
Restore = Literal["good", "source"]

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

    The limit is ``factor * usual + offset``, where usual is the median of the signal while the stream was ok.

    Attributes:
        signal: What is watched, pooled over the last images: "agreement" with the reference (share of equal answers),
            "diversity" and "entropy" (0 to 1), "loss", "skipped" (share of steps that were not finite).
        below: Whether the rule fires below the limit, or above it.
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
        """Read a rule, such as ``agreement < usual - 0.25: fallback``.

        Raises:
            ParameterError: The text is not a rule.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ParameterError(f"{text!r} is not a rule of the guard. {_HELP}.")
        signal, side, fixed, factor, sign, offset, action = found.groups()
        if signal not in get_args(Signal) or action not in get_args(Action):
            raise ParameterError(
                f"{text!r} is not a rule of the guard. Signals: {', '.join(get_args(Signal))}; "
                f"actions: {', '.join(get_args(Action))}. {_HELP}."
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

    def fires(self, value: float, usual: float | None) -> bool:
        """Whether the rule fires at a value of its signal."""
        if self.factor and usual is None:
            return False
        limit = self.factor * (usual or 0.0) + self.offset
        return value < limit if self.below else value > limit


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read rules that are separated by semicolons; an empty text has none."""
    return tuple(Rule.parse(part) for part in text.split(";") if part.strip())


#: Chosen on the digits stream; `python -m benchmarks.guard` measures them.
DEFAULT_TEXT = "agreement < usual - 0.25: fallback; skipped > 0.5: rollback"
DEFAULT_RULES: tuple[Rule, ...] = parse_rules(DEFAULT_TEXT)


@dataclass(frozen=True)
class Signals:
    """What one batch showed.

    Attributes:
        images: Images in the batch.
        entropy: Mean entropy of the adapter's answers, divided by log K.
        diversity: Entropy of their mean prediction, divided by log K.
        agreement: Share of answers equal to the reference's; None if it was not asked.
        loss: The step's loss, if it has one.
        finite: Whether the step was finite.
    """

    images: int
    entropy: float
    diversity: float
    agreement: float | None = None
    loss: float | None = None
    finite: bool = True

    def values(self) -> dict[Signal, float]:
        """Every signal that is known, by name."""
        found: dict[Signal, float | None] = {
            "agreement": self.agreement,
            "diversity": self.diversity,
            "entropy": self.entropy,
            "loss": self.loss,
            "skipped": float(not self.finite),
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class Verdict:
    """What to do after a batch.

    Attributes:
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
        every: Ask the reference on every so many batches.
        cooldown: Batches without learning after an alarm. Doubled, up to eight times, by an alarm in probation.
        probation: Batches of learning after a cooldown before the stream is ok again.
        pool: Images over which a signal is averaged before a rule looks at it.
        memory: Values from which the usual one is taken.
    """

    rules: Sequence[Rule] = DEFAULT_RULES
    every: int = 2
    cooldown: int = 20
    probation: int = 20
    pool: int = 64
    memory: int = 64
    phase: Phase = "ok"
    action: Action | None = None
    left: int = 0
    length: int = 0
    batches: int = 0
    alarms: int = 0
    recent: dict[Signal, deque[tuple[int, float]]] = field(default_factory=dict)
    usual: dict[Signal, deque[float]] = field(default_factory=dict)

    def learns(self) -> bool:
        """Whether the next batch may be learnt."""
        return self.phase != "cooldown"

    def falls_back(self) -> bool:
        """Whether the reference answers the next batch."""
        return self.phase != "ok" and self.action == "fallback"

    def asks_reference(self) -> bool:
        """Whether the next batch is compared with the reference."""
        needed = any(rule.signal == "agreement" for rule in self.rules)
        return needed and self.phase != "cooldown" and (self.phase == "probation" or self.batches % self.every == 0)

    def observe(self, signals: Signals) -> Verdict:
        """Take in what a batch showed, and decide."""
        self.batches += 1
        if self.phase == "cooldown":
            self.left -= 1
            if self.left <= 0:
                self._enter("probation", self.probation)
            return QUIET
        pooled = self._pooled(signals)
        fired = next((rule for rule in self.rules if self._fires(rule, pooled)), None)
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

    def health(self) -> dict[str, float]:
        """Every signal, pooled over the last images."""
        return {name: _mean(values) for name, values in self.recent.items() if values}

    def _alarm(self, rule: Rule) -> Verdict:
        # A second alarm right after a return to the good state means that it is not good.
        again = self.phase == "probation"
        self.length = min(2 * self.length, 8 * self.cooldown) if again else max(self.length, self.cooldown)
        self.alarms += 1
        self.action = rule.action
        self._enter("cooldown", self.length)
        if rule.action == "freeze":
            return Verdict(str(rule))
        return Verdict(str(rule), "source" if again else "good")

    def _enter(self, phase: Phase, left: int) -> None:
        self.phase, self.left = phase, left
        self.recent.clear()
        if phase == "ok":
            self.action = None

    def _pooled(self, signals: Signals) -> set[Signal]:
        """The signals of which enough images were seen since the phase began."""
        enough: set[Signal] = set()
        for name, value in signals.values().items():
            values = self.recent.setdefault(name, deque())
            values.append((signals.images, value))
            while sum(n for n, _ in values) - values[0][0] >= self.pool:
                values.popleft()
            if sum(n for n, _ in values) >= self.pool:
                enough.add(name)
        return enough

    def _fires(self, rule: Rule, enough: set[Signal]) -> bool:
        if rule.signal not in enough:
            return False
        known = self.usual.get(rule.signal)
        return rule.fires(_mean(self.recent[rule.signal]), statistics.median(known) if known else None)

    def state(self) -> dict[str, Any]:
        """Everything that changes along a stream, as JSON takes it."""
        return {
            "phase": self.phase,
            "action": self.action,
            "left": self.left,
            "length": self.length,
            "batches": self.batches,
            "alarms": self.alarms,
            "recent": {name: [list(pair) for pair in values] for name, values in self.recent.items()},
            "usual": {name: list(values) for name, values in self.usual.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
        recent = {name: deque((int(n), float(v)) for n, v in pairs) for name, pairs in state["recent"].items()}
        usual = {name: deque(map(float, values), maxlen=self.memory) for name, values in state["usual"].items()}
        numbers = {name: int(state[name]) for name in ("left", "length", "batches", "alarms")}
        if state["phase"] not in get_args(Phase) or state["action"] not in (None, *get_args(Action)):
            raise ValueError(f"phase {state['phase']!r}, action {state['action']!r}")
        self.phase, self.action, self.recent, self.usual = state["phase"], state["action"], recent, usual
        self.left, self.length = numbers["left"], numbers["length"]
        self.batches, self.alarms = numbers["batches"], numbers["alarms"]


def _mean(pairs: deque[tuple[int, float]]) -> float:
    return sum(n * value for n, value in pairs) / sum(n for n, _ in pairs)
