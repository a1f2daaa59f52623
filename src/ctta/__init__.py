"""Continual test-time adaptation for PyTorch.

model = ctta.DMSE(ctta.Classifier(net, mean=..., std=...))
logits = model(x)  # answers, then learns
"""

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
from ctta.registry import method, methods, register
from ctta.version import __version__

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
    "methods",
    "prototypes_from_source",
    "register",
]
