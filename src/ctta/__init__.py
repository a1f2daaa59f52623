"""Continual test-time adaptation for PyTorch.

model = ctta.DMSE(ctta.Classifier(net, mean=..., std=...))
logits = model(x)  # answers, then learns
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ctta.version import __version__

if TYPE_CHECKING:
    from ctta.adapter import Adapter, Step
    from ctta.classifier import Classifier
    from ctta.errors import CttaError
    from ctta.methods import (
        BN,
        DMSE,
        EATA,
        RMT,
        ROID,
        SANTA,
        SAR,
        CoTTA,
        DeYO,
        RDumb,
        RoTTA,
        Source,
        Tent,
        fisher_from_source,
    )
    from ctta.prototypes import prototypes_from_source
    from ctta.registry import method, register

__all__ = [
    "BN",
    "DMSE",
    "EATA",
    "RMT",
    "ROID",
    "SANTA",
    "SAR",
    "Adapter",
    "Classifier",
    "CoTTA",
    "CttaError",
    "DeYO",
    "RDumb",
    "RoTTA",
    "Source",
    "Step",
    "Tent",
    "__version__",
    "fisher_from_source",
    "method",
    "prototypes_from_source",
    "register",
]

_HOMES = {
    "Adapter": "ctta.adapter",
    "Step": "ctta.adapter",
    "Classifier": "ctta.classifier",
    "CttaError": "ctta.errors",
    "prototypes_from_source": "ctta.prototypes",
    "method": "ctta.registry",
    "register": "ctta.registry",
}


_PARTS = ("bench", "doctor", "fetch", "nets", "streams", "testing")


def __getattr__(name: str) -> Any:
    # Names arrive on first use, so that the command line can answer before torch is imported.
    if name in _PARTS:
        return import_module(f"ctta.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'ctta' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "ctta.methods")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
