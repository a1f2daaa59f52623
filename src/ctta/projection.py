"""The learnable projection in front of a contrastive loss."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from torch import nn

from ctta.classifier import Classifier
from ctta.errors import ParameterError

Projection = Literal["mlp"] | nn.Module | None

_WIDTH = 128


def projection_of(
    wanted: Projection, model: Classifier, *, seed: int
) -> tuple[Literal["mlp"] | type[nn.Module] | None, nn.Module]:
    """What to record of an argument, and the module it stands for: an MLP d-128-128, one of the user's, or none."""
    if isinstance(wanted, nn.Module):
        return type(wanted), copy.deepcopy(wanted).to(model.weight)
    if wanted is None:
        return None, nn.Identity()
    if wanted != "mlp":
        raise ParameterError(f"The 'projection' parameter must be 'mlp', a module or None. Got {wanted!r} instead.")
    # Paper silent: default initialisation, the student's optimizer and learning rate, not part of the teacher.
    # It draws from the global generator: lend that our seed, and leave it as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        mlp = nn.Sequential(nn.Linear(model.num_features, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH))
    return "mlp", mlp.to(model.weight)
