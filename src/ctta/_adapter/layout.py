"""Choose a memory layout that is safe and fast for a network: contiguous or channels_last."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import ParametrizationList

# In torch 2.13 on a CPU with AVX2 but not AVX-512 the backward pass of a strided 1x1 convolution in channels_last
# writes past the end of its buffers if it has fewer input channels. Grouped and transposed ones are not affected.
_FEWEST_CHANNELS = 8


def fastest_layout(module: nn.Module) -> torch.memory_format:
    """Return channels_last, which is faster for convolutions, unless the network must not run in it.

    Args:
        module: The network.
    """
    return torch.contiguous_format if needs_planes(module) else torch.channels_last


def safe_layout(module: nn.Module) -> torch.memory_format:
    """Return preserve_format, or contiguous_format for a network that must not run in channels_last.

    Apply it to the weights and to every batch before a backward pass: a convolution runs in channels_last if either
    of the two has that layout.

    Args:
        module: The network.
    """
    return torch.contiguous_format if needs_planes(module) else torch.preserve_format


def needs_planes(module: nn.Module) -> bool:
    """Return whether torch fails or corrupts memory when it trains this network in channels_last.

    Args:
        module: The network.
    """
    # torch refuses to lay out the weights of a 3-D convolution in channels_last.
    return any(p.dim() == 5 for p in module.parameters()) or any(map(_unsafe_in_channels_last, module.modules()))


def _unsafe_in_channels_last(layer: nn.Module) -> bool:
    # torch's CPU group norm crashes in the backward pass of a channels_last input that needs no gradient.
    if isinstance(layer, nn.GroupNorm):
        return True
    if isinstance(layer, nn.Conv2d):
        # A forward of its own may pass any stride.
        strided = max(layer.stride) > 1 or type(layer).forward is not nn.Conv2d.forward
        return strided and layer.kernel_size == (1, 1) and layer.groups == 1 and layer.in_channels < _FEWEST_CHANNELS
    if isinstance(layer, (_ConvNd, ParametrizationList)):
        return False
    # The stride is unknown if a layer calls F.conv2d itself.
    weights = [p.shape for p in layer.parameters(recurse=False) if p.dim() == 4]
    return any(shape[1] < _FEWEST_CHANNELS and shape[2:] == (1, 1) for shape in weights)


class _UnsafeLayout(Exception):
    """A network in channels_last has run a convolution whose backward pass would corrupt memory."""


def refuse_unsafe_backward(logits: Tensor) -> None:
    """Raise _UnsafeLayout if the backward pass from these logits would run such a convolution in channels_last.

    The modules of a network do not show all of its convolutions: a forward pass may call F.conv2d with any tensor. The
    graph that autograd has recorded does.

    Args:
        logits: Logits that need a gradient.
    """
    waiting, seen = [logits.grad_fn], set[Node]()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name() == "ConvolutionBackward0" and _unsafe_backward(node):
            raise _UnsafeLayout
        waiting += [earlier for earlier, _ in node.next_functions]


def _unsafe_backward(convolution: Any) -> bool:
    if max(convolution._saved_stride) == 1 or convolution._saved_groups > 1 or convolution._saved_transposed:
        return False
    # Not the saved tensors, as far as possible: they are computed again if the pass is checkpointed.
    image, weight = (_shape(*edge) for edge in convolution.next_functions[:2])
    if weight is None:  # it is frozen
        if image is None or image[1] >= _FEWEST_CHANNELS:
            return False
        weight = tuple(convolution._saved_weight.shape)
    return weight[1] < _FEWEST_CHANNELS and weight[2:] == (1, 1)


def _shape(node: Any, output: int) -> tuple[int, ...] | None:
    """Return the shape of the tensor that a node of the graph computed, if it needs a gradient."""
    if node is None:
        return None
    return tuple(node.variable.shape if hasattr(node, "variable") else node._input_metadata[output].shape)
