"""Tensors that a model computes from its weights once and keeps."""

from __future__ import annotations

from torch import Tensor, nn


class ModuleCaches:
    """The modules of a model that may keep what they computed from earlier weights.

    LeViT, TinyViT and others look up their attention biases once in eval mode, keep the result, with its graph, in an
    attribute, and forget it in ``train(True)``. An adapter learns in eval mode: it would go on with the old biases, or
    fail in the second backward pass.

    Args:
        model: The model. Its modules are searched once, here, and not in every pass; a module added later is not
            noticed.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._modules = [module for module in model.modules() if type(module).train is not nn.Module.train]

    def drop(self) -> None:
        """Make the modules in eval mode drop these tensors; those in training mode are not touched."""
        for module in self._modules:
            if not module.training and _keeps_tensors(module):
                # Not chained: some overrides of train() return nothing.
                module.train(True)
                module.train(False)


def drop_caches(model: nn.Module) -> None:
    """Make modules in eval mode drop what they computed from earlier weights.

    Args:
        model: The model; its modules in training mode are not touched.
    """
    ModuleCaches(model).drop()


def _keeps_tensors(module: nn.Module) -> bool:
    kept = [value for name, value in vars(module).items() if not name.startswith("_")]
    inner = [item for value in kept if isinstance(value, dict) for item in value.values()]
    return any(isinstance(value, Tensor) for value in [*kept, *inner])
