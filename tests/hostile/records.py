"""Mutated records, step logs and run folders: a named error, or exactly what was written."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ctta.bench.compare import differences, other_versions, rows, text_table
from ctta.bench.folder import read_record, read_records
from ctta.bench.jobs import execute
from ctta.bench.record import FORMAT
from ctta.bench.steps import line_of, read_steps
from ctta.errors import CttaError
from hostile.mutations import MUTATIONS, delete, flip_a_bit
from hostile.tally import Tally
from jobs import make_job
from run_folders import record_of, steps_of, write_run
from running import numbers

LONG = 500
JOB = make_job("tent", "digits", "digits_resnet8", corruptions=("fog", "contrast"), images=12, batch_size=4)
_STEPS = 6
_ODD = (None, True, -1, 0, 1e308, float("nan"), float("inf"), 10**30, 10**400, "", "\ud800", "../x", [], {}, [[]])


def run(count: int, seed: int) -> Tally:
    tally, draw = Tally(), random.Random(seed)
    kinds: tuple[Callable[[random.Random, Path], str], ...] = (_record, _log, _record, _log, _forgery, _interrupted)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _prepare(root)
        for number in range(count):
            kind = kinds[number % len(kinds)]
            said = kind(draw, root)
            if said.startswith("!"):
                tally.problem(f"{number}: {kind.__name__[1:]}: {said[1:]}")
            else:
                tally.saw(f"{kind.__name__[1:]}: {said}")
    return tally


class _Stop(Exception):
    """Simulates an interruption."""


def _prepare(root: Path) -> None:
    """A finished run, and a real one that was interrupted, with its uninterrupted twin."""
    steps = steps_of((4, 2, 1), teacher=True)
    place = write_run(root / "finished", record_of("dmse", steps))
    (place / "steps.jsonl").write_text("".join(map(line_of, steps)))
    execute(JOB, root / "whole")

    def stop_later(adapter: object, steps: int) -> Any:
        def hear(batch: object, log: dict[str, Any]) -> None:
            if log["index"] == _STEPS - 1:
                raise _Stop

        return hear

    with suppress(_Stop):
        execute(JOB, root / "interrupted", save_every=0.0, progress=stop_later)


def _record(draw: random.Random, root: Path) -> str:
    """Any damage to the bytes of a record."""
    [path] = (root / "finished").glob("*/record.json")
    data, sound = path.read_bytes(), read_record(path)
    try:
        path.write_bytes(draw.choice(MUTATIONS)(draw, data))
        return _read(lambda: read_record(path), sound)
    finally:
        path.write_bytes(data)


def _log(draw: random.Random, root: Path) -> str:
    """Any damage to the bytes of a step log."""
    [path] = (root / "finished").glob("*/steps.jsonl")
    counts = read_record(path.parent).counts
    data, sound = path.read_bytes(), read_steps(path, counts)
    try:
        path.write_bytes(draw.choice(MUTATIONS)(draw, data))
        return _read(lambda: read_steps(path, counts), sound)
    finally:
        path.write_bytes(data)


def _forgery(draw: random.Random, root: Path) -> str:
    """A record with odd values under a digest and address that fit: whatever is read can be compared."""
    [path] = (root / "finished").glob("*/record.json")
    record = json.loads(path.read_text())
    for _ in range(draw.randint(1, 2)):
        _change(draw, record)
    if draw.random() < 0.5 and isinstance(record.get("spec"), dict):
        text = json.dumps(record["spec"], sort_keys=True, separators=(",", ":"))
        record["address"] = hashlib.sha256(text.encode()).hexdigest()[:20]
    if draw.random() < 0.3:
        record["format"] = draw.choice((1, FORMAT, 3, "2", 2.0, None))
    record.pop("digest", None)
    if record.get("format") == FORMAT:
        text = json.dumps(record, sort_keys=True, separators=(",", ":"))
        record["digest"] = hashlib.sha256(text.encode()).hexdigest()
    forged = root / "forged" / "record.json"
    forged.parent.mkdir(exist_ok=True)
    forged.write_text(json.dumps(record))
    try:
        records = [*read_records(forged), *read_records(path)]
        differences(records)
        other_versions(records)
        for form in ("text", "markdown", "latex", "csv"):
            text_table(rows(records, force=True), form).encode()
    except CttaError as error:
        return type(error).__name__
    except Exception as error:
        return f"!{type(error).__name__}: {error} with {json.dumps(record)[:300]}"
    return "compared"


def _change(draw: random.Random, value: Any) -> None:
    """Replace, remove or add an entry somewhere."""
    while isinstance(value, (dict, list)) and value:
        key = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
        if isinstance(value[key], (dict, list)) and value[key] and draw.random() < 0.6:
            value = value[key]
            continue
        action = draw.random()
        if action < 0.15:
            del value[key]
        elif action < 0.25 and isinstance(value, dict):
            value["new"] = draw.choice(_ODD)
        else:
            value[key] = draw.choice(_ODD)
        return


def _interrupted(draw: random.Random, root: Path) -> str:
    """Damage to one file of an interrupted run: it ends with the same numbers, or says what to delete."""
    [whole] = (root / "whole").glob("*/record.json")
    copy = root / "copy"
    shutil.copytree(root / "interrupted", copy)
    try:
        files = sorted(path for path in copy.glob("*/*") if path.name != "lock")
        path = draw.choice(files)
        path.write_bytes(draw.choice((*MUTATIONS, flip_a_bit, delete))(draw, path.read_bytes()))
        try:
            record = execute(JOB, copy)
        except CttaError as error:
            return type(error).__name__ if "elete" in str(error) else f"!{error} does not say what to delete"
        same = numbers(record, copy) == numbers(read_record(whole), root / "whole")
        return "same numbers" if same else f"!other numbers after damage to {path.name}"
    except Exception as error:
        return f"!{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(copy)


def _read(read: Callable[[], Any], sound: Any) -> str:
    try:
        found = read()
    except CttaError as error:
        return type(error).__name__
    except Exception as error:
        return f"!{type(error).__name__}: {error}"
    return "same content" if found == sound else "!other content without a word"


def main(count: int, seed: int) -> None:
    run(count, seed).report("records")


if __name__ == "__main__":
    main(LONG, seed=0)
