"""ResNet-50 with torchvision's layer names, and the DomainNet-126 network built on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn.functional import relu

from ctta.nets.layers import initialise_convolutions, shortcut

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # channels, blocks, stride


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions with a shortcut around them.

    Args:
        inputs: Input channels.
        channels: Channels of the 3 x 3 convolution, a quarter of the output channels.
        stride: Stride of the 3 x 3 convolution.
    """

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * channels
        self.conv1 = nn.Conv2d(inputs, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual to the shortcut.

        Args:
            x: Feature maps (N, inputs, H, W).
        """
        out = relu(self.bn1(self.conv1(x)), inplace=True)
        out = relu(self.bn2(self.conv2(out)), inplace=True)
        return relu(self.bn3(self.conv3(out)) + self.downsample(x), inplace=True)


class ResNet50(nn.Module):
    """ResNet-50 (He et al. 2016) with 2048 features and the head `fc`.

    Args:
        num_classes: Number of classes.
    """

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for number, (channels, blocks, stride) in enumerate(STAGES, start=1):
            first = Bottleneck(inputs, channels, stride)
            inputs = 4 * channels
            rest = (Bottleneck(inputs, channels, 1) for _ in range(blocks - 1))
            self.add_module(f"layer{number}", nn.Sequential(first, *rest))
        self.fc = nn.Linear(inputs, num_classes)
        initialise_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for normalised images (N, 3, H, W).

        Args:
            x: Normalised images (N, 3, H, W).
        """
        x = relu(self.bn1(self.conv1(x)), inplace=True)
        x = nn.functional.max_pool2d(x, 3, 2, padding=1)
        for number in range(1, len(STAGES) + 1):
            x = self.get_submodule(f"layer{number}")(x)
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class WeightNormLinear(nn.Linear):
    """A linear layer with weight normalisation (Salimans & Kingma 2016): w = g v / ||v|| per row.

    The parameters are `weight_g` and `weight_v`, as in published files. torch's own implementations do not fit: the
    older one cannot be copied after a forward pass, the newer one uses other names and cannot be pickled.

    Args:
        in_features: Number of inputs.
        out_features: Number of outputs.
    """

    if not TYPE_CHECKING:  # type checkers see nn.Linear's attribute

        @property
        def weight(self) -> Tensor:
            """The weight, computed from the two parameters."""
            return self.weight_v * (self.weight_g / self.weight_v.norm(dim=1, keepdim=True))

    def __init__(self, in_features: int, out_features: int) -> None:
        nn.Module.__init__(self)  # nn.Linear.__init__ would register a parameter named weight
        self.in_features = in_features
        self.out_features = out_features
        start = nn.Linear(in_features, out_features)
        self.weight_v = nn.Parameter(start.weight.detach())
        self.weight_g = nn.Parameter(start.weight.detach().norm(dim=1, keepdim=True))
        self.bias = start.bias


class BottleneckResNet50(nn.Module):
    """AdaContrast's DomainNet network: ResNet-50, a bottleneck with batch norm, a weight-normed head `fc`.

    Args:
        num_classes: Number of classes.
        bottleneck: Features of the bottleneck.
    """

    def __init__(self, num_classes: int = 126, bottleneck: int = 256) -> None:
        super().__init__()
        self.encoder = nn.Sequential(ResNet50(bottleneck), nn.BatchNorm1d(bottleneck))
        self.fc = WeightNormLinear(bottleneck, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for normalised images (N, 3, H, W).

        Args:
            x: Normalised images (N, 3, H, W).
        """
        logits: Tensor = self.fc(self.encoder(x))
        return logits
