"""Normalisation layers: find them, list their parameters, and choose the statistics they use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from ctta._system.forward_pass import share_pass
from ctta.batch_norm import convert, lend_source_if_single, statistics_of, take_back
from ctta.statistics import Batch, Statistics

_KNOWN = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm)


def norm_layers(module: nn.Module) -> dict[str, nn.Module]:
    """Find every normalisation layer: batch, layer, group and instance norm, and similar layers of other libraries.

    Args:
        module: The network.

    Returns:
        The layers by name.

    Example:
        >>> list(norm_layers(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))))
        ['1']
    """
    return {name: layer for name, layer in module.named_modules() if _is_norm(layer)}


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """Find every batch-norm layer.

    Args:
        module: The network.
    """
    return [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]


def norm_affine(module: nn.Module, *, keep: Callable[[str], bool] = lambda layer_name: True) -> list[nn.Parameter]:
    """List the weights and biases of normalisation layers.

    Args:
        module: The network.
        keep: Decides by the name of a layer whether to include it.
    """
    found = [
        parameter
        for name, layer in norm_layers(module).items()
        if keep(name)
        for parameter in layer._parameters.values()
        if parameter is not None
    ]
    return list(dict.fromkeys(found))


def weights_and_biases(module: nn.Module) -> list[nn.Parameter]:
    """List the parameters that are named ``weight`` or ``bias``: what CoTTA and RMT call all parameters.

    The factors of a weight-normed layer and the tokens and position embeddings of a transformer are not among them.

    Args:
        module: The network.
    """
    return [p for name, p in module.named_parameters() if name.rpartition(".")[2] in ("weight", "bias")]


def choose_statistics(module: nn.Module, statistics: Statistics) -> None:
    """Choose the statistics that `use_batch_statistics` will give to the batch norms of a network.

    Args:
        module: The network, whose layers remember the choice.
        statistics: The statistics they will normalise with.
    """
    for layer in batch_norms(module):
        vars(layer)["statistics"] = statistics


def use_batch_statistics(module: nn.Module) -> None:
    """Make every batch norm use the statistics of its batch, or those chosen for it, in train and eval mode.

    The source statistics are kept in the buffers ``source_mean`` and ``source_var`` of each layer.

    Args:
        module: The network, changed in place.
    """
    layers = batch_norms(module)
    share_pass(layers)
    for layer in layers:
        convert(layer)


@contextmanager
def source_statistics_where_single(module: nn.Module) -> Iterator[None]:
    """Context in which a batch norm that gets a single value per channel uses its source statistics.

    A single value has no variance, and torch would raise an error. Layers that use statistics other than the batch's do
    so anyway.

    Args:
        module: A network to which `use_batch_statistics` was applied.
    """

    handles = []
    for layer in batch_norms(module):
        if hasattr(layer, "source_mean") and isinstance(statistics_of(layer), Batch):
            handles.append(layer.register_forward_pre_hook(lend_source_if_single))
            handles.append(layer.register_forward_hook(take_back))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _is_norm(layer: nn.Module) -> bool:
    if isinstance(layer, _KNOWN):
        return True
    # Libraries write their own layer and RMS norms: leaves with "norm" in their name whose parameters are vectors.
    parameters = list(layer.parameters())
    named_so = "norm" in type(layer).__name__.lower() and not any(layer.children())
    return named_so and bool(parameters) and all(p.dim() == 1 for p in parameters)
