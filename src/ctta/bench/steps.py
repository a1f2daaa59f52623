"""The step log of a run: one JSON object per line and step, in a plain or gzip-compressed file.

Every line that a run writes ends with a check of its own bytes. Lines of older runs have none: only their types are
compared.
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

from ctta.errors import BadData, MissingData

#: What a run writes; published runs hold the same lines compressed.
STEPS = "steps.jsonl"
COMPRESSED = f"{STEPS}.gz"

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


def steps_file(folder: Path) -> Path | None:
    """The step log in a run's folder, plain or compressed; None if it has none.

    Args:
        folder: Folder of one run.
    """
    return next((path for name in (STEPS, COMPRESSED) if (path := folder / name).is_file()), None)


def line_of(step: Mapping[str, Any]) -> str:
    """A step as a line of the log."""
    text = json.dumps(step)
    return f'{text[:-1]}, "check": "{_check(text.encode())}"}}\n'


def read_steps(run: Path, counts: Mapping[str, Mapping[str, int]] | None = None) -> list[StepFacts]:
    """Read the steps of a run.

    Args:
        run: The folder of the run, or its step log.
        counts: The entry `counts` of the run's record, which the steps must add up to.

    Raises:
        MissingData: The folder has no step log.
        BadData: A line is damaged or missing; the message names it.
    """
    path = run if run.is_file() else steps_file(run)
    if path is None:
        raise MissingData(f"{run} has no step log: neither {STEPS} nor {COMPRESSED}.")
    steps = [step for step, _ in numbered_steps(path)]
    seen: dict[str, int] = {}
    for step in steps:
        seen[step["domain"]] = seen.get(step["domain"], 0) + step["images"]
    if counts is not None and seen != {domain: count["images"] for domain, count in counts.items()}:
        raise BadData(
            f"{path} does not have the steps that its record counts: it is truncated or of another run. Restore it "
            f"from a copy, or delete {path.parent} to make the run again."
        )
    return steps


def read_log(run: Path, counts: Mapping[str, Mapping[str, int]] | None = None) -> StepLog:
    """Read the steps of a run and sum their entropy histograms.

    Args:
        run: The folder of the run, or its step log.
        counts: The entry `counts` of the run's record, which the steps must add up to.

    Raises:
        MissingData: The folder has no step log.
        BadData: The log is damaged.
    """
    steps = read_steps(run, counts)
    histograms = [_summed(step.pop(name, ()) for step in steps) for name in ("entropy_right", "entropy_wrong")]
    return StepLog(steps, *histograms)


def numbered_steps(path: Path) -> Iterator[tuple[StepFacts, int]]:
    """The steps of a log one by one, each with the size of the log up to its end.

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
        except (ValueError, RecursionError) as error:
            raise BadData(
                f"Line {number} of {path} is not a step: {error}. Restore the file from a copy, or delete "
                f"{path.parent} to make the run again."
            ) from error
        checked = has_check
        yield step, size


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.name == COMPRESSED else path.open("rb") as file:
            while line := file.readline(_LONGEST):
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise BadData(f"{path} cannot be read: {error}.") from error


def _parsed(line: bytes) -> tuple[dict[str, Any], bool]:
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
    if name in ("index", "images", "wrong", "severity"):
        return _count(value)
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
        for place, count in enumerate(counts[:ENTROPY_BINS]):
            sums[place] += count
    return sums
