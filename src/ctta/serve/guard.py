"""The guard of a stream is that of `ctta.Guarded`."""

from ctta.guard import DEFAULT_RULES, DEFAULT_TEXT, Rule, parse_rules

__all__ = ["DEFAULT_RULES", "DEFAULT_TEXT", "Rule", "parse_rules"]
