"""Run a method through a stream so that it can be stopped at any moment and goes on where it was."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from ctta.adapter import Adapter
from ctta.bench.evaluate import Progress, scored
from ctta.bench.record import FORMAT, environment, peak_memory, read_record, write_record
from ctta.bench.spec import RunSpec
from ctta.classifier import Classifier
from ctta.errors import BadData
from ctta.streams.stream import Stream

STEPS = "steps.jsonl"

#: Gives the listener for an adapter that has so many steps to go.
Listen = Callable[[Adapter, int], Progress]


def run(
    spec: RunSpec,
    build: Callable[[], Adapter],
    model: Classifier,
    stream: Stream,
    folder: Path,
    *,
    command: str = "",
    save_every: float = 30.0,
    progress: Listen | None = None,
) -> dict[str, Any]:
    """The record of a run: the one that is there, or a new one, continued from its last checkpoint if it has one.

    ``folder`` takes a folder named after the specification. A checkpoint is written every ``save_every`` seconds.
    """
    place = folder / spec.address
    if (place / "record.json").exists() and (found := read_record(place))["complete"]:
        return found
    place.mkdir(parents=True, exist_ok=True)
    adapter, done = _resume(place, model) or (build(), 0)
    listener = progress(adapter, len(stream) - done) if progress is not None else None
    steps = _first_lines(place / STEPS, done)
    with (place / STEPS).open("a", encoding="utf-8") as file:
        saved = time.monotonic()
        for batch, log in scored(adapter, stream.starting_at(done), learn=spec.learn):
            steps.append(log)
            file.write(json.dumps(log) + "\n")
            if listener is not None:
                listener(batch, log)
            if time.monotonic() - saved >= save_every:
                _checkpoint(place, adapter, len(steps), file)
                saved = time.monotonic()
        _sync(file)
    record = _record(spec, adapter, steps, command)
    write_record(place, record)
    for left in _checkpoints(place):
        left.unlink()
    return record


def _resume(place: Path, model: Classifier) -> tuple[Adapter, int] | None:
    """The adapter of the newest checkpoint and the number of steps behind it."""
    for path in reversed(_checkpoints(place)):
        return Adapter.load(path, model), int(path.stem.removeprefix("step-"))
    return None


def _checkpoints(place: Path) -> list[Path]:
    return sorted(place.glob("step-*.ctta"))


def _checkpoint(place: Path, adapter: Adapter, done: int, file: TextIO) -> None:
    # The steps first: a checkpoint must never be ahead of the log it belongs to.
    _sync(file)
    older = _checkpoints(place)
    adapter.save(place / f"step-{done:08d}.ctta")
    for path in older:
        path.unlink()


def _sync(file: TextIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _first_lines(path: Path, count: int) -> list[dict[str, Any]]:
    """The first lines of the log; what was written after the checkpoint is cut off, to be made again."""
    kept = []
    size = 0
    for line in _lines(path) if count else ():
        kept.append(json.loads(line))
        size += len(line)
        if len(kept) == count:
            break
    if len(kept) < count:
        raise BadData(
            f"{path} holds {len(kept)} steps, fewer than the {count} of its checkpoint. Delete {path.parent}."
        )
    if path.exists():
        os.truncate(path, size)
    return kept


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def _record(spec: RunSpec, adapter: Adapter, steps: list[dict[str, Any]], command: str) -> dict[str, Any]:
    counts: dict[str, list[int]] = {}
    for step in steps:
        domain = counts.setdefault(step["domain"], [0, 0])
        domain[0] += step["images"]
        domain[1] += step["wrong"]
    errors = {domain: 100 * wrong / images for domain, (images, wrong) in counts.items()}
    seconds = sum(step["seconds"] for step in steps)
    images = sum(images for images, _ in counts.values())
    device = str(next(adapter.parameters()).device)
    settings = {
        k: v if isinstance(v, (bool, int, float, str, type(None))) else str(v) for k, v in adapter.settings.items()
    }
    return {
        "format": FORMAT,
        "address": spec.address,
        "spec": spec.to_json(),
        "settings": settings,
        "source_free": adapter.source_free,
        "metric": "error, percent of answers that are wrong",
        "direction": "lower is better",
        "normalisation": f"inside Classifier, mean {spec.model.get('mean')}, std {spec.model.get('std')}",
        "order": f"shuffled within a domain with seed {spec.seed}, one permutation for all domains of one size",
        "scored": "the answer given before learning from the batch" if spec.learn else "answers without learning",
        "passes": list(adapter.passes),
        "errors": errors,
        "mean": sum(errors.values()) / len(errors),
        "counts": {domain: {"images": n, "wrong": wrong} for domain, (n, wrong) in counts.items()},
        "images": images,
        "images_per_second": images / seconds if seconds else 0.0,
        "seconds": seconds,
        "peak_memory": peak_memory(),
        "skipped": adapter.skipped,
        "environment": environment(device),
        "steps": STEPS,
        "command": command,
        "complete": True,
    }
