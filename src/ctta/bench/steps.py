"""The step log of a run: one JSON object per step, in a plain or gzip-compressed file."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
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


def read_steps(folder: Path) -> list[StepFacts]:
    """Read the steps of a run from its folder.

    Args:
        folder: Folder of one run.

    Raises:
        MissingData: The folder has no step log.
        BadData: The log is damaged; the message names the line.
    """
    path = steps_file(folder)
    if path is None:
        raise MissingData(f"{folder} has no step log: neither {STEPS} nor {COMPRESSED}.")
    return [_parse(line, number, path) for number, line in enumerate(_lines(path), start=1)]


def read_log(folder: Path) -> StepLog:
    """Read the steps of a run and sum their entropy histograms.

    Args:
        folder: Folder of one run.

    Raises:
        MissingData: The folder has no step log.
        BadData: The log is damaged.
    """
    steps = read_steps(folder)
    histograms = [_summed(step.pop(name, ()) for step in steps) for name in ("entropy_right", "entropy_wrong")]
    return StepLog(steps, *histograms)


def _lines(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.name == COMPRESSED else data).splitlines()
    except (OSError, EOFError, zlib.error) as error:
        raise BadData(f"{path} cannot be read: {error}.") from error


def _parse(line: bytes, number: int, path: Path) -> StepFacts:
    try:
        step = json.loads(line)
    except ValueError as error:
        raise BadData(f"Line {number} of {path} is not a step: {error}.") from error
    if not isinstance(step, dict):
        raise BadData(f"Line {number} of {path} is not a step: it holds {type(step).__name__}, not an object.")
    return step


def _summed(histograms: Iterable[Any]) -> list[int]:
    sums = [0] * ENTROPY_BINS
    for counts in histograms:
        for place, count in enumerate(counts[:ENTROPY_BINS]):
            sums[place] += count
    return sums
