"""What the contract needs to know about a method: cheaper settings, and arguments that depend on others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ctta.classifier import Classifier
from ctta.norms import norm_affine, norm_layers
from ctta.testing.subject import Variation
from ctta.testing.task import labelled_images


def noisy(x: Tensor, generator: torch.Generator) -> Tensor:
    """A cheap view: one random number per pixel."""
    return (x + 0.05 * torch.randn(x.shape, generator=generator).to(x)).clamp(0, 1)


# Settings under which a short stream of small batches reaches every part of a method. A method without an entry is
# checked as it is.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "cotta": {"views": 2},
    "memo": {"views": 2, "view": noisy},
    # At most one update in a batch of 8, and not always at its end.
    "note": {"update_every": 12, "memory_size": 16},
    "obao": {"buffer_size": 16, "replay": 8, "e_margin": 1.0},
    "petal": {"views": 2},
    "petta": {"memory_size": 16},
    # In a batch of 32 images each class has about three: two neighbours of the same class.
    "lame": {"k": 2},
    "t3a": {"filter_k": 5},
    "rotta": {"update_every": 8, "memory_size": 16},
}


def replay(seed: int) -> dict[str, Any]:
    x, y = labelled_images(32, seed=seed)
    return {"source": [(x[:16], y[:16]), (x[16:], y[16:])], "lambda_src": 1.0}


def fisher(model: Classifier) -> dict[str, Any]:
    """Weights large enough to matter, and margins that keep samples after the first step, which they cannot change."""
    weights = torch.ones(sum(p.numel() for p in norm_affine(model)))
    return {"fisher": weights, "e_margin": 1.0, "d_margin": 1.0}


def posterior(model: Classifier) -> dict[str, Any]:
    """A posterior that differs from the source, with a weight large enough to matter."""
    flat = torch.cat([p.detach().flatten() for p in model.model.parameters()])
    return {"prior_mean": 0.9 * flat, "prior_var": 0.1 + flat**2, "prior_weight": 1.0}


def features(model: Classifier) -> dict[str, Any]:
    """Statistics of features from which the stream drifts; one class has none."""
    mean = model.weight.abs()
    mean[3] = torch.nan
    return {"feature_mean": mean, "feature_var": torch.full_like(mean, 0.1)}


def first_norm(model: Classifier) -> dict[str, Any]:
    """Leave out the first norm layer alone."""
    return {"last_stage": next(iter(norm_layers(model.model)))}


# Momentum shows from the second step on: margins that keep samples after the first.
MOMENTUM = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.5, "e_margin": 1.0, "d_margin": 1.0}

COME = {"loss": "come", "come_mass": 1000.0}

# A level that the concentration falls below soon, and samples to learn from after every reset.
RESETS = {"a_0": 0.95, "r_0": 0.9, "r_1": 0.1, "lr": 0.02, "e_margin": 1.0, "d_margin": 1.0}
ROID = {"base": "roid"}

VARIATIONS: Mapping[str, Mapping[str, Variation]] = {
    "asr": {
        "momentum": RESETS | {"optimizer": "sgd", "momentum": 0.5},
        "m_0": RESETS | {"a_0": 0.9, "m_0": 0.9},
        "p_0": RESETS | {"p_0": 500.0},
        "r_0": RESETS | {"r_0": 0.2},
        "r_1": (RESETS, RESETS | {"r_1": 20.0}),
        "momentum_source": ROID | {"momentum_source": 0.5},
        "momentum_probs": ROID | {"momentum_probs": 0.5},
        "temperature": ROID | {"temperature": 1.0},
        "batch_size": ROID | {"optimizer": "sgd", "lr": 0.1, "batch_size": 16},
        "view": ROID | {"view": lambda x, generator: x},
    },
    "cmf": {"alpha": {"q": 0.9, "alpha": 0.5}},
    "dmse": {
        "teacher_reset": {"e_min": 5.0, "teacher_reset": False},
        "reset_by": {"e_min": 0.7, "reset_by": "average"},
    },
    "eata": {
        "momentum": MOMENTUM,
        "fisher": fisher,
        "fisher_alpha": lambda model: fisher(model) | {"fisher_alpha": 1.0},
        "come_mass": COME | {"e_margin": 1.0, "d_margin": 1.0},
    },
    "memo": {"reset_every": {"episodic": False, "reset_every": 2}},
    "petal": {
        "prior_mean": posterior,
        "prior_var": posterior,
        "prior_weight": posterior,
        "quantile": {"quantile": 0.5},
        "restore_p": {"restoration": "random", "restore_p": 0.5},
    },
    "petta": {
        "feature_mean": lambda model: ({}, features(model)),
        "feature_var": lambda model: (
            features(model),
            features(model) | {"feature_var": features(model)["feature_mean"]},
        ),
        "adaptive_alpha": lambda model: features(model) | {"adaptive_alpha": False},
        "adaptive_lambda": lambda model: features(model) | {"adaptive_lambda": False},
    },
    "rdumb": {"momentum": MOMENTUM},
    "deyo": {"last_stage": first_norm},
    "sar": {
        "come_mass": COME | {"e_margin": 1.0},
        "stale_average": {"reset_constant": 0.8, "e_margin": 1.0, "lr": 0.1, "stale_average": True},
        "last_stage": first_norm,
    },
    "shot": {"threshold": {"labels": "confident", "threshold": 0.5}},
    "tent": {"come_mass": COME},
    "rmt": {
        "source": (replay(8), replay(9)),
        "lambda_src": replay(8),
    },
}
