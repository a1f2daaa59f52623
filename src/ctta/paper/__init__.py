"""The paper's experiments: the runs behind each table and figure, and the published numbers."""

from ctta.errors import UnknownExperiment
from ctta.paper.experiment import Cell, Drawing, Experiment, Outcome
from ctta.paper.figures import FIGURES
from ctta.paper.tables import TABLES

__all__ = ["EXPERIMENTS", "Cell", "Drawing", "Experiment", "Outcome", "UnknownExperiment", "experiment"]

EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (*TABLES, *FIGURES)}


def experiment(name: str) -> Experiment:
    """Look up an experiment.

    Args:
        name: Name of a table or figure.

    Raises:
        UnknownExperiment: There is no such experiment; the message names the nearest one.
    """
    if name not in EXPERIMENTS:
        raise UnknownExperiment(name, EXPERIMENTS)
    return EXPERIMENTS[name]
