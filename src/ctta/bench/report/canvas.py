"""What the figures of a report share: a width that a phone shows, labels that fit, domains along the stream."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ctta.bench.plots import EDGE
from ctta.bench.report.runs import Line, Log

#: Inches: text stays readable on a phone, and two figures stand side by side elsewhere.
WIDTH = 4.6
#: Points of a line: about as many as a phone can show.
MOST_POINTS = 250
#: Names of domains that fit along a stream.
_MOST_NAMES, _MOST_BOUNDARIES = 20, 80


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


def short(label: str, width: int = 22, lines: int = 3) -> str:
    """A label in a few short lines; what cannot be drawn is left out."""
    drawn = "".join(c if c.isprintable() else " " for c in label)
    return "\n".join(textwrap.wrap(drawn, width, max_lines=lines, placeholder=" …")) or "?"


def legend_below(figure: Any, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend under the panels, in as many columns as fit, read row by row."""
    widest = max(len(part) for label in labels for part in label.split("\n"))
    fitting = max(1, min(len(labels), int(72 * WIDTH / (5 * widest + 36))))
    rows = -(-len(labels) // fitting)
    columns = -(-len(labels) // rows)
    # matplotlib fills one column after the other, the first ones with one more.
    order = [place for column in range(columns) for place in range(column, len(labels), columns)]
    figure.legend(
        [handles[place] for place in order],
        [labels[place] for place in order],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        handlelength=2.6,
    )


def mark_domains(panel: Any, stretches: Sequence[tuple[str, int, int]], *, names: bool) -> None:
    """Lines where the domain changes, and the names of the domains above."""
    end = stretches[-1][2]
    panel.set_xlim(-0.5, end - 0.5)
    if len(stretches) <= _MOST_BOUNDARIES:
        for _, begin, _ in stretches[1:]:
            panel.axvline(begin - 0.5, color=EDGE, linewidth=0.7, zorder=0)
    if names and 1 < len(stretches) <= _MOST_NAMES:
        above = panel.secondary_xaxis("top")
        centres = [(begin + end - 1) / 2 for _, begin, end in stretches]
        above.set_xticks(centres, [domain_name(name) for name, _, _ in stretches], rotation=90, fontsize=7.5)
        above.tick_params(length=0, pad=1)
        above.spines["top"].set_visible(False)


def domain_name(name: str) -> str:
    """A domain as it is written under an axis."""
    return short(name.replace("_", " "), lines=1)


def shared_stretches(logs: Sequence[Log]) -> list[tuple[str, int, int]] | None:
    """The stretches of the stream, where all these runs saw the same ones."""
    first = logs[0].stretches()
    return first if all(log.stretches() == first for log in logs[1:]) else None


def logs_of(line: Line) -> list[Log]:
    """The logs of a row's runs that have any steps."""
    return [run.log for run in line.runs if run.log is not None and run.log.steps]


def step_label(log: Log) -> str:
    """What a step is, for an axis."""
    return f"step (one batch of {max(step['images'] for step in log.steps)} images)"
