"""Track a run: the numbers of every step as it is computed, the errors of the domains at the end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ctta.adapter import Adapter
from ctta.bench.compare import label_of
from ctta.bench.folder import RunFolder
from ctta.bench.new_record import plain_settings
from ctta.bench.progress import Progress, RunStarted
from ctta.bench.record import Record
from ctta.bench.spec import RunSpec
from ctta.bench.steps import StepFacts
from ctta.streams.batch import Batch
from ctta.track import RunName, Target, Tracker, open_tracker


class TrackedRun:
    """Sends the numbers of one run to trackers; to be used in a ``with`` statement.

    Steps that were logged before the run was resumed, or by a run that had already finished, are read from its log.

    Args:
        targets: Where to track the run.
        spec: Specification of the run.
        folder: Folder of the run.
    """

    def __init__(self, targets: Sequence[Target], spec: RunSpec, folder: RunFolder) -> None:
        self._targets = targets
        self._spec = spec
        self._folder = folder
        self._tracker: Tracker | None = None
        self._last: dict[str, int] = {}  # the last step of each domain
        self._next = 0
        self._finished = False

    def __enter__(self) -> TrackedRun:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tracker is not None:
            self._tracker.close(finished=self._finished)

    def beside(self, other: RunStarted | None) -> RunStarted:
        """Return a callback that tracks every step.

        Args:
            other: Another callback, which is called too.
        """

        def started(adapter: Adapter, steps: int) -> Progress:
            tracker = self._open(source_free=adapter.source_free)
            tracker.describe(_named("settings", plain_settings(adapter)))
            show = None if other is None else other(adapter, steps)

            def step(batch: Batch, log: StepFacts) -> None:
                self._log(tracker, log)
                if show is not None:
                    show(batch, log)

            return step

        return started

    def end(self, record: Record) -> None:
        """Track the results: the error of every domain, their mean, and the facts of the record.

        Args:
            record: The record of the run.
        """
        tracker = self._tracker or self._open(source_free=record.source_free)
        self._folder.read_steps(record.counts)
        for domain, error in record.errors.items():
            tracker.conclude(f"domain/{domain}", error, self._last[domain])
        tracker.conclude("mean", record.mean, max(self._last.values()))
        tracker.describe({"command": record.command} | _named("settings", record.settings))
        tracker.describe(_named("environment", record.environment))
        self._finished = True

    def _open(self, *, source_free: bool) -> Tracker:
        spec = self._spec
        name = RunName(spec.address, _name(spec, source_free=source_free), f"ctta-{spec.data_name}")
        self._tracker = tracker = open_tracker(self._targets, name)
        tracker.describe({"address": spec.address} | _named("spec", spec.to_json()))
        for step in self._folder.read_steps() if self._folder.has_steps() else ():
            self._log(tracker, step)
        return tracker

    def _log(self, tracker: Tracker, log: StepFacts) -> None:
        if log["index"] < self._next:  # a finished run is repeated to keep its model
            return
        self._next = log["index"] + 1
        self._last[log["domain"]] = log["index"]
        numbers = {
            f"step/{key}": float(value)
            for key, value in log.items()
            if key != "index" and isinstance(value, (int, float))
        }
        tracker.log(log["index"], numbers)


def _name(spec: RunSpec, *, source_free: bool) -> str:
    """The label of a run, its seed and the beginning of its address, as the name of a folder."""
    words = re.sub(r"[^\w.=^-]+", "_", label_of(spec, source_free=source_free))
    return f"{words[:100]}_seed={spec.seed}_{spec.address[:8]}"


def _named(part: str, facts: Mapping[str, object]) -> dict[str, object]:
    """Facts with the name of the part that they belong to."""
    return {f"{part}.{name}": value for name, value in facts.items()}
