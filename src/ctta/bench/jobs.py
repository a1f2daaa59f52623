"""Jobs: what to run, and how. They are plain values, so that any process can run one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ctta._system.device import choose_device
from ctta._system.imports import no_exit
from ctta.adapter import Adapter
from ctta.bench.arguments import build_adapter, method_arguments, settings_of
from ctta.bench.folder import RunFolder
from ctta.bench.prepare import prepare
from ctta.bench.progress import RunStarted
from ctta.bench.record import Record
from ctta.bench.run import Run
from ctta.bench.tracked_run import TrackedRun
from ctta.bench.workload import Inputs, Procedure, Workload
from ctta.track import Target, check_targets

__all__ = ["Inputs", "Job", "Procedure", "RunOptions", "Workload", "execute", "measure_source"]


@dataclass(frozen=True)
class RunOptions:
    """How to run a job: what to keep and show, and on which device to compute.

    Args:
        keep: Whether to keep the adapted model.
        command: Command line for the record.
        track: Where to track the run while it goes on.
        device: Where to compute; None means the best device of the machine that the job runs on.
    """

    keep: bool = False
    command: str = ""
    track: tuple[Target, ...] = ()
    device: str | None = None


@dataclass(frozen=True)
class Job:
    """One run.

    Args:
        work: What to run.
        options: How to run it.
    """

    work: Workload
    options: RunOptions = RunOptions()

    def __str__(self) -> str:
        return f"{self.work.procedure.method} with seed {self.work.procedure.seed}"

    def with_seed(self, seed: int) -> Job:
        """Return the same job with another seed.

        Args:
            seed: The new seed.
        """
        return replace(self, work=self.work.with_seed(seed))

    def with_absolute_paths(self) -> Job:
        """Return the same job for use in any working directory."""
        options = replace(self.options, track=tuple(target.absolute() for target in self.options.track))
        return Job(self.work.with_absolute_paths(), options)

    def execute(self, folder: Path, *, save_every: float = 30.0, progress: RunStarted | None = None) -> Record:
        """Run the job; see `execute`.

        Args:
            folder: Folder of the runs.
            save_every: Seconds between two checkpoints.
            progress: Called when steps are about to be computed; None reports nothing.
        """
        return execute(self, folder, save_every=save_every, progress=progress)


def execute(job: Job, folder: Path, *, save_every: float = 30.0, progress: RunStarted | None = None) -> Record:
    """Run a job, or find its record.

    Args:
        job: The job.
        folder: Folder of the runs.
        save_every: Seconds between two checkpoints.
        progress: Called when steps are about to be computed.
    """
    with no_exit(f"The run of {job}"):  # the user's method, model and data are code that may do so
        return _execute(job, folder, save_every=save_every, progress=progress)


def _execute(job: Job, folder: Path, *, save_every: float, progress: RunStarted | None) -> Record:
    work, options = job.work, job.options
    check_targets(options.track)
    method_arguments(work)  # refuse invalid settings before anything large is read
    prepared = prepare(work, choose_device(options.device))
    prepared.check()
    spec, source = prepared.specification(), prepared.source

    def build() -> Adapter:
        return build_adapter(work, source)

    run = Run(
        spec,
        build,
        source,
        prepared.stream,
        command=options.command,
        keep=options.keep,
        data_title=prepared.images.title,
        class_names=prepared.images.class_names,
        settings=lambda: settings_of(work, source),
    )
    if not options.track:
        return run.execute(folder, save_every=save_every, progress=progress)
    with TrackedRun(options.track, spec, RunFolder(folder / spec.address)) as tracked:
        record = run.execute(folder, save_every=save_every, progress=tracked.beside(progress))
        tracked.end(record)
    return record


def measure_source(job: Job, progress: Callable[[str, int, int], None] | None = None) -> None:
    """Measure the source model as the protocol of a job requires, so that the run finds the results in the cache.

    Args:
        job: The job.
        progress: Called with the name of the current part, the number of images done and the total.
    """
    prepare(job.work, choose_device(job.options.device), progress=progress)
