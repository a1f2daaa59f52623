"""TensorBoard events of a run: the numbers of every step as it is computed, the errors of the domains at the end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ctta.adapter import Adapter
from ctta.bench.compare import label_of
from ctta.bench.folder import RunFolder
from ctta.bench.progress import Progress, RunStarted
from ctta.bench.record import Record
from ctta.bench.spec import RunSpec
from ctta.bench.steps import StepFacts
from ctta.errors import MissingExtra
from ctta.method_table import AFTER
from ctta.streams.batch import Batch

_FLUSH_SECONDS = 10


def require_tensorboard() -> None:
    """Raise MissingExtra if TensorBoard is not installed."""
    try:
        import tensorboard  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingExtra("tensorboard", "tensorboard") from error


class Events:
    """The events of one run, in a folder of their own.

    Steps that were logged before the run was resumed, or by a run that had already finished, are copied from its log.
    Older events of the same run are replaced.

    Args:
        directory: Folder of all events.
        spec: Specification of the run.
        run: Folder of the run.
    """

    def __init__(self, directory: Path, spec: RunSpec, run: RunFolder) -> None:
        self._directory = directory
        self._spec = spec
        self._run = run
        self._writer: Any = None
        self._last: dict[str, int] = {}  # the last step of each domain

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def beside(self, other: RunStarted | None) -> RunStarted:
        """Return a callback that writes every step.

        Args:
            other: Another callback, which is called too.
        """

        def started(adapter: Adapter, steps: int) -> Progress:
            self._begin(source_free=adapter.source_free)
            show = None if other is None else other(adapter, steps)

            def step(batch: Batch, log: StepFacts) -> None:
                self._step(log)
                if show is not None:
                    show(batch, log)

            return step

        return started

    def end(self, record: Record) -> None:
        """Write the final results: the error of every domain, their mean, and the facts of the record.

        Args:
            record: The record of the run.
        """
        if self._writer is None:
            self._begin(source_free=record.source_free)
        self._run.read_steps(record.counts)
        for domain, error in record.errors.items():
            self._writer.add_scalar(f"domain/{domain}", error, self._last[domain])
        self._writer.add_scalar("mean", record.mean, max(self._last.values()))
        self._writer.add_text("run", _facts(record))

    def _begin(self, *, source_free: bool) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415, an extra

        folder = self._directory / _name(self._spec, source_free=source_free)
        for older in folder.glob("events.out.tfevents.*"):
            older.unlink()
        self._writer = SummaryWriter(str(folder), flush_secs=_FLUSH_SECONDS)
        for step in self._run.read_steps() if self._run.has_steps() else ():
            self._step(step)

    def _step(self, log: StepFacts) -> None:
        self._last[log["domain"]] = log["index"]
        for key, value in log.items():
            if key != "index" and isinstance(value, (int, float)):
                self._writer.add_scalar(f"step/{key}", float(value), log["index"])


def _name(spec: RunSpec, *, source_free: bool) -> str:
    """The label of a run, its seed and the beginning of its address, as the name of a folder."""
    label = label_of(spec, source_free=source_free).replace(AFTER, "")
    words = re.sub(r"[^\w.=^-]+", "_", label)
    return f"{words[:100]}_seed={spec.seed}_{spec.address[:8]}"


def _facts(record: Record) -> str:
    """The command, settings, specification and environment of a record as a Markdown table."""
    facts: dict[str, object] = {"command": record.command, "address": record.address}
    parts = {"settings": record.settings, "spec": record.spec.to_json(), "environment": record.environment}
    for part, values in parts.items():
        facts |= {f"{part}.{key}": value for key, value in values.items()}
    rows = [f"| {key} | {str(value).replace('|', '/')} |" for key, value in facts.items()]
    return "\n".join(["| | |", "|---|---|", *rows])
