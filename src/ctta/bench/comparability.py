"""Whether the numbers of runs can be compared, and what differs if they cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from ctta.bench.spec import RunSpec
from ctta.protocol import protocol_of

#: Fields of a specification that must be equal in runs that are compared; method and settings are what is compared.
MUST_MATCH = (
    "data",
    "model",
    "protocol",
    "corruptions",
    "severity",
    "images",
    "batch_size",
    "learn",
)


def comparable_key(spec: RunSpec) -> str:
    """Return a key that is equal for two specifications if and only if their numbers can be compared.

    Args:
        spec: The specification of a run.
    """
    return json.dumps([comparable(spec, field) for field in MUST_MATCH], sort_keys=True)


def comparable(spec: RunSpec, field: str) -> object:
    """Return a field of a specification, without the parts that may differ between repetitions.

    Args:
        spec: The specification of a run.
        field: One of `MUST_MATCH`.
    """
    if field == "data":
        # A different seed draws different noise on the same images: that is a repetition, not another benchmark.
        return {k: v for k, v in spec.data.items() if k != "corruption_seed"}
    if field == "model":
        # The file of the user's own model may also hold a method; the weights show whether the model is the same.
        return {k: v for k, v in spec.model.items() if k != "code"}
    if field == "protocol":
        # A different seed takes a different path through the corruptions.
        return {k: v for k, v in spec.protocol.items() if k != "path"}
    if field == "corruptions":
        protocol = protocol_of(spec.protocol)
        return sorted(spec.corruptions) if protocol and protocol.any_domain_order else list(spec.corruptions)
    value: object = getattr(spec, field)
    return value


def distinctions(specs: Sequence[RunSpec]) -> list[dict[str, str]]:
    """For each specification, the fields that differ, abbreviated as far as they stay distinct.

    Args:
        specs: The specifications of some runs.
    """
    found: list[dict[str, str]] = [{} for _ in specs]
    for field in MUST_MATCH:
        values = [comparable(spec, field) for spec in specs]
        if _distinct(values) > 1:
            for mine, short in zip(found, _abbreviated(field, values), strict=True):
                mine.update(short)
    return found


def short_values(specs: Sequence[RunSpec], field: str) -> list[str]:
    """For each specification, its value of a field in a few words: the name, and what else tells them apart.

    Args:
        specs: The specifications of some runs.
        field: One of `MUST_MATCH`.
    """
    values = [comparable(spec, field) for spec in specs]
    texts = []
    for value, facts in zip(values, _abbreviated(field, values), strict=True):
        named = [str(value["name"])] if isinstance(value, Mapping) and "name" in value else []
        others = [
            f"{key.removeprefix(field + '.')} {text}" if key != field else text
            for key, text in facts.items()
            if not named or key != field
        ]
        texts.append(", ".join(named + others))
    return texts


def _missing(field: str) -> str:
    return "all" if field == "images" else "none"


def _distinct(values: Sequence[object]) -> int:
    return len({json.dumps(value, sort_keys=True) for value in values})


def _abbreviated(field: str, values: Sequence[object]) -> list[dict[str, str]]:
    """Abbreviate the values of a field; the keys are its name or, if it is an object, the names of its entries."""
    objects = [value for value in values if isinstance(value, Mapping)]
    if len(objects) == len(values):
        entries = _distinguishing(objects)
        return [
            {field if e == "name" else f"{field}.{e}": _short(value.get(e), "none") for e in entries}
            for value in objects
        ]
    lists = [value for value in values if isinstance(value, list)]
    if len(lists) == len(values):
        # For lists of equal length, only as many leading names as are needed to tell them apart.
        for names in range(max(map(len, lists)) + 1):
            texts = [f"{len(v)}: {'+'.join(map(str, v[:names]))}…" if names else str(len(v)) for v in lists]
            if _distinct(texts) == _distinct(lists):
                break
        return [{field: text} for text in texts]
    return [{field: _short(value, _missing(field))} for value in values]


def _distinguishing(values: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the entries that distinguish objects: preferably the name, and digests only if nothing else differs."""
    chosen: list[str] = []
    for entry in sorted({e for value in values for e in value}, key=lambda e: (e != "name", e == "digest", e)):
        before, after = ([[value.get(e) for e in some] for value in values] for some in (chosen, [*chosen, entry]))
        if _distinct(after) > _distinct(before):
            chosen.append(entry)
    return chosen


def _short(value: object, none: str) -> str:
    """Abbreviate a value of a specification."""
    if isinstance(value, list):
        return "+".join(_short(inner, none) for inner in value)
    text = f"{value:g}" if isinstance(value, float) else none if value is None else str(value)
    return text[:8] if re.fullmatch("[0-9a-f]{16,}", text) else text
