"""Small models whose heads are found, missed or misread by Classifier: 5 classes, 8 features."""

from __future__ import annotations

from torch import Tensor, nn

C, D = 5, 8


class Body(nn.Sequential):
    """Images (N, 3, H, W) to features (N, 8)."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, D, 3, stride=2), nn.BatchNorm2d(D), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )


class Net(nn.Module):
    def __init__(self, head: nn.Module | None = None) -> None:
        super().__init__()
        self.body = Body()
        self.fc = nn.Linear(D, C) if head is None else head

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(x))


class Hidden(nn.Module):
    """A linear layer comes before the head."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.hidden, self.fc = Body(), nn.Linear(D, D), nn.Linear(D, C)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.hidden(self.body(x)).relu())


class HeadFirst(nn.Module):
    """The head is registered before a layer that runs before it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.body, self.hidden = nn.Linear(D, C), Body(), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.hidden(self.body(x)).relu())


class Declared(HeadFirst):
    def get_classifier(self) -> nn.Module:
        return self.fc


class Answering(Net):
    def __init__(self, wrap) -> None:
        super().__init__()
        self.wrap = wrap

    def forward(self, x: Tensor):
        return self.wrap(super().forward(x))


class SqueezeLike(nn.Sequential):
    """A convolution, ReLU and pooling give the logits: no linear head."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, D, 3), nn.BatchNorm2d(D), nn.Conv2d(D, C, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )


def conv_head_after_pooling() -> nn.Module:
    return nn.Sequential(*list(Body())[:4], nn.Conv2d(D, C, 1), nn.Flatten())


def conv_head_before_pooling() -> nn.Module:
    return nn.Sequential(*list(Body())[:3], nn.Dropout(), nn.Conv2d(D, C, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
