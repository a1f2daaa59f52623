"""Rules of the guard, written as text: `drift > usual + 1: fallback`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from ctta.errors import ParameterError
from ctta.guard.signals import SIGNALS, Signal

Action = Literal["freeze", "rollback", "fallback"]

ACTIONS: tuple[Action, ...] = get_args(Action)
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
    fires when the signal has been far enough beyond its limit for long enough: the excess as a share of the limit,
    summed over images and never below zero, must reach the guard's patience. A collapse triggers it at once, a slow
    decline after some batches, and a single odd batch never.

    Args:
        signal: "agreement" with the reference (share of equal predictions); "drift" (share of different predictions,
            divided by the reference's own normalised entropy: if the reference is unsure, more predictions may differ);
            "regret" (by how much the reference believes less in the adapter's predictions than in its own, divided by
            its own doubt: changing a prediction that the reference is sure of counts more than a guess);
            "lost_diversity" (how much less diverse the predictions are than the reference's for the same images);
            "diversity" and "entropy" of the predictions, both 0 to 1; "loss"; "skipped" (1 for a step that was not
            finite).
        below: Whether values below the limit count, or values above it.
        factor: The share of the usual value in the limit; 0 for a fixed limit.
        offset: The fixed part of the limit.
        action: "freeze" stops learning; "rollback" also returns the adapter to its last good state; "fallback" also
            predicts with the reference until the adapter has passed its probation.
    """

    signal: Signal
    below: bool
    factor: float
    offset: float
    action: Action

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read a rule, such as ``drift > usual + 1: fallback``.

        Args:
            text: A signal, ``<`` or ``>``, a limit, a colon and an action.

        Raises:
            ParameterError: If the text is not a rule.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ParameterError(f"{text!r} is not a rule of the guard. {_HELP}.")
        name, side, fixed, factor, sign, offset, what = found.groups()
        signal = next((known for known in SIGNALS if known == name), None)
        action = next((known for known in ACTIONS if known == what), None)
        if signal is None or action is None:
            raise ParameterError(
                f"{text!r} is not a rule of the guard. Signals: {', '.join(SIGNALS)}; actions: {', '.join(ACTIONS)}. "
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
            usual: Its usual value, or None if it is not yet known.
        """
        if self.factor and usual is None:
            return 0.0
        limit = self.factor * (usual or 0.0) + self.offset
        beyond = limit - value if self.below else value - limit
        return beyond / max(abs(limit), 1e-6)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read rules that are separated by semicolons.

    Args:
        text: The rules; an empty text gives none.
    """
    return tuple(Rule.parse(part) for part in text.split(";") if part.strip())


#: Chosen on the digits and on the first half of CIFAR-10-C; docs/guard.md shows how they do on the other half.
DEFAULT_TEXT = "; ".join(
    (
        "regret > usual + 0.3: fallback",
        "lost_diversity > 0.035: fallback",
        "drift > usual + 1: fallback",
        "skipped > 0.5: rollback",
    )
)
DEFAULT_RULES: tuple[Rule, ...] = parse_rules(DEFAULT_TEXT)
