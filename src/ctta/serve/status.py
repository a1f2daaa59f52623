"""What an error means to a client: its status in HTTP and in gRPC, and when to try again."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ctta.errors import (
    CheckpointError,
    DamagedStream,
    InputError,
    LearnerStopped,
    NoGoodSnapshot,
    NotAllowed,
    NoToken,
    NotSaved,
    ParameterError,
    QueueFull,
    RequestTooLarge,
    ServiceClosing,
    TooManyStreams,
    UnknownName,
    WrongMode,
)


@dataclass(frozen=True)
class Status:
    """How an error is reported.

    Args:
        http: The status code of HTTP.
        grpc: The name of the status code of gRPC.
        retry_after: Whole seconds after which another attempt may succeed; None if it will not.
    """

    http: int
    grpc: str
    retry_after: int | None = None


# The first matching class is used.
_STATUS: tuple[tuple[type[BaseException], Status], ...] = (
    (RequestTooLarge, Status(413, "INVALID_ARGUMENT")),
    (InputError, Status(400, "INVALID_ARGUMENT")),
    (ParameterError, Status(400, "INVALID_ARGUMENT")),
    (CheckpointError, Status(400, "INVALID_ARGUMENT")),
    (UnknownName, Status(404, "NOT_FOUND")),
    (WrongMode, Status(409, "FAILED_PRECONDITION")),
    (NoGoodSnapshot, Status(409, "FAILED_PRECONDITION")),
    (NoToken, Status(401, "UNAUTHENTICATED")),
    (NotAllowed, Status(403, "PERMISSION_DENIED")),
    (TooManyStreams, Status(429, "RESOURCE_EXHAUSTED")),
    (QueueFull, Status(503, "RESOURCE_EXHAUSTED", 1)),
    (ServiceClosing, Status(503, "UNAVAILABLE", 5)),
    (LearnerStopped, Status(503, "UNAVAILABLE", 60)),
    (DamagedStream, Status(500, "DATA_LOSS")),
    (NotSaved, Status(507, "INTERNAL")),
    (OSError, Status(503, "UNAVAILABLE", 60)),  # such as a full disk
)
_BROKEN = Status(500, "INTERNAL")


def status_of(error: BaseException) -> Status:
    """Return how an error is reported to the client.

    Args:
        error: What the service or a front end raised.

    Example:
        >>> from ctta.errors import QueueFull
        >>> status_of(QueueFull("64 images wait.", retry_after=2.5))
        Status(http=503, grpc='RESOURCE_EXHAUSTED', retry_after=3)
    """
    if isinstance(error, QueueFull):
        return Status(503, "RESOURCE_EXHAUSTED", max(1, math.ceil(error.retry_after)))
    return next((status for kind, status in _STATUS if isinstance(error, kind)), _BROKEN)
