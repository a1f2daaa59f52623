"""What the figures of a report share: a style that a phone shows, and the logs behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ctta.bench.report.runs import Line, Log


class Picture(NamedTuple):
    """A figure as an SVG file, and the sentence below it."""

    svg: bytes
    caption: str


@contextmanager
def phone_style() -> Iterator[None]:
    """Figures begun here have small text, and show the words of records as they are, dollar signs included."""
    import matplotlib as mpl  # noqa: PLC0415 - an optional dependency

    with mpl.rc_context(
        {
            "font.size": 8.5,
            "axes.labelsize": 8.5,
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
            "legend.fontsize": 8,
            "axes.linewidth": 0.6,
            "axes.formatter.useoffset": False,
            "text.parse_math": False,
        }
    ):
        yield


def shared_stretches(logs: Sequence[Log]) -> list[tuple[str, int, int]] | None:
    """The stretches of the stream, where all these runs saw the same ones."""
    first = logs[0].stretches()
    return first if all(log.stretches() == first for log in logs[1:]) else None


def logs_of(line: Line) -> list[Log]:
    """The logs of a row's runs that have any steps."""
    return [run.log for run in line.runs if run.log is not None and run.log.steps]
