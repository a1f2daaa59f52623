"""Continual test-time adaptation for PyTorch.

model = ctta.DMSE(ctta.Classifier(net, mean=..., std=...))
logits = model(x)  # answers, then learns
"""

from ctta.adapter import Adapter, Step
from ctta.classifier import Classifier
from ctta.errors import CttaError
from ctta.methods import BN, DMSE, Source, Tent
from ctta.prototypes import prototypes_from_source
from ctta.registry import method, methods, register
from ctta.version import __version__

__all__ = [
    "BN",
    "DMSE",
    "Adapter",
    "Classifier",
    "CttaError",
    "Source",
    "Step",
    "Tent",
    "__version__",
    "method",
    "methods",
    "prototypes_from_source",
    "register",
]
