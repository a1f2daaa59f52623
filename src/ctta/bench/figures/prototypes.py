"""t-SNE of class prototypes: rows of the classifier, means of source features, and those of test time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ctta.bench.figures.canvas import panels
from ctta.bench.run import ADAPTED
from ctta.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ctta.bench.experiments.cells import Outcome

KINDS = (("classifier rows", "^"), ("test time", "o"), ("source means", "s"))
MOST = 10  # classes that can be told apart by colour


def draw_prototypes(outcomes: Sequence[Outcome]) -> Figure:
    """Prototypes of up to ten classes in one plane; lines join those of one class."""
    kinds = _kinds(outcomes)
    names = [(name, marker) for name, marker in KINDS if name in kinds]
    classes = min(MOST, len(kinds[KINDS[0][0]]))
    points = _plane(np.concatenate([kinds[name][:classes] for name, _ in names])).reshape(len(names), classes, 2)
    import matplotlib as mpl  # noqa: PLC0415 - an optional dependency

    figure, (panel,) = panels(size=(6.4, 5.2))
    colours = [mpl.colormaps["tab10"](c) for c in range(classes)]
    for c in range(classes):
        panel.plot(points[:, c, 0], points[:, c, 1], color=colours[c], linewidth=0.7, alpha=0.6, zorder=1)
    for (name, marker), mine in zip(names, points, strict=True):
        panel.scatter(*mine.T, c=colours, marker=marker, s=52, edgecolors="black", linewidths=0.5, zorder=2)
        panel.scatter([], [], marker=marker, s=52, facecolors="white", edgecolors="black", label=name)
    for c in range(classes):
        panel.annotate(str(c), points[0, c], textcoords="offset points", xytext=(5, 5), fontsize=9)
    panel.set_xticks([])
    panel.set_yticks([])
    panel.grid(False)
    panel.set_xlabel("t-SNE of unit vectors; numbers are classes")
    figure.legend(loc="outside upper center", ncols=len(names), frameon=False)
    return figure


def _kinds(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The prototypes by kind: those a run began with, from the classifier or from source data, and where they went."""
    from safetensors import safe_open  # noqa: PLC0415

    found = {}
    for outcome in outcomes:
        with safe_open(outcome.place(outcome.records[0]) / ADAPTED, framework="np") as file:
            if outcome.cell.source_data:
                found["source means"] = file.get_tensor("p_0")
            else:
                found["classifier rows"], found["test time"] = file.get_tensor("p_0"), file.get_tensor("p_t")
    return found


def _plane(vectors: Any) -> Any:
    try:
        from sklearn.manifold import TSNE  # noqa: PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        raise MissingExtra("scikit-learn", "demo") from error
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
    how = {"perplexity": min(5.0, (len(unit) - 1) / 3), "init": "pca", "random_state": 0}
    return TSNE(2, **how).fit_transform(unit)
