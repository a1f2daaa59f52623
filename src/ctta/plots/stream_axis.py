"""Shared by plots along a stream: width, labels that fit, domain boundaries."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ctta.plots.style import EDGE

#: Inches: readable on a phone, and two plots fit side by side on a desk.
WIDTH = 4.6
#: Most points of a line, about as many as a phone can resolve.
MOST_POINTS = 250
#: How many domain names and boundaries fit along a stream.
_MOST_NAMES, _MOST_BOUNDARIES = 20, 80

#: A domain, its first step, and the step after its last.
Stretch = tuple[str, int, int]


def stretches_of(steps: Sequence[dict[str, Any]]) -> list[Stretch]:
    """Split a stream into stretches of one domain each.

    Args:
        steps: The steps of a run.
    """
    found, begin = [], 0
    for domain, mine in groupby(steps, key=lambda step: str(step["domain"])):
        end = begin + sum(1 for _ in mine)
        found.append((domain, begin, end))
        begin = end
    return found


def step_label(steps: Sequence[dict[str, Any]]) -> str:
    """Axis label that says how many images a step has.

    Args:
        steps: The steps of a run.
    """
    return f"step (one batch of {max(step['images'] for step in steps)} images)"


def short(label: str, width: int = 22, lines: int = 3) -> str:
    """Wrap a label into a few short lines, without unprintable characters.

    Args:
        label: Any text.
        width: Most characters per line.
        lines: Most lines; longer labels end with an ellipsis.
    """
    drawn = "".join(c if c.isprintable() else " " for c in label)
    return "\n".join(textwrap.wrap(drawn, width, max_lines=lines, placeholder=" …")) or "?"


def legend_below(figure: Any, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Add a legend below the panels, read row by row, and make the figure taller by its height.

    Args:
        figure: The figure.
        handles: The drawn lines.
        labels: Their labels.
    """
    widest = max(len(part) for label in labels for part in label.split("\n"))
    fitting = max(1, min(len(labels), int(72 * figure.get_figwidth() / (5 * widest + 36))))
    rows = -(-len(labels) // fitting)
    columns = -(-len(labels) // rows)
    # matplotlib fills the legend column by column, longer columns first.
    order = [place for column in range(columns) for place in range(column, len(labels), columns)]
    highest = max(sum(label.count("\n") + 1.4 for label in labels[column::columns]) for column in range(columns))
    figure.set_figheight(figure.get_figheight() + 0.13 * highest)
    figure.legend(
        [handles[place] for place in order],
        [labels[place] for place in order],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        handlelength=2.6,
    )


def mark_domains(panel: Any, stretches: Sequence[Stretch], *, names: bool) -> bool:
    """Draw lines where the domain changes, and the names of the domains above the panel.

    Args:
        panel: The axes.
        stretches: The stretches of the stream.
        names: Whether to write the names.

    Returns:
        Whether there are lines: a stream of one domain or of very many has none.
    """
    end = stretches[-1][2]
    panel.set_xlim(-0.5, end - 0.5)
    marked = 1 < len(stretches) <= _MOST_BOUNDARIES
    for _, begin, _ in stretches[1:] if marked else ():
        panel.axvline(begin - 0.5, color=EDGE, linewidth=0.7, zorder=0)
    if names and 1 < len(stretches) <= _MOST_NAMES:
        above = panel.secondary_xaxis("top")
        centres = [(begin + end - 1) / 2 for _, begin, end in stretches]
        above.set_xticks(centres, [domain_name(name) for name, _, _ in stretches], rotation=90, fontsize=7.5)
        above.tick_params(length=0, pad=1)
        above.spines["top"].set_visible(False)
    return marked


def domain_name(name: str) -> str:
    """A domain's name as written along an axis.

    Args:
        name: Name of the domain.
    """
    return short(name.replace("_", " "), lines=1)
