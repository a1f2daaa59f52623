"""Say on stderr how many steps the domains of a run have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

import typer

from ctta.errors import BadData, MissingData

if TYPE_CHECKING:
    from ctta.bench.folder import RunFolder
    from ctta.bench.record import Record

#: With fewer steps than this, a method that learns has hardly begun when the domain ends.
_ENOUGH = 3
#: A batch size that is suggested is at most this.
_LARGEST = 64


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
        smaller = min(images[few] // _ENOUGH, _LARGEST)
        remedy = f"a smaller --batch-size, such as {smaller}" if 1 < smaller < size else "more images per domain"
        typer.echo(
            f"FEW STEPS: {record.spec.method} learns once per step, and {few} has only "
            f"{_counted([steps[few]], 'step')}. Use {remedy}.",
            err=True,
        )


def _counted(numbers: Collection[int], noun: str) -> str:
    """A number with its noun, or the range of several."""
    low, high = min(numbers), max(numbers)
    return f"{low if low == high else f'{low} to {high}'} {noun}{'' if high == 1 else 's'}"
