"""The paper's experiments as declarations: which runs stand behind a table or figure, and what the paper found."""

from ctta.bench.experiments.cells import Cell, Drawing, Experiment, Outcome
from ctta.bench.experiments.figures import FIGURES
from ctta.bench.experiments.tables import TABLES
from ctta.errors import UnknownExperiment

__all__ = ["EXPERIMENTS", "Cell", "Drawing", "Experiment", "Outcome", "UnknownExperiment", "experiment"]

EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (*TABLES, *FIGURES)}


def experiment(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in EXPERIMENTS:
        raise UnknownExperiment(name, EXPERIMENTS)
    return EXPERIMENTS[name]
