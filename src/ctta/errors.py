"""Every exception the library raises on purpose.

CttaError
├── ModelError
│   ├── NotAModule              the model is not a torch.nn.Module
│   ├── ScriptedModule          the model is TorchScript, whose layers cannot be adapted
│   ├── LogitsShape             the model's output is not floating-point logits (N, C)
│   ├── TooFewClasses           the method needs more classes than the model has
│   ├── HeadNotFound            no layer that can be read as the linear head
│   │   └── SharedHead          the head is used more than once
│   └── NothingToTrain          a method found none of the parameters it adapts
├── InputError (ValueError)
│   ├── ImageDtype              not floating point
│   ├── ImageShape              not (N, C, H, W), or N = 0
│   ├── ImageRange              outside [0, 1]
│   ├── NonFiniteImages         NaN or Inf
│   └── BatchTooSmall           fewer images than the method's statistics need
├── ParameterError (ValueError) a constructor argument outside its range
├── UnknownName (KeyError)      with "did you mean"
│   ├── UnknownMethod
│   └── UnknownStream
├── ConcurrentUse               two threads in one adapter
├── InferenceMode               learning is impossible inside torch.inference_mode
├── CheckpointError
│   ├── NotACheckpoint          a truncated or foreign file
│   ├── MethodMismatch          another method's checkpoint
│   └── SourceMismatch          adapted from other source weights
├── DataError
│   ├── MissingData             a file that is not there, and where to get it
│   ├── BadData                 truncated, foreign or inconsistent data
│   └── NotWeights              a file of weights that is not one, or does not fit
└── MissingExtra (ImportError)  an optional dependency is not installed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CttaError(Exception):
    """Base of every error raised on purpose by ctta."""


class ModelError(CttaError):
    """The model cannot be used as asked."""


class NotAModule(ModelError):
    """The model is not a torch.nn.Module."""


class ScriptedModule(ModelError):
    """The model is, or contains, a TorchScript module."""


class LogitsShape(ModelError):
    """The output of the model is not floating-point logits (N, C)."""


class TooFewClasses(ModelError):
    """The model has fewer classes than the method needs."""


class HeadNotFound(ModelError):
    """No layer of the model can be read as its linear head."""


class SharedHead(HeadNotFound):
    """The head is used more than once, so its input is not one feature vector per image."""


class NothingToTrain(ModelError):
    """The model has none of the parameters the method adapts."""


class InputError(CttaError, ValueError):
    """A batch of images is not what an adapter takes."""


class ImageDtype(InputError):
    """Images are not floating point."""


class ImageShape(InputError):
    """Images are not a non-empty (N, C, H, W) tensor."""


class ImageRange(InputError):
    """Images lie outside [0, 1]."""


class NonFiniteImages(InputError):
    """Images contain NaN or Inf."""


class BatchTooSmall(InputError):
    """The batch has fewer images than the method's statistics need."""


class ParameterError(CttaError, ValueError):
    """A constructor argument is outside its range."""


class UnknownName(CttaError, KeyError):
    """A name that is not known, with the nearest one that is."""

    kind = "name"
    see = ""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self._given = (name, list(known))
        close = difflib.get_close_matches(name.lower(), list(known), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(sorted(known))}."
        super().__init__(f"{name!r} is not a known {self.kind}.{hint}{self.see}")

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[type[UnknownName], tuple[str, list[str]]]:
        return type(self), self._given


class UnknownMethod(UnknownName):
    """No method is registered under this name."""

    kind = "method"
    see = " See: ctta ls methods"


class UnknownStream(UnknownName):
    """No stream or corruption has this name."""

    kind = "stream"
    see = " See: ctta ls streams"


class ConcurrentUse(CttaError):
    """A second thread entered an adapter that has one owner."""


class InferenceMode(CttaError):
    """Learning was asked for inside torch.inference_mode."""


class CheckpointError(CttaError):
    """A checkpoint cannot be loaded."""


class NotACheckpoint(CheckpointError):
    """The file is truncated or was not written by ctta."""


class MethodMismatch(CheckpointError):
    """The checkpoint belongs to another method."""


class SourceMismatch(CheckpointError):
    """The checkpoint was adapted from other source weights."""


class DataError(CttaError):
    """A file of images, labels or weights cannot be used."""


class MissingData(DataError):
    """A needed file is not there."""


class BadData(DataError):
    """A file is truncated, foreign or inconsistent."""


class NotWeights(DataError):
    """A file is not weights, or not weights of this network."""


class MissingExtra(CttaError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        self._given = (package, extra)
        super().__init__(f"{package} is needed here and is not installed: pip install 'ctta[{extra}]'")

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return type(self), self._given
