"""The facts in which runs are unlike."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ctta.bench.spec import COMPARABLE
from ctta.protocol import protocol_of


def distinctions(specs: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Of each specification the facts that are not the same in all, as short as still tells them apart."""
    found: list[dict[str, str]] = [{} for _ in specs]
    for fact in COMPARABLE:
        values = [comparable(spec, fact) for spec in specs]
        if _kinds(values) > 1:
            for mine, short in zip(found, _shortened(fact, values), strict=True):
                mine.update(short)
    return found


def comparable(spec: dict[str, Any], fact: str) -> Any:
    """A fact of a specification without what may differ between repetitions."""
    value = spec[fact]
    if fact == "data":
        # Another seed draws other noise on the same images: that is a repetition, not another benchmark.
        return {k: v for k, v in value.items() if k != "corruption_seed"}
    if fact == "model":
        # The file of the user's own model may also hold a method; the weights tell whether the model is the same.
        return {k: v for k, v in value.items() if k != "code"}
    if fact == "corruptions" and (protocol := protocol_of(spec["protocol"])) and protocol.any_domain_order:
        return sorted(value)
    return value


def unsaid(fact: str) -> str:
    """What None is as the value of a fact."""
    return "all" if fact == "images" else "none"


def _kinds(values: Sequence[Any]) -> int:
    return len({json.dumps(value, sort_keys=True) for value in values})


def _shortened(fact: str, values: Sequence[Any]) -> list[dict[str, str]]:
    """A fact's values as words under its name, or under that of an entry of its own."""
    if all(isinstance(value, dict) for value in values):
        entries = _telling(values)
        return [
            {fact if e == "name" else f"{fact}.{e}": _word(value.get(e), "none") for e in entries} for value in values
        ]
    if all(isinstance(value, list) for value in values):
        # As many of the first names as tell lists of one length apart.
        for names in range(max(map(len, values)) + 1):
            texts = [f"{len(v)}: {'+'.join(map(str, v[:names]))}…" if names else str(len(v)) for v in values]
            if _kinds(texts) == _kinds(values):
                break
        return [{fact: text} for text in texts]
    return [{fact: _word(value, unsaid(fact))} for value in values]


def _telling(values: Sequence[dict[str, Any]]) -> list[str]:
    """Entries that tell dictionaries apart: the name before all others, and digests where nothing else does."""
    chosen: list[str] = []
    for entry in sorted({e for value in values for e in value}, key=lambda e: (e != "name", e == "digest", e)):
        before, after = ([[value.get(e) for e in some] for value in values] for some in (chosen, [*chosen, entry]))
        if _kinds(after) > _kinds(before):
            chosen.append(entry)
    return chosen


def _word(value: Any, none: str) -> str:
    """A value of a specification in short."""
    if isinstance(value, list):
        return "+".join(_word(inner, none) for inner in value)
    text = f"{value:g}" if isinstance(value, float) else none if value is None else str(value)
    return text[:8] if re.fullmatch("[0-9a-f]{16,}", text) else text
