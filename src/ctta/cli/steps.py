"""Say on stderr what the labels of a run mean, and how many steps its domains have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from ctta.bench.defaults import default_arguments
from ctta.datasets.folder import CLASS_LIST
from ctta.errors import BadData, MissingData
from ctta.registry import get_method

if TYPE_CHECKING:
    from ctta.bench.folder import RunFolder
    from ctta.bench.record import Record

#: With fewer steps than this, a method that learns has hardly begun when the domain ends.
_ENOUGH = 3
#: As many class names are printed at most.
_MOST_NAMES = 12
#: A batch size that is suggested is at most this.
_LARGEST = 64


def echo_classes(record: Record) -> None:
    """Print the classes of the user's own folders in the order of the labels, which must be that of the model.

    Args:
        record: The record of a run.
    """
    if record.data_title is None or not record.class_names:
        return
    names = [f"{label} {name}" for label, name in enumerate(record.class_names)]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    typer.echo(
        f"labels: {', '.join(names[:_MOST_NAMES])}{more}. If the model counts them otherwise, list its classes in "
        f"{CLASS_LIST}, beside the domains.",
        err=True,
    )


def echo_swept(method: str, dataset: str, batch_size: int, sweeps: Sequence[Mapping[str, object]]) -> None:
    """Print the values of swept arguments that labels leave out: those of the recipe.

    Args:
        method: Name of the method.
        dataset: Name of the dataset.
        batch_size: Images per batch.
        sweeps: The swept arguments of every run; empty mappings without a sweep.
    """
    if not sweeps[0]:
        return
    usual = default_arguments(get_method(method), dataset, batch_size)
    values = ", ".join(f"{name}={usual[name]}" for name in sweeps[0])
    typer.echo(f"A row that does not name it has the value of the recipe: {values}.", err=True)


def echo_steps(record: Record, folder: RunFolder, *, learns: bool) -> None:
    """Print the number of images, the batch size and the number of steps of each domain; warn if they are few.

    Args:
        record: The record of a run.
        folder: Its folder. If the step log is missing or damaged, nothing is printed.
        learns: Whether the method learns from the stream.
    """
    try:
        log = folder.read_steps(record.counts)
    except (MissingData, BadData):
        return
    steps = Counter(step["domain"] for step in log)
    images = {domain: count.images for domain, count in record.counts.items()}
    size = record.spec.batch_size
    typer.echo(
        f"{_counted([len(steps)], 'domain')} x {_counted(images.values(), 'image')}, batches of {size}: "
        f"{_counted(steps.values(), 'step')} per domain",
        err=True,
    )
    few = min(steps, key=lambda domain: steps[domain])
    if learns and steps[few] < _ENOUGH:
        smaller = _smaller_batch(images[few])
        fits = smaller is not None and smaller < size
        remedy = f"a smaller --batch-size, such as {smaller}" if fits else "more images per domain"
        typer.echo(
            f"FEW STEPS: {record.spec.method} learns once per step, and {few} has only "
            f"{_counted([steps[few]], 'step')}. Use {remedy}.",
            err=True,
        )


def _smaller_batch(images: int) -> int | None:
    """A batch size that gives enough steps, with equal batches if possible and never a single image at the end."""
    most = min(images // _ENOUGH, _LARGEST)
    even = (size for size in range(most, max(most // 2, 1), -1) if images % size == 0)
    return next(even, None) or next((size for size in range(most, 1, -1) if images % size != 1), None)


def _counted(numbers: Collection[int], noun: str) -> str:
    """A number with its noun, or the range of several."""
    low, high = min(numbers), max(numbers)
    return f"{low if low == high else f'{low} to {high}'} {noun}{'' if high == 1 else 's'}"
