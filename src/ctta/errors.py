"""Every exception that the library raises on purpose.

The built-in exception that an error also is stands in brackets.

    CttaError
    ├── ModelError
    │   ├── NotAModule              the model is not a torch.nn.Module
    │   ├── ScriptedModule          the model is TorchScript, whose layers cannot be adapted
    │   ├── LogitsShape             the model's output is not floating-point logits (N, C)
    │   ├── NonFiniteLogits         the model's logits are NaN or Inf
    │   ├── TooFewClasses           the method needs more classes than the model has
    │   ├── HeadNotFound            no layer that can be read as the linear head
    │   │   └── SharedHead          the head is used more than once
    │   └── NothingToTrain          the model has none of the parameters the method adapts
    ├── InputError (ValueError)
    │   ├── ImageDtype              not floating point
    │   ├── ImageShape              not (N, C, H, W), or N = 0
    │   ├── ImageRange              outside [0, 1]
    │   ├── NonFiniteImages         NaN or Inf
    │   ├── BatchTooSmall           fewer images than the method's statistics need
    │   ├── LabelError              not one class of the model for each image
    │   ├── RequestError            a request to the service that the protocol does not allow
    │   │   └── RequestTooLarge     more bytes, images or pixels than the service accepts
    │   └── EmptyStream             a stream without batches
    ├── ParameterError (ValueError) a constructor argument outside its range
    ├── UnknownName (KeyError)      with "did you mean"
    │   ├── UnknownMethod
    │   ├── UnknownModel
    │   ├── UnknownStream
    │   ├── UnknownProtocol
    │   ├── UnknownData             nothing to fetch has this name
    │   ├── UnknownExperiment
    │   ├── UnknownCheck            no point of the contract has this name
    │   ├── UnknownLane             the service has no stream of this name
    │   ├── UnknownSnapshot         the stream has no snapshot of this name
    │   ├── UnknownServed           the service has no model of this name
    │   ├── UnknownCommand          of a TOML file
    │   ├── UnknownKey              of a TOML file
    │   └── UnknownArgument (TypeError)  the method has no argument of this name
    ├── PluginError                 an installed plug-in cannot be used
    ├── MethodError                 a method of the user's own does not do what every method must
    ├── DeviceUnavailable           torch has no such device here
    ├── UserCodeError               code the user named is missing, raised, or exited
    ├── ConcurrentUse               two calls in one adapter at the same time
    ├── AnswerFinished              learn() or forget() was called twice
    ├── InferenceMode               learning is impossible inside torch.inference_mode
    ├── NotTraceable                an adapter inside torch.jit.trace or torch.export
    ├── CheckpointError
    │   ├── NotACheckpoint          the file is truncated, or ctta did not write it
    │   ├── MethodMismatch          another method's checkpoint
    │   └── SourceMismatch          adapted from other source weights
    ├── DataError
    │   ├── MissingData             a file is missing; says where to get it
    │   ├── BadData                 truncated, unexpected or inconsistent data
    │   └── NotWeights              a file does not hold the weights of this network
    ├── ServiceError
    │   ├── QueueFull               too many images are waiting; says when to try again
    │   ├── TooManyStreams          the service has reached its limit of streams
    │   ├── ServiceClosing          the service no longer accepts requests
    │   ├── LearnerStopped          the stream's thread ended with an error
    │   ├── DamagedStream           the files of a stream cannot be read
    │   ├── StateInUse              another process owns the state folder
    │   ├── NoToken                 a request has no token, or an unknown one
    │   ├── NotAllowed              the token does not permit this operation
    │   ├── WrongMode               the stream's mode does not allow the operation
    │   ├── NoGoodSnapshot          the stream has no good snapshot from before its last steps
    │   └── NotSaved                an operation took effect, but could not be written to disk
    ├── UnlikeRuns                  runs that cannot be compared in one table
    ├── WorkerLost                  a worker process died during a run
    ├── ClusterError                no connection to a Ray cluster, or it gave up on a run
    ├── ContractBroken (AssertionError)  an adapter breaks a point of the contract
    └── MissingExtra (ImportError)  an optional dependency is not installed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: How many known names an error lists; a model library may have a thousand.
_SHOWN = 30


class CttaError(Exception):
    """Base class of every error that ctta raises on purpose."""


class ModelError(CttaError):
    """The model cannot be used."""


class NotAModule(ModelError):
    """The model is not a torch.nn.Module."""


class ScriptedModule(ModelError):
    """The model is, or contains, a TorchScript module."""


class LogitsShape(ModelError):
    """The output of the model is not floating-point logits (N, C)."""


class NonFiniteLogits(ModelError):
    """The model's logits are NaN or Inf."""


class TooFewClasses(ModelError):
    """The model has fewer classes than the method needs."""


class HeadNotFound(ModelError):
    """No layer of the model can be read as its linear head."""


class SharedHead(HeadNotFound):
    """The head is used more than once, so its input is not one feature vector per image."""


class NothingToTrain(ModelError):
    """The model has none of the parameters the method adapts."""


class InputError(CttaError, ValueError):
    """A batch of images cannot be used."""


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


class LabelError(InputError):
    """Labels are not one integer per image, or outside the classes of the model."""


class RequestError(InputError):
    """A request to the service that the protocol does not allow."""


class RequestTooLarge(RequestError):
    """A request has more bytes, images or pixels than the service accepts."""


class EmptyStream(InputError):
    """A stream has no batches."""


class ParameterError(CttaError, ValueError):
    """A constructor argument is outside its range."""


