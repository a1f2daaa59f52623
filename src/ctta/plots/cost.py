"""Cost of methods: images per second and memory."""

from __future__ import annotations

from collections.abc import Sequence

from ctta.bench.compare import Row
from ctta.plots.stream_axis import WIDTH, short
from ctta.plots.style import COLOURS, Plot, panels

_MEMORY = "memory is the largest resident size of the process during the run, off Linux also during earlier runs in it"


def plot_costs(rows: Sequence[Row]) -> Plot:
    """Plot speed as bars, and memory if it is known.

    Args:
        rows: One bar each.
    """
    labels = [short(row.label) for row in rows]
    values = [("images/s", [row.images_per_second for row in rows])]
    sizes = [row.peak_memory for row in rows]
    if any(size is not None for size in sizes):
        values.append(("peak memory (MB)", [0.0 if size is None else size / 1e6 for size in sizes]))
    height = 0.7 + sum(0.2 + 0.13 * label.count("\n") for label in labels)
    figure, found = panels(1, len(values), size=(WIDTH, height), sharey=True)
    for panel, (name, numbers), colour in zip(found, values, (COLOURS[4], COLOURS[5]), strict=False):
        panel.barh(range(len(rows)), numbers, height=0.66, color=colour, alpha=0.75)
        widest = max(numbers) or 1.0
        for place, number in enumerate(numbers):
            panel.text(number + 0.02 * widest, place, f"{number:.0f}" if number else "–", va="center", fontsize=8)
        panel.set_xlim(0, 1.3 * widest)
        panel.set_xlabel(name)
        panel.grid(visible=False)
        panel.locator_params(axis="x", nbins=4)
        panel.tick_params(axis="y", length=0)
    found[0].set_yticks(range(len(rows)), labels)
    found[0].set_ylim(len(rows) - 0.4, -0.6)
    return Plot(
        figure,
        "Speed and memory" if len(values) > 1 else "Speed",
        "Images by the seconds spent inside the method, on the machine of each run (see its environment)"
        + (f"; {_MEMORY}." if len(values) > 1 else "."),
    )
