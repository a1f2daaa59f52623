"""The paper's figures."""

from __future__ import annotations

from ctta.bench.workload import Procedure
from ctta.paper.drawings import (
    draw_alphas,
    draw_best_alphas,
    draw_entropies,
    draw_prototypes,
    draw_sweep,
    draw_teacher,
)
from ctta.paper.experiment import Cell, Drawing, Experiment

# Paper silent: which values its curves show. These include the published constants.
ALPHAS = (0.9, 0.95, 0.99, 0.995, 0.999, 1.0)
GAMMAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
BETAS = (0.0, 0.005, 0.01, 0.02, 0.05)

_DMSE = Procedure("dmse")


def _entropies(dataset: str) -> list[Cell]:
    return [Cell("Source only", Procedure("source")), Cell("BN + Adapt", Procedure("bn")), Cell("DMSE", _DMSE)]


def _alphas(dataset: str) -> list[Cell]:
    return [
        Cell(
            f"severity {severity}, alpha {alpha}",
            Procedure("dmse", {"alpha": alpha, "teacher_reset": False}, severity=severity),
        )
        for severity in (1, 2, 3, 4, 5)
        for alpha in ALPHAS
    ]


def _gammas(dataset: str) -> list[Cell]:
    return [Cell(f"gamma {gamma}", Procedure("dmse", {"gamma": gamma})) for gamma in GAMMAS]


def _betas(dataset: str) -> list[Cell]:
    return [Cell(f"beta {beta}", Procedure("dmse", {"beta": beta})) for beta in BETAS]


def _prototypes(dataset: str) -> list[Cell]:
    return [Cell("DMSE", _DMSE, keep=True), Cell("DMSE^s", _DMSE, keep=True, source_data=True)]


def _teacher(dataset: str) -> list[Cell]:
    return [Cell("DMSE", _DMSE)]


FIGURES = (
    Experiment(
        "entropy",
        "Entropy of correct and incorrect predictions",
        _entropies,
        (Drawing("entropy", "Entropy of correct and incorrect predictions", draw_entropies),),
    ),
    Experiment(
        "alpha",
        "Fixed momentum by severity",
        _alphas,
        (
            Drawing("alpha", "Error by fixed momentum and severity", draw_alphas),
            Drawing("best-alpha", "How often a fixed momentum is best", draw_best_alphas),
        ),
    ),
    Experiment("gamma", "Error by gamma", _gammas, (Drawing("gamma", "Error by gamma", draw_sweep("gamma")),)),
    Experiment("beta", "Error by beta", _betas, (Drawing("beta", "Error by beta", draw_sweep("beta")),)),
    Experiment(
        "teacher",
        "Momentum and resets of the teacher along the stream",
        _teacher,
        (Drawing("teacher", "Entropy, momentum and resets along the stream", draw_teacher),),
    ),
    Experiment(
        "prototypes",
        "Prototypes: classifier rows, source means, test-time",
        _prototypes,
        (Drawing("prototypes", "t-SNE of class prototypes", draw_prototypes),),
    ),
)
