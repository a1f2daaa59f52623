"""The paper's experiments: the runs behind each table and figure, and the published numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctta.errors import UnknownExperiment
from ctta.paper.experiment import Cell, Drawing, Experiment, Outcome

if TYPE_CHECKING:
    EXPERIMENTS: dict[str, Experiment]

__all__ = ["EXPERIMENTS", "Cell", "Drawing", "Experiment", "Outcome", "UnknownExperiment", "experiment"]


def experiment(name: str) -> Experiment:
    """Look up an experiment.

    Args:
        name: Name of a table or figure.

    Raises:
        UnknownExperiment: There is no such experiment; the message names the nearest one.
    """
    experiments = _experiments()
    if name not in experiments:
        raise UnknownExperiment(name, experiments)
    return experiments[name]


def _experiments() -> dict[str, Experiment]:
    from ctta.paper.figures import FIGURES  # noqa: PLC0415 - the names of datasets are known without torch
    from ctta.paper.tables import TABLES  # noqa: PLC0415

    return {e.name: e for e in (*TABLES, *FIGURES)}


def __getattr__(name: str) -> Any:
    if name != "EXPERIMENTS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = _experiments()
    return globals()[name]
