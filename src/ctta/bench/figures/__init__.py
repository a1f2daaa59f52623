"""The paper's figures, drawn from the outcomes of experiments."""

from ctta.bench.figures.alphas import draw_alphas, draw_best_alphas
from ctta.bench.figures.curves import draw_lines, draw_orders
from ctta.bench.figures.entropies import draw_entropies
from ctta.bench.figures.prototypes import draw_prototypes
from ctta.bench.figures.resets import draw_resets
from ctta.bench.figures.teacher import draw_teacher

__all__ = [
    "draw_alphas",
    "draw_best_alphas",
    "draw_entropies",
    "draw_lines",
    "draw_orders",
    "draw_prototypes",
    "draw_resets",
    "draw_teacher",
]
