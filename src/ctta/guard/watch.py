"""The state machine of the guard: ok; after an alarm, a cooldown without learning; then probation; then ok again."""

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
#: Batches of probation for every batch of cooldown and every strike.
_PROBATION = 3
#: Harm that took long to appear needs as long to appear again: the probation lasts as long, but not longer than this.
_LONGEST_PROBATION = 240
#: An adapter that has not learnt yet equals its reference. These are its usual values until enough others were
#: observed; otherwise harm from the very first batch on would count as usual. They count as 400 images, because the
#: patience is in images too: eight values in batches of 50, two in batches of 200.
_UNADAPTED = {"agreement": 1.0, "drift": 0.0, "regret": 0.0, "lost_diversity": 0.0}
_UNADAPTED_VALUES = 8
_UNADAPTED_IMAGES = 400
#: Batches of a new stream that are all compared with the reference: too large a learning rate does harm at once.
_CLOSELY_WATCHED = 8


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
        every: Number of batches from one comparison with the reference to the next; in probation and for the first 8
            batches, 1.
        cooldown: Batches without learning after an alarm; a probation follows, three times as long for every strike,
            and at least as long as it took to the alarm, up to 240 batches. An alarm in probation doubles the
            cooldown, up to eight times.
        patience: How much excess, in images, raises an alarm. It is divided by 1 + ``strikes``.
        memory: Number of values from which the usual value is computed.
        forgive: Batches without an alarm after which an alarm is forgotten.
        unadapted: Whether the adapter has not learnt yet, so that agreement with its reference is its usual state.
        phase: "ok", "cooldown" or "probation".
        action: The action of the last alarm, while it is in effect.
        left: Batches left of the cooldown or the probation.
        length: Batches of the last cooldown.
        probation: Batches of the probation after it.
        batches: Batches observed.
        alarms: Alarms so far.
        strikes: Alarms that are not forgotten yet, at most 3.
        since: Batches since the last alarm, or since one was forgotten.
        sums: The accumulated excess of every rule.
        usual: The values from which the usual value of each signal is computed.
        prior: How many of them are those of an unadapted adapter.
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
    probation: int = 0
    batches: int = 0
    alarms: int = 0
    strikes: int = 0
    since: int = 0
    sums: list[float] = field(default_factory=list)
    usual: dict[str, deque[float]] = field(default_factory=dict)
    prior: int = 0

    def __post_init__(self) -> None:
        """Start every rule without excess, and set the usual values of an unadapted adapter."""
        self.sums = self.sums or [0.0] * len(self.rules)
        if self.unadapted and not self.usual:
            self._expect_agreement()

    def learns(self) -> bool:
        """Return whether the adapter may learn from the next batch."""
        return self.phase != "cooldown"

    def falls_back(self) -> bool:
        """Return whether the reference predicts for the next batch."""
        return self.phase != "ok" and self.action == "fallback"

    def asks_reference(self) -> bool:
        """Return whether the next batch is compared with the reference."""
        needed = any(rule.signal in COMPARED for rule in self.rules)
        closely = self.phase == "probation" or self.batches < _CLOSELY_WATCHED
        return needed and self.phase != "cooldown" and (closely or self.batches % self.every == 0)

    def calm(self) -> bool:
        """Return whether the current state counts as good: ok, and no rule a quarter of the way to an alarm."""
        return self.phase == "ok" and all(total < self._limit() / 4 for total in self.sums)

    def observe(self, signals: Signals) -> Verdict:
        """Process the signals of a batch, and decide what to do.

        Args:
            signals: The signals of the batch.
        """
        self.batches += 1
        self._forgive()
        if self.phase == "cooldown":
            self.left -= 1
            if self.left <= 0:
                self._enter("probation", self.probation)
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
        """Return everything that changes along a stream, in a form that JSON can hold."""
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
        """Load what `state` returned.

        Args:
            state: The state of a guard with the same rules.

        Raises:
            KeyError, TypeError, ValueError: If it is damaged, or has other rules. Nothing changes.
        """
        usual = {str(name): deque(map(float, v), maxlen=self.memory) for name, v in state["usual"].items()}
        sums = [float(total) for total in state["sums"]]
        numbers = {name: int(state[name]) for name in _NUMBERS}
        phase, action = state["phase"], state["action"]
        if phase not in PHASES or action not in (None, *ACTIONS) or len(sums) != len(self.rules):
            raise ValueError(f"phase {phase!r}, action {action!r}, {len(sums)} sums for {len(self.rules)} rules")
        if list(state["rules"]) != [str(rule) for rule in self.rules]:
            raise ValueError(f"the state is of the rules {state['rules']}")
        if any(len(usual.get(name, ())) < numbers["prior"] for name in _UNADAPTED):
            raise ValueError(f"{numbers['prior']} values of an unadapted adapter, and fewer values in all")
        self.phase, self.action, self.sums, self.usual = phase, action, sums, usual
        for name, value in numbers.items():
            setattr(self, name, value)

    def _add(self, signals: Signals) -> Rule | None:
        """Add to every rule's excess, and return the first rule that fires, if any."""
        values = signals.values()
        if signals.compared is not None:
            self._shrink_prior(signals.compared.images)
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
        # A second alarm right after a return to the good state means that this state is not good.
        again = self.phase == "probation"
        self.length = min(2 * self.length, 8 * self.cooldown) if again else max(self.length, self.cooldown)
        self.alarms += 1
        self.strikes = min(self.strikes + 1, 3)
        self.probation = max(_PROBATION * self.strikes * self.length, min(self.since, _LONGEST_PROBATION))
        self.since = 0
        self.action = rule.action
        self._enter("cooldown", self.length)
        if rule.action == "freeze":
            return Verdict(str(rule))
        if not again:
            return Verdict(str(rule), "good")
        self._expect_agreement()
        return Verdict(str(rule), "source")

    def _expect_agreement(self) -> None:
        """Take the values of an adapter that has not learnt yet as usual."""
        for name, value in _UNADAPTED.items():
            self.usual[name] = deque([value] * _UNADAPTED_VALUES, self.memory)
        self.prior = _UNADAPTED_VALUES

    def _shrink_prior(self, images: int) -> None:
        """Drop values of an unadapted adapter that would count for too much beside comparisons of so many images."""
        while self.prior > max(1, round(_UNADAPTED_IMAGES / images)):
            for name in _UNADAPTED:
                self.usual[name].popleft()
            self.prior -= 1

    def _enter(self, phase: Phase, left: int) -> None:
        self.phase, self.left = phase, left
        self.sums = [0.0] * len(self.rules)
        if phase == "ok":
            self.action = None


_NUMBERS = ("left", "length", "probation", "batches", "alarms", "strikes", "since", "prior")
