"""Error against a fixed momentum of the teacher, by corruption and severity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ctta.plots.style import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Severities 1 to 5, light to dark.
SHADES = ("#a6bddb", "#74a9cf", "#3690c0", "#0570b0", "#023858")

_RING = "lowest error (no ties)"
_RING_STYLE = {"marker": "o", "markersize": 9, "fillstyle": "none", "color": "#D55E00", "linestyle": "none"}

#: Error by severity, domain and momentum; one of the domains is "mean".
Errors = Mapping[int, Mapping[str, Mapping[float, float]]]


def draw_alphas(errors: Errors) -> Figure:
    """Draw a panel per corruption and one for their mean, all on one scale, with a line per severity.

    A ring marks the momentum with the lowest error on each line; if several momenta tie, there is none.

    Args:
        errors: Error by severity, domain and momentum.
    """
    domains = list(next(iter(errors.values())))
    columns = min(4, len(domains))
    rows = math.ceil(len(domains) / columns)
    figure, found = panels(rows, columns, size=(2.7 * columns, 2.6 * rows + 0.8), sharex=True, sharey=True)
    alphas = _alphas(errors)
    for panel, domain in zip(found, domains, strict=False):
        for severity, by_domain in errors.items():
            y = [by_domain[domain][alpha] for alpha in alphas]
            line = {"color": SHADES[severity - 1], "label": f"severity {severity}"}
            panel.plot(range(len(alphas)), y, linewidth=1.4, marker=".", **line)
            if y.count(min(y)) == 1:
                panel.plot([y.index(min(y))], [min(y)], label=_RING, **_RING_STYLE)
        panel.set_title(domain.replace("_", " "), fontsize=11)
        panel.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas], rotation=45)
        # Panels above an empty cell have no panel below them to show the ticks.
        panel.tick_params(axis="x", labelbottom=panel in found[len(domains) - columns : len(domains)])
    for panel in found[len(domains) :]:
        panel.set_visible(False)
    found[0].set_ylim(bottom=0)
    figure.supxlabel("fixed momentum α of the teacher", fontsize=11)
    figure.supylabel("error (%)", fontsize=11)
    entries = [entry for panel in found for entry in zip(*panel.get_legend_handles_labels(), strict=True)]
    shown = {label: handle for handle, label in sorted(entries, key=lambda entry: entry[1] == _RING)}
    figure.legend(shown.values(), shown.keys(), loc="outside upper center", ncols=3, frameon=False, fontsize=10)
    return figure


def draw_best_alphas(errors: Errors) -> Figure:
    """Draw for how many corruptions each momentum is best, stacked by severity; ties are split equally.

    Args:
        errors: Error by severity, domain and momentum.
    """
    figure, (panel,) = panels()
    alphas = _alphas(errors)
    below = [0.0] * len(alphas)
    for severity, by_domain in errors.items():
        counts = [0.0] * len(alphas)
        for domain, by_alpha in by_domain.items():
            if domain == "mean":
                continue
            lowest = min(by_alpha.values())
            best = [i for i, alpha in enumerate(alphas) if by_alpha[alpha] == lowest]
            for i in best:
                counts[i] += 1 / len(best)
        panel.bar(
            range(len(alphas)),
            counts,
            bottom=below,
            color=SHADES[severity - 1],
            edgecolor="#555555",
            linewidth=0.5,
            label=f"severity {severity}",
        )
        below = [b + c for b, c in zip(below, counts, strict=True)]
    panel.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    panel.set_xlabel("fixed momentum α of the teacher")
    panel.set_ylabel("corruptions where it is best")
    panel.legend(frameon=False)
    return figure


def _alphas(errors: Errors) -> list[float]:
    return sorted(next(iter(errors[min(errors)].values())))
