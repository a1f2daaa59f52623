"""Continual test-time adaptation for PyTorch.

model = ctta.adapt(net, mean=..., std=...)
logits = model(x)  # predicts, then learns from the batch
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from ctta.method_table import built_in
from ctta.version import __version__

if TYPE_CHECKING:
    from ctta._adapter.answer import Answer
    from ctta._system.allocator import keep_freed_memory
    from ctta.adapter import Adapter, Step
    from ctta.classifier import Classifier
    from ctta.errors import CttaError
    from ctta.freeze import Frozen
    from ctta.guarded import Guarded
    from ctta.methods import *  # noqa: F403 - what the table names below
    from ctta.methods.eata import fisher_from_source
    from ctta.methods.petal import swag_from_source
    from ctta.methods.petta import feature_statistics_from_source
    from ctta.prototypes import prototypes_from_source
    from ctta.recommend import adapt
    from ctta.registry import get_method, list_methods, method, register

__all__ = [
    "Adapter",
    "Answer",
    "Classifier",
    "CttaError",
    "Frozen",
    "Guarded",
    "Step",
    "__version__",
    "adapt",
    "feature_statistics_from_source",
    "fisher_from_source",
    "get_method",
    "keep_freed_memory",
    "list_methods",
    "method",
    "prototypes_from_source",
    "register",
    "swag_from_source",
]

_METHODS = {facts.class_name: facts.module for facts in built_in().values()}
__all__ += list(_METHODS)

_HOMES = _METHODS | {
    "Adapter": "ctta.adapter",
    "Answer": "ctta._adapter.answer",
    "Frozen": "ctta.freeze",
    "Step": "ctta.adapter",
    "Classifier": "ctta.classifier",
    "CttaError": "ctta.errors",
    "Guarded": "ctta.guarded",
    "feature_statistics_from_source": "ctta.methods.petta",
    "fisher_from_source": "ctta.methods.eata",
    "swag_from_source": "ctta.methods.petal",
    "prototypes_from_source": "ctta.prototypes",
    "adapt": "ctta.recommend",
    "keep_freed_memory": "ctta._system.allocator",
    "get_method": "ctta.registry",
    "list_methods": "ctta.registry",
    "method": "ctta.registry",
    "register": "ctta.registry",
}


def __getattr__(name: str) -> Any:
    # Names and submodules are imported on first use, so that commands which need no torch start quickly.
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and find_spec(f"ctta.{name}") is not None:
        return import_module(f"ctta.{name}")
    raise AttributeError(f"module 'ctta' has no attribute {name!r}")


def __dir__() -> list[str]:
    modules = [module.name for module in iter_modules(__path__) if module.name[0] != "_"]  # noqa: F405
    return sorted({*__all__, *modules})
