"""The source model of the demo: a ResNet-8 for handwritten digits, bundled with the package.

`ctta train digits --out digits_resnet8.safetensors` trains it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict

import torch

from ctta._system.files import check_output
from ctta.classifier import Classifier
from ctta.datasets.digits import digits
from ctta.nets.models import MODELS
from ctta.nets.train import Training, error, train
from ctta.nets.weights import write_weights

MODEL = MODELS["digits_resnet8"]


def train_digits(
    path: str | os.PathLike[str],
    how: Training,
    *,
    progress: Callable[[int, float], None] | None = None,
    device: torch.device | str = "cpu",
) -> float:
    """Train the source model and write it to a safetensors file.

    Training uses one thread, so that the same machine and version of torch give the same file bit for bit.

    Args:
        path: The file.
        how: How to train.
        progress: Called after each pass with its number and the loss.
        device: Where to train.

    Returns:
        The error in percent on the digits of the stream.

    Raises:
        ParameterError: If the file cannot be written. Nothing is trained.
    """
    check_output(path)
    data, threads = digits(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = train(_untrained, data.train.floats(), data.train.y, how, progress=progress, device=device)
        clean = error(model, data.stream.floats(), data.stream.y)
    finally:
        torch.set_num_threads(threads)
    facts = {
        "command": f"ctta train digits --seed {how.seed} --passes {how.passes}",
        "training": asdict(how),
        "clean_error": round(clean, 2),
        "mean": MODEL.mean,
        "std": MODEL.std,
        "torch": torch.__version__,
    }
    assert isinstance(model, Classifier)
    write_weights(path, model.model, facts)
    return clean


def _untrained() -> Classifier:
    return Classifier(MODEL.build(), head=MODEL.head, mean=MODEL.mean, std=MODEL.std)
