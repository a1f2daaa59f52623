"""The classes that produced the checkpoints, if they are installed: their weights load, their logits agree."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch import nn

from ctta.nets.efficientnet_lite import EfficientNetLite0
from ctta.nets.resnet import ResNet50
from ctta.nets.weights import fit

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("default")]


def third_party(name: str) -> ModuleType:
    """Import a library that needs torchvision, whose operators some builds fail to register."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install 'ctta[models]'")
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    for module in [m for m in sys.modules if m.partition(".")[0] in ("torchvision", name)]:
        del sys.modules[module]
    library = torch.library.Library("torchvision", "DEF")
    third_party.kept = library  # type: ignore[attr-defined]  # its operators live as long as it does
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module(name)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        yield


def settle_(net: nn.Module) -> nn.Module:
    """Draw running statistics that are not the identity."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return net.eval()


@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_resnet50(library: str) -> None:
    theirs, ours = settle_(third_party(library).models.resnet50()), ResNet50().eval()
    fit(ours, theirs.state_dict())
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("size", [64, 97])
def test_efficientnet_lite0(size: int) -> None:
    theirs, ours = settle_(third_party("timm").create_model("tf_efficientnet_lite0")), EfficientNetLite0().eval()
    # timm has other names in the same order.
    fit(ours, dict(zip(ours.state_dict(), theirs.state_dict().values(), strict=True)))
    x = torch.randn(2, 3, size, size)
    torch.testing.assert_close(ours(x), theirs(x))
