"""Run methods on streams: the prequential loop, run records, and their comparison."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctta.bench.prequential import Progress, Report, evaluate

__all__ = ["Progress", "Report", "evaluate"]


def __getattr__(name: str) -> Any:
    # Imported on first use: reading a record must not import torch.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module("ctta.bench.prequential")
    globals().update({known: getattr(home, known) for known in __all__})
    return getattr(home, name)
