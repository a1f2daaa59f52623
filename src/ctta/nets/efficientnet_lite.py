"""EfficientNet-Lite0 (Liu 2020): EfficientNet-B0 without squeeze-and-excitation, with ReLU6."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.functional import pad, relu6

from ctta.nets.layers import initialise_convolutions


class Group(NamedTuple):
    """Consecutive blocks with the same output width.

    Args:
        repeats: Number of blocks.
        kernel: Side of the depthwise kernel.
        stride: Stride of the first block; the others have stride 1.
        expand: Expansion factor.
        outputs: Output channels.
    """

    repeats: int
    kernel: int
    stride: int
    expand: int
    outputs: int


GROUPS = (
    Group(1, 3, 1, 1, 16),
    Group(2, 3, 2, 6, 24),
    Group(2, 5, 2, 6, 40),
    Group(3, 3, 2, 6, 80),
    Group(3, 5, 1, 6, 112),
    Group(4, 5, 2, 6, 192),
    Group(1, 3, 1, 6, 320),
)


def norm(channels: int) -> nn.BatchNorm2d:
    """Build a batch norm with the constants of the TensorFlow original, whose momentum of 0.99 is 0.01 in torch.

    Args:
        channels: Number of channels.
    """
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class SameConv2d(nn.Conv2d):
    """A convolution without bias, padded like TensorFlow's SAME: an odd pixel is added at the right and bottom.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        kernel: Side of the kernel.
        stride: Stride.
        groups: Number of groups.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve; the output has ceil(size / stride) pixels per side.

        Args:
            x: Images or feature maps (N, inputs, H, W).
        """
        kernel, stride = self.kernel_size[0], self.stride[0]
        rows, columns = (max((-(-n // stride) - 1) * stride + kernel - n, 0) for n in x.shape[2:])
        if rows or columns:
            x = pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return super().forward(x)


class InvertedBottleneck(nn.Module):
    """Expansion, depthwise convolution and projection, with a shortcut if input and output have the same shape.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        kernel: Side of the depthwise kernel.
        stride: Stride of the depthwise convolution.
        expand: Expansion factor.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        inner = expand * inputs
        self.expands = expand != 1
        self.adds = stride == 1 and inputs == outputs
        if self.expands:
            self._expand_conv = SameConv2d(inputs, inner, 1)
            self._bn0 = norm(inner)
        self._depthwise_conv = SameConv2d(inner, inner, kernel, stride, groups=inner)
        self._bn1 = norm(inner)
        self._project_conv = SameConv2d(inner, outputs, 1)
        self._bn2 = norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block, without an activation at the end.

        Args:
            x: Feature maps (N, inputs, H, W).
        """
        out: Tensor = relu6(self._bn0(self._expand_conv(x)), inplace=True) if self.expands else x
        out = relu6(self._bn1(self._depthwise_conv(out)), inplace=True)
        out = self._bn2(self._project_conv(out))
        return out + x if self.adds else out


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 for 224 x 224 images, with 1280 features, the head `_fc`, and no dropout or stochastic depth.

    Args:
        num_classes: Number of classes.
    """

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self._conv_stem = SameConv2d(3, 32, 3, 2)
        self._bn0 = norm(32)
        self._blocks = nn.Sequential()
        inputs = 32
        for repeats, kernel, stride, expand, outputs in GROUPS:
            for i in range(repeats):
                first = i == 0
                self._blocks.append(
                    InvertedBottleneck(inputs if first else outputs, outputs, kernel, stride if first else 1, expand)
                )
            inputs = outputs
        self._conv_head = SameConv2d(inputs, 1280, 1)
        self._bn1 = norm(1280)
        self._fc = nn.Linear(1280, num_classes)
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for normalised images (N, 3, H, W).

        Args:
            x: Normalised images (N, 3, H, W).
        """
        x = relu6(self._bn0(self._conv_stem(x)), inplace=True)
        x = relu6(self._bn1(self._conv_head(self._blocks(x))), inplace=True)
        logits: Tensor = self._fc(x.mean((2, 3)))
        return logits
