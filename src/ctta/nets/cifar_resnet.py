"""ResNets for 32 x 32 images: 6n + 2 layers in three stages (He et al. 2016, Sec. 4.2)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from ctta.errors import ParameterError
from ctta.nets.layers import initialise_convolutions, projection

Shortcut = Literal["pad", "conv"]
Norm = Literal["batch", "group"]

#: Channels that a group norm normalises together.
GROUP = 4


def norm_layer(norm: Norm, channels: int) -> nn.Module:
    """Build a normalisation layer.

    Args:
        norm: "batch" or "group".
        channels: Channels of its input.
    """
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(channels // GROUP, channels)


class PadShortcut(nn.Module):
    """Option A of the paper: subsample by the stride and pad the new channels with zeros on both sides.

    Args:
        extra: Number of channels to add.
        stride: Subsampling factor.
    """

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.before = extra // 2
        self.after = extra - extra // 2
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Subsample and pad channels.

        Args:
            x: Feature maps (N, C, H, W).
        """
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with a shortcut around them.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        stride: Stride of the first convolution.
        shortcut: How the shortcut changes size: "pad" (option A) or "conv" (option B).
        norm: "batch" or "group". Layers have the same names with either.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: Shortcut, norm: Norm = "batch") -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = norm_layer(norm, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = norm_layer(norm, outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = (
                PadShortcut(outputs - inputs, stride)
                if shortcut == "pad"
                else projection(inputs, outputs, stride, norm_layer(norm, outputs))
            )

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual to the shortcut.

        Args:
            x: Feature maps (N, inputs, H, W).
        """
        out = relu(self.bn1(self.conv1(x)), inplace=True)
        return relu(self.bn2(self.conv2(out)) + self.downsample(x), inplace=True)


class CifarResNet(nn.Module):
    """A ResNet for 32 x 32 images.

    Args:
        depth: Number of layers, 6n + 2: 8, 14, 20, ...
        num_classes: Number of classes.
        shortcut: "pad" (option A of the paper; the head is named `linear`) or "conv" (option B; the head is `fc`).
        width: Channels of the first stage.
        norm: "batch", or "group" for group norms of four channels each. Layers have the same names with either.
    """

    def __init__(
        self,
        depth: int,
        num_classes: int,
        *,
        shortcut: Shortcut = "pad",
        width: int = 16,
        norm: Norm = "batch",
    ) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise ParameterError(
                f"The 'depth' parameter of CifarResNet must be 6n + 2: 8, 14, 20, ... Got {depth} instead."
            )
        if shortcut not in ("pad", "conv"):
            raise ParameterError(
                f"The 'shortcut' parameter of CifarResNet must be 'pad' or 'conv'. Got {shortcut!r} instead."
            )
        if norm not in ("batch", "group"):
            raise ParameterError(
                f"The 'norm' parameter of CifarResNet must be 'batch' or 'group'. Got {norm!r} instead."
            )

        def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
            rest = (BasicBlock(outputs, outputs, 1, shortcut, norm) for _ in range((depth - 2) // 6 - 1))
            return nn.Sequential(BasicBlock(inputs, outputs, stride, shortcut, norm), *rest)

        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = norm_layer(norm, width)
        self.layer1 = stage(width, width, 1)
        self.layer2 = stage(width, 2 * width, 2)
        self.layer3 = stage(2 * width, 4 * width, 2)
        # The two families of published files also name the head differently.
        self.head_name = "linear" if shortcut == "pad" else "fc"
        self.add_module(self.head_name, nn.Linear(4 * width, num_classes))
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for normalised images (N, 3, H, W).

        Args:
            x: Normalised images (N, 3, H, W).
        """
        x = relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.get_submodule(self.head_name)(x.mean((2, 3)))
        return logits
