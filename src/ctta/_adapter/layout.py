"""Choose a memory layout that is safe and fast for a network: contiguous or channels_last."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils._python_dispatch import TorchDispatchMode

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


class _UnsafeLayout(BaseException):
    """A network in channels_last runs a convolution whose backward pass would corrupt memory.

    Not an Exception, so that a model's own ``except Exception`` does not hide it.
    """


class SafeConvolutions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context in which such a convolution raises _UnsafeLayout before its backward pass can run.

    The modules of a network do not show all of its convolutions: a forward pass may call F.conv2d with any tensor.
    """

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Check a convolution, and call any operation as it is."""
        if function is torch.ops.aten.convolution.default:
            _, weight, _, stride, _, _, transposed, _, groups = args
            narrow = weight.shape[1] < _FEWEST_CHANNELS and weight.shape[2:] == (1, 1)
            if narrow and max(stride) > 1 and groups == 1 and not transposed:
                raise _UnsafeLayout
        return function(*args, **(kwargs or {}))
