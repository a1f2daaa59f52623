"""Check the optimizer that a user's function returns."""

from __future__ import annotations

import torch

from ctta.errors import ParameterError


def check_optimizer(optimizer: object) -> torch.optim.Optimizer:
    """Check that a step of an optimizer needs nothing but gradients, and return it.

    Args:
        optimizer: What the user's function returned.

    Raises:
        ParameterError: If it is no optimizer, or one that evaluates the loss several times per step.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ParameterError(
            "The function given as 'optimizer' must return a torch.optim.Optimizer, such as "
            f"torch.optim.SGD(parameters, lr=0.001). It returned {type(optimizer).__name__}."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ParameterError(
            "LBFGS evaluates the loss several times per step, and an adapter computes it once. Use another optimizer."
        )
    return optimizer
