"""The demo's figure: errors of all methods, and what DMSE's controlled teacher does along the stream."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ctta.bench.evaluate import Report
from ctta.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe & Ito's colours, told apart with every kind of colour vision; grey first, for the unadapted source.
COLOURS = ("#7f7f7f", "#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
EDGE = "#d9d9d9"


def require_matplotlib() -> None:
    """Raise MissingExtra where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401, PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        raise MissingExtra("matplotlib", "demo") from error


def svg(figure: Figure, title: str) -> bytes:
    """A figure as an SVG file with this title: the same drawing gives the same bytes.

    Text stays text, so that it can be searched and a page can set its font; it is laid out for DejaVu Sans, which is
    wider than the fonts that may stand in for it.
    """
    import matplotlib as mpl  # noqa: PLC0415

    file = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ctta", "font.sans-serif": ["DejaVu Sans"]}):
        figure.savefig(
            file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Type", "Format")) | {"Title": title}
        )
    return file.getvalue()


def demo_figure(reports: Sequence[Report]) -> bytes:
    """The figure as a PNG file: error per domain, and entropy, momentum and resets of DMSE's teacher if it ran."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    controlled = next((r for r in reports if any("teacher_reset" in step for step in r.steps)), None)
    rows = 1 if controlled is None else 3
    figure = Figure(figsize=(10, 4.2 if rows == 1 else 7.6), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, 1, sharex=True, squeeze=False, height_ratios=(1.7, 1, 1)[:rows])[:, 0]
    stretches = _stretches(reports[0])
    _draw_errors(panels[0], reports, stretches)
    if controlled is not None:
        _draw_entropy(panels[1], controlled)
        _draw_momentum(panels[2], controlled)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        for _, begin, _ in stretches[1:]:
            panel.axvline(begin - 0.5, color=EDGE, linewidth=0.8, zorder=0)
    panels[-1].set_xlim(stretches[0][1] - 0.5, stretches[-1][2] - 0.5)
    panels[-1].set_xlabel(f"step (one batch of {reports[0].steps[0]['images']} images)")
    figure.align_ylabels(panels)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _stretches(report: Report) -> list[tuple[str, int, int]]:
    """Domain, first step and step after the last of every stretch of the stream."""
    found = []
    for domain, steps in groupby(report.steps, key=lambda step: step["domain"]):
        indices = [step["index"] for step in steps]
        found.append((domain, indices[0], indices[-1] + 1))
    return found


def _draw_errors(panel: Any, reports: Sequence[Report], stretches: Sequence[tuple[str, int, int]]) -> None:
    centres = [(begin + end - 1) / 2 for _, begin, end in stretches]
    widths = [0.86 * (end - begin) / len(reports) for _, begin, end in stretches]
    for number, report in enumerate(reports):
        aside = number - (len(reports) - 1) / 2
        panel.bar(
            [centre + aside * width for centre, width in zip(centres, widths, strict=True)],
            [report.errors[domain] for domain, _, _ in stretches],
            widths,
            color=COLOURS[number % len(COLOURS)],
            edgecolor="white",
            linewidth=0.3,
            # Beyond the eight colours the same ones come again, hatched.
            hatch=None if number < len(COLOURS) else "////",
            label=f"{report.method}  {report.mean:.1f} %",
        )
    panel.set_ylabel("error per domain (%)")
    panel.set_ylim(0, 100)
    panel.legend(title="mean error", loc="upper left", bbox_to_anchor=(1.005, 1), frameon=False, alignment="left")
    panel.grid(axis="y", color=EDGE, linewidth=0.6)
    panel.set_axisbelow(True)
    above = panel.secondary_xaxis("top")
    above.set_xticks(centres, [domain.replace("_", " ") for domain, _, _ in stretches], rotation=38, ha="left")
    above.tick_params(length=0, pad=1)
    above.spines["top"].set_visible(False)


def _draw_entropy(panel: Any, report: Report) -> None:
    steps = [step["index"] for step in report.steps]
    panel.plot(steps, [step.get("entropy", float("nan")) for step in report.steps], color=COLOURS[1], linewidth=1.2)
    e_min = report.settings["e_min"]
    panel.axhline(e_min, color=COLOURS[3], linewidth=1, linestyle="--")
    panel.text(
        1.01,
        e_min,
        f"reset below\n{e_min:g} nat",
        transform=panel.get_yaxis_transform(),
        color=COLOURS[3],
        va="center",
        fontsize=9,
    )
    panel.set_ylabel(f"{report.method.upper()} entropy (nat)")
    panel.set_ylim(bottom=0)


def _draw_momentum(panel: Any, report: Report) -> None:
    kept = [step for step in report.steps if "teacher_reset" in step]
    panel.plot([s["index"] for s in kept], [s["alpha"] for s in kept], color=COLOURS[4], linewidth=1.2, label="alpha")
    resets = [step for step in kept if step["teacher_reset"]]
    panel.plot(
        [s["index"] for s in resets],
        [s["alpha"] for s in resets],
        linestyle="none",
        marker="x",
        markersize=5,
        color=COLOURS[3],
        label=f"teacher reset\n({len(resets)} of {len(report.steps)} steps)",
    )
    panel.set_ylabel("teacher momentum α")
    panel.ticklabel_format(axis="y", useOffset=False)
    panel.margins(y=0.15)
    panel.legend(loc="upper left", bbox_to_anchor=(1.005, 1), frameon=False)
