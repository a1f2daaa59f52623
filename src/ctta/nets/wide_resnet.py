"""Wide residual networks for 32 x 32 images (Zagoruyko & Komodakis 2016), with RobustBench's layer names."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from ctta.errors import ParameterError
from ctta.nets.layers import initialise_convolutions


class PreActBlock(nn.Module):
    """Two 3 x 3 convolutions, each preceded by batch norm and ReLU, with a shortcut around them.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        stride: Stride of the first convolution.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.convShortcut = None  # the published name
        if inputs != outputs:
            self.convShortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual to x or, if the width changes, to a projection of the activated x.

        Args:
            x: Feature maps (N, inputs, H, W).
        """
        active = relu(self.bn1(x), inplace=True)
        shortcut = x if self.convShortcut is None else self.convShortcut(active)
        out: Tensor = self.conv2(relu(self.bn2(self.conv1(active)), inplace=True))
        return shortcut + out


class Stage(nn.Module):
    """Blocks of the same width, in a submodule named `layer`.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        blocks: Number of blocks.
        stride: Stride of the first block.
    """

    def __init__(self, inputs: int, outputs: int, blocks: int, stride: int) -> None:
        super().__init__()
        rest = (PreActBlock(outputs, outputs, 1) for _ in range(blocks - 1))
        self.layer = nn.Sequential(PreActBlock(inputs, outputs, stride), *rest)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the blocks in order.

        Args:
            x: Feature maps (N, inputs, H, W).
        """
        out: Tensor = self.layer(x)
        return out


class WideResNet(nn.Module):
    """A wide ResNet, WRN-depth-widen, without dropout; the head is `fc`.

    Args:
        depth: Number of layers, 6n + 4: 10, 16, ..., 28.
        widen: Factor on the channels.
        num_classes: Number of classes.
    """

    def __init__(self, depth: int = 28, widen: int = 10, num_classes: int = 10) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise ParameterError(
                f"The 'depth' parameter of WideResNet must be 6n + 4: 10, 16, ..., 28. Got {depth} instead."
            )
        blocks = (depth - 4) // 6
        width = 16 * widen
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.block1 = Stage(16, width, blocks, 1)
        self.block2 = Stage(width, 2 * width, blocks, 2)
        self.block3 = Stage(2 * width, 4 * width, blocks, 2)
        self.bn1 = nn.BatchNorm2d(4 * width)
        self.fc = nn.Linear(4 * width, num_classes)
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for images (N, 3, H, W).

        Args:
            x: Images (N, 3, H, W).
        """
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        logits: Tensor = self.fc(relu(self.bn1(x), inplace=True).mean((2, 3)))
        return logits
