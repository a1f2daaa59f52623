"""Continual test-time adaptation for PyTorch.

model = ctta.DMSE(ctta.Classifier(net, mean=..., std=...))
logits = model(x)  # predicts, then learns from the batch
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from ctta.version import __version__

if TYPE_CHECKING:
    from ctta._adapter.answer import Answer
    from ctta.adapter import Adapter, Step
    from ctta.classifier import Classifier
    from ctta.errors import CttaError
    from ctta.freeze import Frozen
    from ctta.guarded import Guarded
    from ctta.methods import (
        ASR,
        BN,
        CMF,
        DMSE,
        EATA,
        LAME,
        LAW,
        PALM,
        RMT,
        ROID,
        RPL,
        SANTA,
        SAR,
        SHOT,
        T3A,
        CoTTA,
        DeYO,
        RDumb,
        RoTTA,
        Source,
        Tent,
        fisher_from_source,
    )
    from ctta.prototypes import prototypes_from_source
    from ctta.registry import get_method, list_methods, method, register

__all__ = [
    "ASR",
    "BN",
    "CMF",
    "DMSE",
    "EATA",
    "LAME",
    "LAW",
    "PALM",
    "RMT",
    "ROID",
    "RPL",
    "SANTA",
    "SAR",
    "SHOT",
    "T3A",
    "Adapter",
    "Answer",
    "Classifier",
    "CoTTA",
    "CttaError",
    "DeYO",
    "Frozen",
    "Guarded",
    "RDumb",
    "RoTTA",
    "Source",
    "Step",
    "Tent",
    "__version__",
    "fisher_from_source",
    "get_method",
    "list_methods",
    "method",
    "prototypes_from_source",
    "register",
]

_HOMES = {
    "Adapter": "ctta.adapter",
    "Answer": "ctta._adapter.answer",
    "Frozen": "ctta.freeze",
    "Step": "ctta.adapter",
    "Classifier": "ctta.classifier",
    "CttaError": "ctta.errors",
    "Guarded": "ctta.guarded",
    "prototypes_from_source": "ctta.prototypes",
    "get_method": "ctta.registry",
    "list_methods": "ctta.registry",
    "method": "ctta.registry",
    "register": "ctta.registry",
}


def __getattr__(name: str) -> Any:
    # Names and submodules are imported on first use, so that commands which need no torch start quickly.
    if name in __all__:
        value = getattr(import_module(_HOMES.get(name, "ctta.methods")), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and find_spec(f"ctta.{name}") is not None:
        return import_module(f"ctta.{name}")
    raise AttributeError(f"module 'ctta' has no attribute {name!r}")


def __dir__() -> list[str]:
    modules = [module.name for module in iter_modules(__path__) if not module.name.startswith("_")]
    return sorted({*__all__, *modules})
