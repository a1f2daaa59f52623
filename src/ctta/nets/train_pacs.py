"""The source model of PACS: ImageNet's EfficientNet-Lite0, with a head and batch norms trained on the photographs.

`ctta train pacs --data PACS --weights imagenet_efficientnet_lite0_fp16.safetensors --out FILE` trains it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from ctta import nets
from ctta._system.files import check_output
from ctta.classifier import Classifier
from ctta.datasets.pacs import pacs
from ctta.nets.models import MODELS
from ctta.nets.train import error
from ctta.nets.train_cifar import CifarTraining, train_cifar
from ctta.nets.weights import write_weights
from ctta.norms import norm_affine

MODEL, START = MODELS["pacs_efficientnet_lite0"], MODELS["imagenet_efficientnet_lite0"]
HOW = CifarTraining(passes=6, small_passes=0, padding=12, batch_size=64, optimizer="adamw", lr=2e-3, weight_decay=1e-4)
#: One photograph in so many is kept for measuring the error.
HELD_OUT = 10


def train_pacs(
    data: str | os.PathLike[str],
    weights: str | os.PathLike[str],
    out: str | os.PathLike[str],
    how: CifarTraining = HOW,
    *,
    side: int = 224,
    progress: Callable[[int, int, float], None] | None = None,
    device: torch.device | str = "cpu",
) -> float:
    """Train the source model and write it to a safetensors file.

    The convolutions keep the weights of ImageNet: 1,670 photographs are too few to train them all.

    Args:
        data: The folder of the domains of PACS.
        weights: The weights of EfficientNet-Lite0 on ImageNet.
        out: The file to write.
        how: Training settings.
        side: Side of the images in pixels.
        progress: Called after every step with the number of the pass, the percentage of it done and the loss.
        device: Where to train.

    Returns:
        The error in percent on the photographs that were not trained on.

    Raises:
        ParameterError: If the file cannot be written. Nothing is trained.
    """
    check_output(out)
    (photo,) = pacs(Path(data), "photo", side=side)
    order = torch.randperm(len(photo.images), generator=torch.Generator().manual_seed(how.seed))
    kept = torch.arange(len(order)) % HELD_OUT == 0
    train, test = photo.images.take(order[~kept]), photo.images.take(order[kept])
    model = train_cifar(lambda: untrained(weights), train.x, train.y, how, progress=progress, device=device)
    clean = error(model, test.floats(), test.y)
    facts = {"training": asdict(how), "side": side, "held_out_error": round(clean, 2), "torch": torch.__version__}
    assert isinstance(model, Classifier)
    write_weights(out, model.model, facts)
    return clean


def untrained(weights: str | os.PathLike[str]) -> Classifier:
    """Build the network with ImageNet's weights and a new head; only the head and the batch norms can be trained.

    Args:
        weights: The weights of EfficientNet-Lite0 on ImageNet.
    """
    net = MODEL.build()
    head = net.get_submodule(MODEL.head)
    assert isinstance(head, nn.Linear)
    known = {name: v for name, v in nets.load(START.name, weights).state_dict().items() if MODEL.head not in name}
    net.load_state_dict(known, strict=False)
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    for parameter in (*norm_affine(net), *head.parameters()):
        parameter.requires_grad_(True)
    return Classifier(net, head=MODEL.head, mean=MODEL.mean, std=MODEL.std)
