"""MLflow: a run in a SQLite database, which `mlflow ui` shows.

A run that is tracked again continues, and keeps its id and what was added to it by hand.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from ctta.track.tracker import RunName

#: The database in the folder of the target, and the tag with the key of a run.
DATABASE = "mlflow.db"
KEY_TAG = "ctta.key"

_FLUSH_SECONDS = 2.0
_MOST_METRICS, _MOST_PARAMETERS = 1000, 100  # in one request to MLflow
_LONGEST_NAME = 250
_LOCK_SECONDS = 60  # that a writer waits for another one


def open_run(directory: Path, run: RunName) -> MlflowRun:
    """Open a run, or continue it.

    MLflow's telemetry is switched off, unless the environment variable MLFLOW_DISABLE_TELEMETRY says otherwise.

    Args:
        directory: Folder of the database.
        run: How the run is found and shown.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when MLflow is imported
    from mlflow import MlflowClient  # noqa: PLC0415, an extra

    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    folder = directory.absolute()
    with _exclusive(folder / f"{DATABASE}.lock"):
        client = MlflowClient(tracking_uri=f"sqlite:///{folder / DATABASE}?timeout={_LOCK_SECONDS}")
        found = client.get_experiment_by_name(run.group)
        experiment = (
            client.create_experiment(run.group, artifact_location=(folder / "artifacts").as_uri())
            if found is None
            else found.experiment_id
        )
        known = client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{run.key}'", max_results=1)
        if known:
            client.update_run(known[0].info.run_id, status="RUNNING")
        made = known[0] if known else client.create_run(experiment, run_name=run.name, tags={KEY_TAG: run.key})
    return MlflowRun(client, made.info.run_id, tuple(made.data.metrics))


class MlflowRun:
    """Writes the numbers that a run of MLflow does not have yet.

    Args:
        client: The client of the database.
        run: The id of the run.
        metrics: The names of the metrics that the run has already.
    """

    def __init__(self, client: Any, run: str, metrics: tuple[str, ...] = ()) -> None:
        self._client = client
        self._run = run
        self._last = {name: max(m.step for m in client.get_metric_history(run, name)) for name in metrics}
        self._facts: dict[str, str] = {}
        self._unwritten: list[Any] = []
        self._written = time.monotonic()

    def describe(self, facts: Mapping[str, object]) -> None:
        """Write facts as parameters; see `Tracker.describe`. One that has another value already keeps it.

        MLflow does not change parameters.
        """
        from mlflow.entities import Param  # noqa: PLC0415

        if not self._facts:
            self._facts = dict(self._client.get_run(self._run).data.params)
        new = {_name(key): str(value) for key, value in facts.items() if _name(key) not in self._facts}
        self._facts |= new
        parameters = (Param(key, value) for key, value in new.items())
        while some := list(islice(parameters, _MOST_PARAMETERS)):
            self._client.log_batch(self._run, params=some)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of a step, at the latest two seconds later; see `Tracker.log`."""
        from mlflow.entities import Metric  # noqa: PLC0415

        now = int(1000 * time.time())
        for given, value in numbers.items():
            name = _name(given)
            if step > self._last.get(name, -1):
                self._last[name] = step
                self._unwritten.append(Metric(name, value, now, step))
        if time.monotonic() - self._written >= _FLUSH_SECONDS:
            self._flush()

    def conclude(self, name: str, value: float, step: int) -> None:
        """Write a result; see `Tracker.conclude`."""
        self.log(step, {name: value})

    def close(self, *, finished: bool) -> None:
        """Write the rest and the status of the run; see `Tracker.close`."""
        self._flush()
        self._client.set_terminated(self._run, status="FINISHED" if finished else "KILLED")

    def _flush(self) -> None:
        rest = iter(self._unwritten)
        while some := list(islice(rest, _MOST_METRICS)):
            self._client.log_batch(self._run, metrics=some)
        self._unwritten = []
        self._written = time.monotonic()


def _name(text: str) -> str:
    """A name that MLflow allows; it reads a slash as a folder."""
    parts = (re.sub(r"[^\w\-. :]", "_", part) for part in text.split("/"))
    return "/".join(part for part in parts if part not in ("", ".", ".."))[:_LONGEST_NAME]


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Wait until no other process creates the database or a run in it."""
    try:
        import fcntl  # noqa: PLC0415, not on every platform
    except ModuleNotFoundError:
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
