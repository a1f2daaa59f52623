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

#: Error by severity, domain and momentum; one of the domains is "mean".
Errors = Mapping[int, Mapping[str, Mapping[float, float]]]


def draw_alphas(errors: Errors) -> Figure:
    """Draw a panel per corruption and one for their mean, with a line per severity and its best momentum marked.

    Args:
        errors: Error by severity, domain and momentum.
    """
    domains = list(next(iter(errors.values())))
    columns = min(4, len(domains))
    rows = math.ceil(len(domains) / columns)
    figure, found = panels(rows, columns, size=(2.7 * columns, 2.2 * rows + 0.6), sharex=True)
    alphas = _alphas(errors)
    for panel, domain in zip(found, domains, strict=False):
        for severity, by_domain in errors.items():
            y = [by_domain[domain][alpha] for alpha in alphas]
            line = {"color": SHADES[severity - 1], "label": f"severity {severity}"}
            panel.plot(range(len(alphas)), y, linewidth=1.4, marker=".", **line)
            best = y.index(min(y))
            panel.plot([best], [y[best]], marker="o", markersize=7, fillstyle="none", color="#D55E00")
        panel.set_title(domain.replace("_", " "), fontsize=9)
        panel.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas], rotation=60, fontsize=8)
        panel.tick_params(axis="y", labelsize=8)
    for panel in found[len(domains) :]:
        panel.set_visible(False)
    figure.supxlabel("fixed momentum α of the teacher", fontsize=10)
    figure.supylabel("error (%)", fontsize=10)
    handles, labels = found[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False, fontsize=9)
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
