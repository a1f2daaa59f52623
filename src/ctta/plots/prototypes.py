"""t-SNE of class prototypes of several kinds in one plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ctta.errors import MissingExtra
from ctta.plots.style import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 10  # classes that can be distinguished by colour


def draw_prototypes(kinds: Sequence[tuple[str, str, Any]]) -> Figure:
    """Draw the prototypes of up to ten classes in one plane; lines join those of one class.

    Args:
        kinds: For each kind its name, its matplotlib marker, and an array with a row per class.
    """
    classes = min(MOST, len(kinds[0][2]))
    vectors = np.concatenate([rows[:classes] for _, _, rows in kinds])
    points = _plane(vectors).reshape(len(kinds), classes, 2)
    import matplotlib as mpl  # noqa: PLC0415 - an optional dependency

    figure, (panel,) = panels(size=(6.4, 5.2))
    colours = [mpl.colormaps["tab10"](c) for c in range(classes)]
    for c in range(classes):
        panel.plot(points[:, c, 0], points[:, c, 1], color=colours[c], linewidth=0.7, alpha=0.6, zorder=1)
    for (name, marker, _), mine in zip(kinds, points, strict=True):
        panel.scatter(*mine.T, c=colours, marker=marker, s=52, edgecolors="black", linewidths=0.5, zorder=2)
        panel.scatter([], [], marker=marker, s=52, facecolors="white", edgecolors="black", label=name)
    for c in range(classes):
        panel.annotate(str(c), points[0, c], textcoords="offset points", xytext=(5, 5), fontsize=9)
    panel.set_xticks([])
    panel.set_yticks([])
    panel.grid(False)
    panel.set_xlabel("t-SNE of unit vectors; numbers are classes")
    figure.legend(loc="outside upper center", ncols=len(kinds), frameon=False)
    return figure


def _plane(vectors: Any) -> Any:
    try:
        from sklearn.manifold import TSNE  # noqa: PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        raise MissingExtra("scikit-learn", "demo") from error
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
    how = {"perplexity": min(5.0, (len(unit) - 1) / 3), "init": "pca", "random_state": 0}
    return TSNE(2, **how).fit_transform(unit)
