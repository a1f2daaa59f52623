"""The trainable projection in front of a contrastive loss."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from torch import Tensor, nn

from ctta.classifier import Classifier
from ctta.errors import ParameterError

Projection = Literal["mlp"] | nn.Module | None

_WIDTH = 128


def projection_of(
    wanted: Projection, model: Classifier, *, seed: int
) -> tuple[Literal["mlp"] | type[nn.Module] | None, nn.Module]:
    """Build the projection that an argument describes.

    Args:
        wanted: "mlp" for an MLP d-128-128, the user's own module, which is copied, or None for no projection.
        model: The network whose features are projected.
        seed: Seed of the initial weights.

    Returns:
        The value to record as the setting, and the module.
    """
    if isinstance(wanted, nn.Module):
        return type(wanted), copy.deepcopy(wanted).to(model.weight)
    if wanted is None:
        return None, nn.Identity()
    if wanted != "mlp":
        raise ParameterError(f"The 'projection' parameter must be 'mlp', a module or None. Got {wanted!r} instead.")
    # Paper silent: default initialisation, the student's optimizer and learning rate, not part of the teacher.
    generator = torch.Generator().manual_seed(seed)
    layers = [_linear(model.num_features, generator), nn.ReLU(), _linear(_WIDTH, generator)]
    return "mlp", nn.Sequential(*layers).to(model.weight)


def projected(project: nn.Module, *views: Tensor) -> Tensor:
    """Project the features of V views of N samples as V N rows, so that the module may have batch norms: (V, N, e).

    Args:
        project: The projection.
        views: The features of each view (N, d).
    """
    rows: Tensor = project(torch.cat(views))
    return rows.view(len(views), -1, rows.shape[1])


def _linear(inputs: int, generator: torch.Generator) -> nn.Linear:
    """Build an nn.Linear with torch's default initialisation, drawn from a given generator."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, _WIDTH)  # type: ignore[no-untyped-call]
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -(inputs**-0.5), inputs**-0.5, generator=generator)
    return layer
