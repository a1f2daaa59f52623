"""TensorBoard events of a run: the numbers of every step while it goes on, the errors of the domains at its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ctta.adapter import Adapter
from ctta.bench.compare import label
from ctta.bench.prequential import Progress
from ctta.bench.run import Listen
from ctta.bench.spec import RunSpec
from ctta.bench.steps import read_steps, steps_file
from ctta.errors import MissingExtra
from ctta.streams.batch import Batch

_FLUSH_SECONDS = 10


def require_tensorboard() -> None:
    """Raise MissingExtra where TensorBoard is not installed."""
    try:
        import tensorboard  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingExtra("tensorboard", "tensorboard") from error


class Events:
    """The events of one run, in a folder of its own below ``directory``.

    They are written from the run's log, ``place`` / steps.jsonl, where it was interrupted or done before, and else as
    the steps are made. Older events of the same run are replaced.
    """

    def __init__(self, directory: Path, spec: RunSpec, place: Path) -> None:
        self._directory, self._spec, self._place = directory, spec, place
        self._writer: Any = None
        self._last: dict[str, int] = {}  # the last step of each domain

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def beside(self, listen: Listen | None) -> Listen:
        """A listener that writes every step, and tells another listener too."""

        def start(adapter: Adapter, steps: int) -> Progress:
            self._begin(source_free=adapter.source_free)
            other = None if listen is None else listen(adapter, steps)

            def hear(batch: Batch, log: dict[str, Any]) -> None:
                self._step(log)
                if other is not None:
                    other(batch, log)

            return hear

        return start

    def end(self, record: dict[str, Any]) -> None:
        """Write what is known at the end: the error of every domain, their mean, and the facts of the record."""
        if self._writer is None:
            self._begin(source_free=record["source_free"])
        read_steps(self._place, record["counts"])
        for domain, error in record["errors"].items():
            self._writer.add_scalar(f"domain/{domain}", error, self._last[domain])
        self._writer.add_scalar("mean", record["mean"], max(self._last.values()))
        self._writer.add_text("run", _facts(record))

    def _begin(self, *, source_free: bool) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415, an extra

        folder = self._directory / _name(self._spec, source_free=source_free)
        for older in folder.glob("events.out.tfevents.*"):
            older.unlink()
        self._writer = SummaryWriter(str(folder), flush_secs=_FLUSH_SECONDS)
        for step in read_steps(self._place) if steps_file(self._place) is not None else ():
            self._step(step)

    def _step(self, log: dict[str, Any]) -> None:
        self._last[log["domain"]] = log["index"]
        for key, value in log.items():
            if key != "index" and isinstance(value, (int, float)):
                self._writer.add_scalar(f"step/{key}", float(value), log["index"])


def _name(spec: RunSpec, *, source_free: bool) -> str:
    """The label of a run, its seed and the beginning of its address, as the name of a folder."""
    words = re.sub(r"[^\w.=^-]+", "_", label({"spec": spec.to_json(), "source_free": source_free}))
    return f"{words[:100]}_seed={spec.seed}_{spec.address[:8]}"


def _facts(record: dict[str, Any]) -> str:
    """The command, settings, specification and environment of a record as a Markdown table."""
    facts = {"command": record["command"], "address": record["address"]}
    for part in ("settings", "spec", "environment"):
        facts |= {f"{part}.{key}": value for key, value in record[part].items()}
    rows = [f"| {key} | {str(value).replace('|', '/')} |" for key, value in facts.items()]
    return "\n".join(["| | |", "|---|---|", *rows])
