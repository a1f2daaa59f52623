"""Run a method through a stream; the run can be stopped at any time, and resumes where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from ctta.adapter import Adapter
from ctta.bench.folder import RunFolder, steps_before, sync
from ctta.bench.interrupt import stop_requests
from ctta.bench.memory import peak_memory, reset_peak_memory
from ctta.bench.new_record import new_record
from ctta.bench.prequential import scored
from ctta.bench.progress import RunStarted
from ctta.bench.record import Record
from ctta.bench.scores import rounds_of
from ctta.bench.spec import RunSpec
from ctta.bench.steps import StepFacts, line_of
from ctta.classifier import Classifier
from ctta.errors import BadData, CttaError
from ctta.streams.stream import Stream


@dataclass(frozen=True)
class Run:
    """A run that is ready to start or resume.

    Args:
        spec: Specification of the run; its address names the run's folder.
        build: Builds the method around its source model.
        model: The source model, for a method that is loaded from a checkpoint.
        stream: The stream.
        command: The command line for the record.
        keep: Whether to keep the adapted model.
        own_process: Whether the process runs nothing else, so that its memory is that of the run.
        data_title: The name of the user's own folder or file, if the data has no other name.
        class_names: The names of the classes in the order of the labels, if class folders define them.
        settings: Returns the arguments with which the run would compute today; None accepts what is in the folder.
    """

    spec: RunSpec
    build: Callable[[], Adapter]
    model: Classifier
    stream: Stream
    command: str = ""
    keep: bool = False
    own_process: bool = True
    data_title: str | None = None
    class_names: tuple[str, ...] = ()
    settings: Callable[[], Mapping[str, object]] | None = None

    def execute(self, folder: Path, *, save_every: float = 30.0, progress: RunStarted | None = None) -> Record:
        """Return the existing record of the run, or run it, resuming from the last checkpoint if there is one.

        Args:
            folder: Folder of the runs.
            save_every: Seconds between two checkpoints.
            progress: Called when steps are about to be computed.

        Raises:
            ConcurrentUse: Another process is working on the run.
            BadData: The run's files are damaged, or were made when the method had other defaults.
        """
        mine = RunFolder(folder / self.spec.address)
        record = mine.finished_record()
        if record is not None:
            self._check_defaults(mine, record.settings)
        if record is None:
            mine.create()
            with mine.lock():
                # Another process may have finished it before we got the lock.
                record = mine.finished_record() or self._compute(mine, save_every, progress)
        if self.keep and not mine.adapted_file.exists():
            self._add_model(mine, record, save_every, progress)
        return record

    def _check_defaults(self, folder: RunFolder, made_with: Mapping[str, object]) -> None:
        """Refuse a run that was made when the method had other defaults, which its address does not hold."""
        for name, value in (self.settings() if self.settings is not None else {}).items():
            if name in made_with and made_with[name] != value:
                raise BadData(
                    f"{folder.path} was made by a version of ctta in which {name} of {self.spec.method} was "
                    f"{made_with[name]!r} by default; now it is {value!r}. Use another --out to keep the old run, or "
                    "delete the folder to make the run again."
                )

    def _add_model(self, folder: RunFolder, record: Record, save_every: float, progress: RunStarted | None) -> None:
        """Repeat a finished run in another folder, which leaves its own untouched, to get the adapted model."""
        again = folder.sibling
        again.create()
        with again.lock():
            # Another process may have added it before we got the lock.
            if not folder.adapted_file.exists():
                repeated = again.finished_record() if again.adapted_file.exists() else None
                repeated = repeated or self._compute(again, save_every, progress)
                if repeated.counts != record.counts:
                    again.delete()
                    raise BadData(
                        f"{folder.path} is finished with an error of {record.mean:.2f} %. Repeated to keep the adapted "
                        f"model, the run has {repeated.mean:.2f} %: other code or another machine made it. Delete the "
                        "folder to make the run again."
                    )
                again.adapted_file.replace(folder.adapted_file)
            again.delete()

    def _compute(self, folder: RunFolder, save_every: float, progress: RunStarted | None) -> Record:
        with _same_threads(folder):
            return self._compute_steps(folder, save_every, progress)

    def _compute_steps(self, folder: RunFolder, save_every: float, progress: RunStarted | None) -> Record:
        if self.own_process:
            reset_peak_memory()
        adapter, steps = self._resume(folder) or (self.build(), [])
        done = len(steps)
        # The log may be ahead of the checkpoint; those steps are computed again now.
        folder.keep_steps(steps)
        show = progress(adapter, len(self.stream) - done) if progress is not None else None
        with folder.steps_file.open("a", encoding="utf-8") as file:
            saved = time.monotonic()
            with stop_requests() as stop:
                batches = self.stream.starting_at(done)
                for batch, log in scored(
                    adapter, batches, learn=self.spec.learn, rest_on=self.spec.rest_on, resets=self.spec.resets
                ):
                    steps.append(log)
                    file.write(line_of(log))
                    if show is not None:
                        show(batch, log)
                    # Checkpoint only between two steps: here the adapter's state matches the step log.
                    if stop or time.monotonic() - saved >= save_every:
                        folder.save_checkpoint(adapter.save, len(steps), file)
                        folder.write_record(self._record(adapter, steps, complete=False))
                        saved = time.monotonic()
                    if stop:
                        raise KeyboardInterrupt
            sync(file)
        record = self._record(adapter, steps, complete=True)
        # Write the record last: once it exists the run counts as finished, so everything else must be on disk.
        if self.keep:
            adapter.save(folder.adapted_file)
        folder.write_record(record)
        folder.delete_checkpoints()
        return record

    def _record(self, adapter: Adapter, steps: list[StepFacts], *, complete: bool) -> Record:
        return new_record(
            self.spec,
            adapter,
            steps,
            rounds=rounds_of(steps, len(self.stream), self.spec.times),
            command=self.command,
            peak_memory=peak_memory() if self.own_process else None,
            complete=complete,
            data_title=self.data_title,
            class_names=self.class_names,
        )

    def _resume(self, folder: RunFolder) -> tuple[Adapter, list[StepFacts]] | None:
        """The adapter of the newest intact checkpoint and the steps before it; None if there is no checkpoint yet."""
        first: CttaError | None = None
        for path in reversed(folder.checkpoints()):
            try:
                done = steps_before(path)
                if done > len(self.stream):
                    raise BadData(f"{path} is at step {done} of a stream of {len(self.stream)}.")
                steps = folder.first_steps(done)
                adapter = Adapter.load(path, self.model)
            except CttaError as error:
                first = first or error
            else:
                self._check_defaults(folder, adapter.settings)
                return adapter, steps
        if first is not None:
            raise BadData(
                f"This run cannot resume, because its checkpoints or its log are damaged: {first} "
                f"Delete {folder.path} to make the run again."
            ) from first
        return None


@contextmanager
def _same_threads(folder: RunFolder) -> Iterator[None]:
    """Compute with as many threads as before an interruption."""
    now = torch.get_num_threads()
    with folder.threads(now) as threads:
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(now)
