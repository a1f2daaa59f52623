"""Run a method through a stream so that it can be stopped at any moment and goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from ctta.adapter import Adapter
from ctta.bench.memory import forget_peak, peak_memory
from ctta.bench.prequential import Progress, scored
from ctta.bench.record import FORMAT, NAME, environment, read_record, write_record
from ctta.bench.spec import RunSpec
from ctta.bench.steps import STEPS
from ctta.classifier import Classifier
from ctta.errors import BadData, ConcurrentUse
from ctta.files import write_atomically
from ctta.streams.protocols import CONCENTRATION
from ctta.streams.stream import Stream

ADAPTED = "adapted.ctta"

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
    keep: bool = False,
    progress: Listen | None = None,
) -> dict[str, Any]:
    """The record of a run: the one that is there, or a new one, continued from its last checkpoint if it has one.

    ``folder`` takes a folder named after the specification. A checkpoint is written every ``save_every`` seconds;
    ``keep`` leaves the last one there, as the adapted model.
    """

    def run_at(place: Path) -> dict[str, Any]:
        place.mkdir(parents=True, exist_ok=True)
        with _alone(place), _same_threads(place):
            # Another process may have ended it in the meantime.
            return _finished(place) or _run(spec, build, model, stream, place, command, save_every, keep, progress)

    place = folder / spec.address
    if (found := _finished(place)) is None:
        return run_at(place)
    if keep and not (place / ADAPTED).exists():
        # A run that is done stays as it is while it is made again beside itself for the model.
        again = folder / f"{spec.address}.again"
        run_at(again)
        (again / ADAPTED).replace(place / ADAPTED)
        shutil.rmtree(again)
    return found


def _finished(place: Path) -> dict[str, Any] | None:
    """The record of a run that has come to its end."""
    record = read_record(place) if (place / NAME).exists() else None
    return record if record is not None and record["complete"] else None


def _run(
    spec: RunSpec,
    build: Callable[[], Adapter],
    model: Classifier,
    stream: Stream,
    place: Path,
    command: str,
    save_every: float,
    keep: bool,
    progress: Listen | None,
) -> dict[str, Any]:
    forget_peak()
    adapter, done = _resume(place, model) or (build(), 0)
    steps = _first_lines(place / STEPS, done)
    listener = progress(adapter, len(stream) - done) if progress is not None else None
    with (place / STEPS).open("a", encoding="utf-8") as file:
        saved = time.monotonic()
        with asked_to_stop() as stop:
            for batch, log in scored(adapter, stream.starting_at(done), learn=spec.learn, rest_on=spec.rest_on):
                steps.append(log)
                file.write(json.dumps(log) + "\n")
                if listener is not None:
                    listener(batch, log)
                if stop or time.monotonic() - saved >= save_every:
                    _checkpoint(place, adapter, len(steps), file)
                    write_record(place, record_of(spec, adapter, steps, command, complete=False))
                    saved = time.monotonic()
                if stop:
                    raise KeyboardInterrupt
        _sync(file)
    record = record_of(spec, adapter, steps, command)
    if keep:
        adapter.save(place / ADAPTED)
    write_record(place, record)
    for left in _checkpoints(place):
        left.unlink()
    return record


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Hold the run's folder; a second process that wants it is refused."""
    try:
        import fcntl  # noqa: PLC0415, not on every platform
    except ModuleNotFoundError:
        yield
        return
    path = place / "lock"
    while True:
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConcurrentUse(
                    f"Another process is at this run ({place}). Wait for it, or use another --out."
                ) from None
            # Who held it may have removed the file after it was opened here: others would lock a new one.
            try:
                held = os.path.samestat(os.fstat(lock.fileno()), path.stat())
            except FileNotFoundError:
                continue
            if held:
                yield
                path.unlink(missing_ok=True)
                return


@contextmanager
def _same_threads(place: Path) -> Iterator[None]:
    """Compute with as many threads as before an interruption: another number may change the last bits of sums."""
    file, now = place / "threads", torch.get_num_threads()
    then = int(file.read_text()) if _checkpoints(place) and file.exists() else now
    write_atomically(file, str(then).encode())
    torch.set_num_threads(then)
    try:
        yield
        file.unlink(missing_ok=True)
    finally:
        torch.set_num_threads(now)


@contextmanager
def asked_to_stop() -> Iterator[list[int]]:
    """A list that fills when the user asks to stop: a run ends between two steps, or at once at one more Ctrl-C.

    SIGTERM may come several times, from all who end a group of processes.
    """
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: object) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    # A shell starts background jobs with Ctrl-C ignored: it stays so.
    wanted = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    usual = {number: signal.signal(number, ask) for number in wanted}
    try:
        yield asked
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


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


def record_of(
    spec: RunSpec, adapter: Adapter, steps: Sequence[dict[str, Any]], command: str, *, complete: bool = True
) -> dict[str, Any]:
    """The record of a run that has ended, or of its part so far, from what its steps logged."""
    counts: dict[str, list[int]] = {}
    for step in steps:
        domain = counts.setdefault(step["domain"], [0, 0])
        domain[0] += step["images"]
        domain[1] += step["wrong"]
    errors = {domain: 100 * wrong / images for domain, (images, wrong) in counts.items()}
    seconds = sum(step["seconds"] for step in steps)
    images = sum(images for images, _ in counts.values())
    device = str(next(adapter.parameters()).device)
    settings = {name: _plain(value) for name, value in adapter.settings.items()}
    return {
        "format": FORMAT,
        "address": spec.address,
        "spec": spec.to_json(),
        "settings": settings,
        "source_free": adapter.source_free,
        "metric": "error, percent of answers that are wrong",
        "direction": "lower is better",
        "normalisation": f"inside Classifier, mean {spec.model.get('mean')}, std {spec.model.get('std')}",
        "order": _order(spec),
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
        "complete": complete,
    }


def _order(spec: RunSpec) -> str:
    """How the images of a stream are ordered."""
    if spec.protocol.get("name") == "mixed":
        return f"all domains shuffled into one with seed {spec.seed}"
    if spec.protocol.get("name") == "correlated":
        return f"classes in clumps within a domain: shares of a Dirichlet of {CONCENTRATION}, seed {spec.seed}"
    return f"shuffled within a domain with seed {spec.seed}, one permutation for all domains of one size"


def _plain(value: Any) -> Any:
    """A setting as JSON; a tensor by its digest, a function or module by its name."""
    if isinstance(value, Tensor):
        return f"tensor {hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes()).hexdigest()}"
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
