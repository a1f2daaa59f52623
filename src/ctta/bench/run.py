"""Run a method through a stream so that it can be stopped at any moment and goes on where it was."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from ctta.adapter import Adapter
from ctta.bench.memory import forget_peak, peak_memory
from ctta.bench.prequential import Progress, scored
from ctta.bench.record import FORMAT, NAME, environment, read_record, write_record
from ctta.bench.spec import RunSpec
from ctta.bench.steps import STEPS, line_of, numbered_steps
from ctta.classifier import Classifier
from ctta.errors import BadData, ConcurrentUse, CttaError
from ctta.files import write_atomically
from ctta.protocol import order_text
from ctta.streams.stream import Stream

ADAPTED = "adapted.ctta"
_KEPT = 2  # checkpoints
_NUMBERED = re.compile(r"step-[0-9]{8,12}\.ctta")
_MOST_THREADS = 4096

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
    if not (place / NAME).exists():
        return None
    try:
        record = read_record(place)
    except BadData:
        if not _checkpoints(place):
            raise
        return None  # a run with checkpoints goes on, and writes its record anew
    return record if record["complete"] else None


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
    adapter, steps = _resume(place, model, len(stream)) or (build(), [])
    done = len(steps)
    _rewrite(place / STEPS, steps)
    listener = progress(adapter, len(stream) - done) if progress is not None else None
    with (place / STEPS).open("a", encoding="utf-8") as file:
        saved = time.monotonic()
        with asked_to_stop() as stop:
            for batch, log in scored(adapter, stream.starting_at(done), learn=spec.learn, rest_on=spec.rest_on):
                steps.append(log)
                file.write(line_of(log))
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
    then = _read_threads(file) if _checkpoints(place) and file.exists() else now
    write_atomically(file, _threads_text(then).encode())
    torch.set_num_threads(then)
    try:
        yield
        file.unlink(missing_ok=True)
    finally:
        torch.set_num_threads(now)


def _read_threads(file: Path) -> int:
    try:
        with file.open("rb") as content:
            text = content.read(100).decode("ascii")
        # Older versions wrote the number alone.
        found = int(text if text.isdecimal() else text.split()[1])
        if 1 <= found <= _MOST_THREADS and text in (str(found), _threads_text(found)):
            return found
    except (OSError, ValueError, IndexError):
        pass
    raise BadData(
        f"{file} must hold the number of threads that the run began with, and is damaged. Delete {file.parent} to "
        "make the run again, or write the number into it."
    )


def _threads_text(threads: int) -> str:
    return f"threads {threads} {hashlib.sha256(str(threads).encode()).hexdigest()[:8]}\n"


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


def _resume(place: Path, model: Classifier, length: int) -> tuple[Adapter, list[dict[str, Any]]] | None:
    """The adapter of the newest sound checkpoint and the logs of the steps behind it; None if there is none yet."""
    first: CttaError | None = None
    for path in reversed(_checkpoints(place)):
        try:
            done = _steps_behind(path)
            if done > length:
                raise BadData(f"{path} is at step {done} of a stream of {length}.")
            steps = _first_steps(place / STEPS, done)
            return Adapter.load(path, model), steps
        except CttaError as error:
            first = first or error
    if first is not None:
        raise BadData(
            f"This run cannot go on, because its checkpoints or its log are damaged: {first} "
            f"Delete {place} to make the run again."
        ) from first
    return None


def _checkpoints(place: Path) -> list[Path]:
    return sorted((p for p in place.glob("step-*.ctta") if _NUMBERED.fullmatch(p.name)), key=_steps_behind)


def _steps_behind(checkpoint: Path) -> int:
    return int(checkpoint.stem.removeprefix("step-"))


def _checkpoint(place: Path, adapter: Adapter, done: int, file: TextIO) -> None:
    # The steps first: a checkpoint must never be ahead of the log it belongs to.
    _sync(file)
    adapter.save(place / f"step-{done:08d}.ctta")
    # The one before stays, in case this one is damaged.
    for path in _checkpoints(place)[:-_KEPT]:
        path.unlink()


def _sync(file: TextIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _first_steps(path: Path, count: int) -> list[dict[str, Any]]:
    """The first steps of a log."""
    steps = [step for step, _ in islice(numbered_steps(path), count)]
    if len(steps) < count:
        raise BadData(f"{path} holds {len(steps)} steps, fewer than the {count} of its checkpoint.")
    for number, step in enumerate(steps):
        if step["index"] != number or not {"wrong", "seconds"} <= set(step):
            raise BadData(f"Line {number + 1} of {path} is not step {number} of a run.")
    return steps


def _rewrite(path: Path, steps: Sequence[dict[str, Any]]) -> None:
    """Leave only these steps in a log: later ones are made again, and lines of older versions get their check."""
    content = "".join(map(line_of, steps)).encode()
    if path.exists() and path.read_bytes() != content:
        write_atomically(path, content)


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
        "order": order_text(spec.protocol, spec.seed),
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


def _plain(value: Any) -> Any:
    """A setting as JSON; a tensor by its digest, a function or module by its name."""
    if isinstance(value, Tensor):
        return f"tensor {hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes()).hexdigest()}"
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
