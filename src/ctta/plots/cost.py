"""Cost of methods: images per second and memory."""

from __future__ import annotations

from collections.abc import Sequence

from ctta.bench.compare import Row
from ctta.plots.canvas import Canvas, Plot
from ctta.plots.panel import Box, Panel, nice_ticks
from ctta.plots.rows import label_margin, row_heights, row_ticks
from ctta.plots.style import COLOURS

_MEMORY = (
    "memory is the largest resident size of the process during the run "
    "(on systems other than Linux it includes earlier runs in the process)"
)


def plot_costs(rows: Sequence[Row]) -> Plot:
    """Plot speed as bars, and memory if it is known.

    Args:
        rows: One bar each.
    """
    values = [("images/s", [row.images_per_second for row in rows], COLOURS[4])]
    sizes = [row.peak_memory for row in rows]
    if any(size is not None for size in sizes):
        values.append(("peak memory (MB)", [0.0 if size is None else size / 1e6 for size in sizes], COLOURS[5]))
    height = row_heights(rows)
    canvas = Canvas(height=height + 36)
    left = label_margin(rows)
    width = (canvas.width - left - 6 - 12 * (len(values) - 1)) / len(values)
    for number, (name, lengths, colour) in enumerate(values):
        widest = max(lengths) or 1.0
        box = Box(left + number * (width + 12), 4, width, height)
        panel = canvas.add(Panel(box, (0, 1.3 * widest), (len(rows) - 0.4, -0.6)))
        panel.draw_bars(lengths, [colour] * len(rows))
        for index, length in enumerate(lengths):
            panel.write(length + 0.02 * widest, index, f"{length:.0f}" if length else "–")
        panel.x_axis(nice_ticks(0, 1.3 * widest, 4), name)
        panel.y_axis(row_ticks(rows) if number == 0 else (), grid=False)
    return Plot(
        canvas,
        "Speed and memory" if len(values) > 1 else "Speed",
        "Images per second spent inside the method, on the machine of each run (see its environment)"
        + (f"; {_MEMORY}." if len(values) > 1 else "."),
    )
