"""ResNeXt for 32 x 32 images (Xie et al. 2017), with the layer names of the AugMix checkpoints."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from ctta.errors import ParameterError
from ctta.nets.layers import initialise_convolutions, shortcut


class GroupedBottleneck(nn.Module):
    """1 x 1, grouped 3 x 3 and 1 x 1 convolutions with a shortcut around them.

    Args:
        inputs: Input channels.
        channels: A quarter of the output channels.
        stride: Stride of the 3 x 3 convolution.
        cardinality: Number of groups.
        base_width: Channels per group when `channels` is 64.
    """

    def __init__(self, inputs: int, channels: int, stride: int, cardinality: int, base_width: int) -> None:
        super().__init__()
        inner = cardinality * (channels * base_width // 64)
        outputs = 4 * channels
        self.conv_reduce = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn_reduce = nn.BatchNorm2d(inner)
        self.conv_conv = nn.Conv2d(inner, inner, 3, stride, padding=1, groups=cardinality, bias=False)
        self.bn = nn.BatchNorm2d(inner)
        self.conv_expand = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn_expand = nn.BatchNorm2d(outputs)
        self.downsample = shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual to the shortcut.

        Args:
            x: Feature maps (N, inputs, H, W).
        """
        out = relu(self.bn_reduce(self.conv_reduce(x)), inplace=True)
        out = relu(self.bn(self.conv_conv(out)), inplace=True)
        return relu(self.bn_expand(self.conv_expand(out)) + self.downsample(x), inplace=True)


class CifarResNeXt(nn.Module):
    """A ResNeXt for CIFAR with 1024 features and the head `classifier`.

    Args:
        depth: Number of layers, 9n + 2: 11, 20, 29, ...
        num_classes: Number of classes.
        cardinality: Number of groups.
        base_width: Channels per group in the first stage.
    """

    def __init__(self, depth: int = 29, num_classes: int = 100, *, cardinality: int = 4, base_width: int = 32) -> None:
        super().__init__()
        if depth < 11 or (depth - 2) % 9:
            raise ParameterError(
                f"The 'depth' parameter of CifarResNeXt must be 9n + 2: 11, 20, 29, ... Got {depth} instead."
            )

        def stage(inputs: int, channels: int, stride: int) -> nn.Sequential:
            rest = (
                GroupedBottleneck(4 * channels, channels, 1, cardinality, base_width)
                for _ in range((depth - 2) // 9 - 1)
            )
            return nn.Sequential(GroupedBottleneck(inputs, channels, stride, cardinality, base_width), *rest)

        self.conv_1_3x3 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.bn_1 = nn.BatchNorm2d(64)
        self.stage_1 = stage(64, 64, 1)
        self.stage_2 = stage(256, 128, 2)
        self.stage_3 = stage(512, 256, 2)
        self.classifier = nn.Linear(1024, num_classes)
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for normalised images (N, 3, H, W).

        Args:
            x: Normalised images (N, 3, H, W).
        """
        x = relu(self.bn_1(self.conv_1_3x3(x)), inplace=True)
        x = self.stage_3(self.stage_2(self.stage_1(x)))
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits
