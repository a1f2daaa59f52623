"""Parts that several architectures share."""

from __future__ import annotations

from torch import nn


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Build the shortcut of a residual block: a 1 x 1 convolution if its shape changes, otherwise the identity.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        stride: Stride of the block.
    """
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return projection(inputs, outputs, stride, nn.BatchNorm2d(outputs))


def projection(inputs: int, outputs: int, stride: int, norm: nn.Module) -> nn.Sequential:
    """Build a 1 x 1 convolution with a norm layer: option B of He et al. (2016) for a shortcut whose shape changes.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        stride: Stride of the convolution.
        norm: The norm layer.
    """
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm)


def initialise_convolutions(net: nn.Module) -> None:
    """Draw the weights of all convolutions as He et al. (2015) do, by their output channels.

    Args:
        net: The network.
    """
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
