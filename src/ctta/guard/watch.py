"""The state machine of the guard: ok, after an alarm a cooldown without learning, then a probation, then ok again."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ctta.guard.rules import ACTIONS, DEFAULT_RULES, Action, Rule
from ctta.guard.signals import COMPARED, Signals

Phase = Literal["ok", "cooldown", "probation"]
Restore = Literal["good", "source"]

PHASES: tuple[Phase, ...] = get_args(Phase)
#: Batches of probation for every batch of cooldown: harm that was slow to show must have the time to show again.
_PROBATION = 3
#: An adapter that has not learnt yet is its reference. This is usual for it until it has shown otherwise for a while:
#: without it, harm from the very first batch on would pass for usual.
_UNADAPTED = {"agreement": 1.0, "drift": 0.0, "lost_diversity": 0.0}
_UNADAPTED_VALUES = 16


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
        unadapted: Whether the adapter has not learnt yet, so that it is usual for it to agree with its reference.
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
    unadapted: bool = False
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
        """Start every rule without excess, and with what is usual before anything was seen."""
        self.sums = self.sums or [0.0] * len(self.rules)
        if self.unadapted and not self.usual:
            for name, value in _UNADAPTED.items():
                self.usual[name] = deque([value] * _UNADAPTED_VALUES, self.memory)

    def learns(self) -> bool:
        """Whether the next batch may be learnt."""
        return self.phase != "cooldown"

    def falls_back(self) -> bool:
        """Whether the reference answers the next batch."""
        return self.phase != "ok" and self.action == "fallback"

    def asks_reference(self) -> bool:
        """Whether the next batch is compared with the reference."""
        needed = any(rule.signal in COMPARED for rule in self.rules)
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
        return {
            "rules": [str(rule) for rule in self.rules],
            "phase": self.phase,
            "action": self.action,
            "sums": list(self.sums),
            "usual": usual,
            **numbers,
        }

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
        if phase not in PHASES or action not in (None, *ACTIONS) or len(sums) != len(self.rules):
            raise ValueError(f"phase {phase!r}, action {action!r}, {len(sums)} sums for {len(self.rules)} rules")
        if list(state["rules"]) != [str(rule) for rule in self.rules]:
            raise ValueError(f"the state is of the rules {state['rules']}")
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
            compared = rule.signal in COMPARED and signals.compared is not None
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
