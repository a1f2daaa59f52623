"""Make the record of a run from its steps."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import numpy
import torch
from torch import Tensor

from ctta.adapter import Adapter
from ctta.bench.folder import STEPS
from ctta.bench.record import FORMAT, SCORED_AFTER, Record
from ctta.bench.scores import Scores
from ctta.bench.spec import RunSpec
from ctta.bench.steps import StepFacts
from ctta.protocol import order_text
from ctta.version import __version__


def new_record(
    spec: RunSpec,
    adapter: Adapter,
    steps: Sequence[StepFacts],
    *,
    rounds: Sequence[float] | None = None,
    command: str = "",
    peak_memory: int | None = None,
    complete: bool = True,
    data_title: str | None = None,
    class_names: Sequence[str] = (),
) -> Record:
    """Build the record of a finished run, or of what an unfinished one has done so far.

    Args:
        spec: Specification of the run.
        adapter: The method, after the last of the steps.
        steps: What each step logged.
        rounds: The error of each round, if the stream repeats.
        command: The command line that started the run.
        peak_memory: The largest resident size of the process in bytes, if that is known.
        complete: Whether the stream has ended.
        data_title: The name of the user's own folder or file, if the data has no other name.
        class_names: The names of the classes in the order of the labels, if class folders define them.
    """
    scores = Scores.of_steps(steps)
    seconds = sum(step["seconds"] for step in steps)
    record = Record(
        format=FORMAT,
        address=spec.address,
        spec=spec,
        settings=plain_settings(adapter),
        source_free=adapter.source_free,
        metric="error, percent of answers that are wrong",
        direction="lower is better",
        normalisation=f"inside Classifier, mean {spec.model.get('mean')}, std {spec.model.get('std')}",
        order=order_text(spec.protocol, spec.seed),
        scored=_scored(spec, adapter),
        passes=adapter.passes,
        errors=scores.errors,
        mean=scores.mean,
        counts=scores.counts,
        images=scores.images,
        images_per_second=scores.images / seconds if seconds else 0.0,
        seconds=seconds,
        peak_memory=peak_memory,
        skipped=adapter.skipped,
        environment=environment(str(next(adapter.parameters(), torch.empty(0)).device)),
        steps=STEPS,
        command=command,
        complete=complete,
        rounds=None if rounds is None else tuple(rounds),
        data_title=data_title,
        class_names=tuple(class_names) or None,
    )
    # Convert to plain JSON values, so that the record equals the one that is later read from its file.
    return Record.from_json(record.to_json())


def environment(device: str) -> dict[str, object]:
    """Versions, threads, device and processor.

    Args:
        device: Name of the device that the run used.
    """
    return {
        "ctta": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "pillow": version("pillow"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "device": device,
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    """The name of the processor."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return platform.processor() or platform.machine()


def plain_settings(adapter: Adapter) -> dict[str, object]:
    """The arguments of a method as its record holds them.

    Args:
        adapter: The method.
    """
    return {name: _plain(value) for name, value in adapter.settings.items()}


def is_plain(value: object) -> bool:
    """Whether a record holds a setting as it is.

    Args:
        value: The setting.
    """
    return isinstance(value, (bool, int, float, str, type(None)))


def _plain(value: object) -> object:
    """A setting as JSON: a tensor by its digest, a function or module by its repr."""
    if isinstance(value, Tensor):
        return f"tensor {hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes()).hexdigest()}"
    return value if is_plain(value) else repr(value)


def _scored(spec: RunSpec, adapter: Adapter) -> str:
    if not adapter.predicts_first:
        return SCORED_AFTER
    return "the answer given before learning from the batch" if spec.learn else "answers without learning"
