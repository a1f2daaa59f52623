"""The step log of a run: one JSON object per line and step, in a plain or gzip-compressed file.

Every line that a run writes ends with a check of its own bytes. Lines of older runs have none: only the types of their
values are checked.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctta.bench.scores import Count
from ctta.errors import BadData

#: Bins of the entropy histograms in a step, of equal width from 0 to ln C.
ENTROPY_BINS = 20

#: What one step logged, as read from JSON.
StepFacts = dict[str, Any]

_CHECK = re.compile(rb', "check": "([0-9a-f]{16})"\}')
_CHECK_LENGTH = len(', "check": "0123456789abcdef"}')
_LONGEST = 1 << 20
_WHOLE = range(-(2**63), 2**63)


@dataclass(frozen=True)
class StepLog:
    """The steps of a run, with the entropy histograms of its predictions summed over all steps.

    Args:
        steps: What each step logged, without its histograms.
        entropy_correct: Number of correct predictions in each entropy bin.
        entropy_wrong: Number of incorrect predictions in each entropy bin.
    """

    steps: list[StepFacts]
    entropy_correct: list[int]
    entropy_wrong: list[int]


#: Step logs by the address of their run.
StepLogs = Mapping[str, StepLog]


def line_of(step: Mapping[str, Any]) -> str:
    """Format a step as a line of the log, with its check.

    Args:
        step: What the step logged.
    """
    text = json.dumps(step)
    return f'{text[:-1]}, "check": "{_check(text.encode())}"}}\n'


def read_steps(path: Path, counts: Mapping[str, Count] | None = None) -> list[StepFacts]:
    """Read a step log.

    Args:
        path: The log, plain or compressed.
        counts: The entry `counts` of the run's record, which the steps must add up to.

    Raises:
        BadData: A line is damaged or missing; the message names it.
    """
    steps = [step for step, _ in numbered_steps(path)]
    if counts is not None and _counts(steps) != counts:
        raise BadData(
            f"{path} does not have the steps that its record counts: it is truncated or of another run. Restore it "
            f"from a copy, or delete {path.parent} to make the run again."
        )
    return steps


def wrong_in(step: StepFacts) -> int:
    """The number of incorrect predictions of a step; logs of early versions have only their share.

    Args:
        step: What the step logged.
    """
    return int(step["wrong"]) if "wrong" in step else round(step["error"] * step["images"] / 100)


def _counts(steps: Iterable[StepFacts]) -> dict[str, Count]:
    counts: dict[str, Count] = {}
    for step in steps:
        before = counts.get(step["domain"], Count(0, 0))
        counts[step["domain"]] = Count(before.images + step["images"], before.wrong + wrong_in(step))
    return counts


def log_of(steps: list[StepFacts]) -> StepLog:
    """Sum the entropy histograms of steps and remove them from the steps.

    Args:
        steps: The steps of a run.
    """
    histograms = [_summed(step.pop(name, ()) for step in steps) for name in ("entropy_right", "entropy_wrong")]
    return StepLog(steps, *histograms)


def numbered_steps(path: Path) -> Iterator[tuple[StepFacts, int]]:
    """Yield the steps of a log, each with the size of the log up to the end of that step.

    Args:
        path: A step log.

    Raises:
        BadData: A line is damaged.
    """
    checked: bool | None = None
    size = 0
    for number, line in enumerate(_lines(path), start=1):
        size += len(line)
        try:
            step, has_check = _parsed(line)
            if checked is not None and has_check != checked:
                raise ValueError("it has no check, or is the first that has one")
            if step["index"] != number - 1:
                raise ValueError(f"it has the index {step['index']}, and the steps before it end at {number - 2}")
        except (ValueError, RecursionError) as error:
            raise BadData(
                f"Line {number} of {path} is not a step: {error}. Restore the file from a copy, or delete "
                f"{path.parent} to make the run again."
            ) from error
        checked = has_check
        yield step, size


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while line := file.readline(_LONGEST):
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise BadData(f"{path} cannot be read: {error}.") from error


def _parsed(line: bytes) -> tuple[StepFacts, bool]:
    text = line.rstrip(b"\n")
    check = _CHECK.fullmatch(text[-_CHECK_LENGTH:])
    if check is not None:
        text = text[:-_CHECK_LENGTH] + b"}"
        if _check(text).encode() != check.group(1):
            raise ValueError("its check does not match")
        if not line.endswith(b"\n"):
            raise ValueError("it is truncated")
    step = json.loads(text.decode("utf-8"))
    if not isinstance(step, dict):
        raise ValueError("it is not an object")
    for name, value in step.items():
        if not _plausible(name, value):
            raise ValueError(f"{name!r} cannot be {str(value)[:40]!r}")
    missing = {"index", "domain", "images"} - set(step)
    if missing:
        raise ValueError(f"it has no {min(missing)!r}")
    if not {"error", "wrong"} & set(step):
        raise ValueError("it has neither 'error' nor 'wrong'")
    return step, check is not None


def _plausible(name: str, value: object) -> bool:
    if name == "domain":
        return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)
    if name in ("index", "images", "wrong"):
        return _count(value)
    if name == "severity":  # a fraction if it changes in small steps
        return _count(value) or (isinstance(value, float) and 0 <= value < math.inf)
    if name in ("error", "seconds"):
        return _number(value) and math.isfinite(value)  # type: ignore[arg-type]
    if name in ("entropy_right", "entropy_wrong"):
        return isinstance(value, list) and all(map(_count, value))
    return value is None or _number(value)


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _number(value: object) -> bool:
    return isinstance(value, (bool, float)) or (isinstance(value, int) and value in _WHOLE)


def _check(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def _summed(histograms: Iterable[Any]) -> list[int]:
    sums = [0] * ENTROPY_BINS
    for counts in histograms:
        for index, count in enumerate(counts[:ENTROPY_BINS]):
            sums[index] += count
    return sums
