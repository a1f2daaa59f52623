"""Progress bars on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


@contextmanager
def bytes_bar(name: str, *, quiet: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar for a download.

    Args:
        name: Text next to the bar.
        quiet: Show nothing.

    Returns:
        A function to call with the number of bytes downloaded so far and the total, if known.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), disable=quiet) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def parts_bar(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar for work in several parts.

    Args:
        quiet: Show nothing.

    Returns:
        A function to call with the name of the current part, the images done and the total.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} images"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), disable=quiet) as progress:
        task = progress.add_task("", total=None)
        yield lambda what, done, total: progress.update(task, description=what, completed=done, total=total)
