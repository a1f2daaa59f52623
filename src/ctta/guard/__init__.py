"""The guard: from signals of a stream to the decision to stop learning for a while. Pure: numbers in, decisions out."""

from ctta.guard.rules import DEFAULT_RULES, DEFAULT_TEXT, Action, Rule, parse_rules
from ctta.guard.signals import Compared, Signal, Signals
from ctta.guard.watch import QUIET, Phase, Restore, Verdict, Watch

__all__ = [
    "DEFAULT_RULES",
    "DEFAULT_TEXT",
    "QUIET",
    "Action",
    "Compared",
    "Phase",
    "Restore",
    "Rule",
    "Signal",
    "Signals",
    "Verdict",
    "Watch",
    "parse_rules",
]
