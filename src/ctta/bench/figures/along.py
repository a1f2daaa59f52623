"""What figures along a stream share: a width that a phone shows, labels that fit, boundaries of domains."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ctta.bench.plots import EDGE

#: Inches: text stays readable on a phone, and two figures stand side by side elsewhere.
WIDTH = 4.6
#: Points of a line: about as many as a phone can show.
MOST_POINTS = 250
#: Names of domains that fit along a stream.
_MOST_NAMES, _MOST_BOUNDARIES = 20, 80

#: Domain, first step and step after the last.
Stretch = tuple[str, int, int]


def stretches_of(steps: Sequence[dict[str, Any]]) -> list[Stretch]:
    """The stretches of a stream that are of one domain each."""
    found, begin = [], 0
    for domain, mine in groupby(steps, key=lambda step: str(step["domain"])):
        end = begin + sum(1 for _ in mine)
        found.append((domain, begin, end))
        begin = end
    return found


def step_label(steps: Sequence[dict[str, Any]]) -> str:
    """What a step is, for an axis."""
    return f"step (one batch of {max(step['images'] for step in steps)} images)"


def short(label: str, width: int = 22, lines: int = 3) -> str:
    """A label in a few short lines; what cannot be drawn is left out."""
    drawn = "".join(c if c.isprintable() else " " for c in label)
    return "\n".join(textwrap.wrap(drawn, width, max_lines=lines, placeholder=" …")) or "?"


def legend_below(figure: Any, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend under the panels, in as many columns as fit, read row by row; the figure grows by its height."""
    widest = max(len(part) for label in labels for part in label.split("\n"))
    fitting = max(1, min(len(labels), int(72 * figure.get_figwidth() / (5 * widest + 36))))
    rows = -(-len(labels) // fitting)
    columns = -(-len(labels) // rows)
    # matplotlib fills one column after the other, the first ones with one more.
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
    """Lines where the domain changes, and the names of the domains above; gives whether there are such lines."""
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
    """A domain as it is written under an axis."""
    return short(name.replace("_", " "), lines=1)
