"""Libraries of models, imported if they are installed."""

from __future__ import annotations

import sys
import warnings
from types import ModuleType

import pytest
import torch

_KEPT: list[torch.library.Library] = []


def third_party(name: str) -> ModuleType:
    """A library of the extra ``models``; a test that asks for one that is not installed is skipped."""
    with warnings.catch_warnings():
        # Warnings while a library is imported are not about ctta.
        warnings.simplefilter("ignore")
        # timm needs it, and transformers looks into it where it is installed.
        _import_torchvision()
        return pytest.importorskip(name, reason=f"{name} is not installed: pip install 'ctta[models]'")


def _import_torchvision() -> None:
    """Import torchvision, and declare its operators if its own extension does not load."""
    try:
        import torchvision  # noqa: F401, PLC0415
    except ImportError:
        return
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        # Its operators live as long as it does.
        _KEPT.append(library)