class UnknownName(CttaError, KeyError):
    """A name is not known; the message suggests the nearest known one.

    Args:
        name: The unknown name.
        known: The names that are known.
        note: A sentence to add to the message.
    """

    kind = "name"
    see = ""

    def __init__(self, name: str, known: Iterable[str], note: str = "") -> None:
        names = sorted(known)
        self._given = (name, names, note)
        close = difflib.get_close_matches(name.lower(), names, n=1)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        hint = f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(names[:_SHOWN])}{more}."
        super().__init__(f"{name!r} is not a known {self.kind}.{hint}{note and f' {note}'}{self.see}")

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[type[UnknownName], tuple[str, list[str], str]]:
        return type(self), self._given


class UnknownMethod(UnknownName):
    """No method is registered under this name."""

    kind = "method"
    see = " See: ctta ls methods"


class UnknownModel(UnknownName):
    """No network has this name."""

    kind = "model"
    see = " See: ctta ls models"


class UnknownStream(UnknownName):
    """No stream or corruption has this name."""

    kind = "stream"
    see = " See: ctta ls streams"


class UnknownProtocol(UnknownName):
    """No protocol has this name."""

    kind = "protocol"
    see = " See: ctta ls protocols"


class UnknownData(UnknownName):
    """Nothing to fetch has this name."""

    kind = "dataset"
    see = " See: ctta fetch --help"


class UnknownExperiment(UnknownName):
    """No experiment has this name."""

    kind = "experiment"
    see = " See: ctta ls experiments"


class UnknownCheck(UnknownName):
    """No point of the contract has this name."""

    kind = "check"


class UnknownLane(UnknownName):
    """The service has no stream of this name."""

    kind = "stream of this service"


class UnknownSnapshot(UnknownName):
    """The stream has no snapshot of this name."""

    kind = "snapshot"


class UnknownServed(UnknownName):
    """The service has no model of this name."""

    kind = "model of this service"


class UnknownCommand(UnknownName):
    """No command has this name."""

    kind = "command"
    see = " See: ctta --help"


class UnknownKey(UnknownName):
    """No argument or option of the command has this name."""

    kind = "argument or option"
    see = " See: ctta COMMAND --help"


class UnknownArgument(UnknownName, TypeError):
    """The method has no argument of this name."""

    kind = "argument"


class PluginError(CttaError):
    """A method, model or dataset of an installed package cannot be imported or used."""


class MethodError(CttaError):
    """A method of the user's own does not do what every method must."""


class DeviceUnavailable(CttaError):
    """The device asked for does not exist, or this build of torch cannot use it."""


class UserCodeError(CttaError):
    """Code that the user named does not exist, raised an exception, or tried to end the process."""


class ConcurrentUse(CttaError):
    """An adapter was called while another call was running."""


class AnswerFinished(CttaError):
    """learn() or forget() was called on an answer for the second time."""


class InferenceMode(CttaError):
    """An adapter was asked to learn inside torch.inference_mode."""


class NotTraceable(CttaError):
    """An adapter cannot be traced, scripted or exported; what ``freeze()`` returns can."""


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
    """A file is missing."""


class BadData(DataError):
    """A file is truncated, of an unexpected kind, or inconsistent."""


class NotWeights(DataError):
    """A file does not hold weights, or not those of this network."""


class ServiceError(CttaError):
    """The service cannot do what was asked."""


class QueueFull(ServiceError):
    """Too many images are waiting in a stream.

    Args:
        message: What is full.
        retry_after: Seconds after which another attempt may succeed.
    """

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[QueueFull], tuple[str, float]]:
        return type(self), (str(self.args[0]), self.retry_after)


class TooManyStreams(ServiceError):
    """The service has reached its limit of streams."""


class ServiceClosing(ServiceError):
    """The service no longer accepts requests."""


class LearnerStopped(ServiceError):
    """The thread of a stream ended with an error."""


class DamagedStream(ServiceError):
    """The files of a stream cannot be read; nothing of them is changed."""


class StateInUse(ServiceError):
    """Another process owns the state folder."""


class NoToken(ServiceError):
    """A request has no token, or one unknown to the service."""


class NotAllowed(ServiceError):
    """The token of a request does not permit this operation."""


class WrongMode(ServiceError):
    """The stream's mode does not allow the operation."""


class NoGoodSnapshot(ServiceError):
    """The stream has no good snapshot with fewer steps than it has now."""


class NotSaved(ServiceError):
    """An operation took effect, but its result could not be written to disk."""


class UnlikeRuns(CttaError):
    """Runs cannot be compared in one table."""


class WorkerLost(CttaError):
    """A worker process died during a run."""


class ClusterError(CttaError):
    """Could not connect to a Ray cluster, or the cluster gave up on a run."""


class ContractBroken(CttaError, AssertionError):
    """An adapter breaks a point of the contract.

    Args:
        point: The name of the point.
        expected: What the contract asks for.
        found: What the adapter did instead.
    """

    def __init__(self, point: str, expected: str, found: str) -> None:
        super().__init__(f"{point}: expected {expected}; found {found}.")
        self.point = point
        self.expected = expected
        self.found = found

    def __reduce__(self) -> tuple[type[ContractBroken], tuple[str, str, str]]:
        return type(self), (self.point, self.expected, self.found)


class MissingExtra(CttaError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: The package that is missing.
        extra: The extra of ctta that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        self._given = (package, extra)
        super().__init__(f"{package} is needed here and is not installed: pip install 'ctta[{extra}]'")

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return type(self), self._given
