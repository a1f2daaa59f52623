"""The values that the service, its front ends and its clients exchange."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

Mode = Literal["adapt", "frozen", "shadow"]
MODES: tuple[Mode, ...] = ("adapt", "frozen", "shadow")

#: Maximum characters of a stream's name and of a request's id, of which thousands are remembered.
LONGEST_STREAM = 128
LONGEST_ID = 256


@dataclass(frozen=True)
class Limits:
    """What the service accepts, and how it batches, learns and saves.

    Args:
        batch: Maximum number of images in one batch of a stream; a larger request is its own batch.
        wait: Seconds that the first request of a batch waits for others, unless the batch is full earlier. If requests
            usually arrive further apart than this, none waits.
        queue: Maximum number of images waiting in one stream; more are refused with `QueueFull`. An empty queue accepts
            any request.
        streams: Maximum number of streams; more are refused with `TooManyStreams`.
        save_every: Batches given to the adapter to learn from between two snapshots.
        keep: Snapshots kept per stream, besides the pinned ones.
        images: Maximum number of images in one request.
        pixels: Maximum number of values (images x channels x height x width) in one request.
        learn_share: Share of the batches to learn from however many requests arrive, above 0 and at most 1. While a
            stream learns, requests are answered from the state before; their batches are learnt from next, together,
            and shed once a whole batch is waiting for that, unless the share demands them. With 1 every batch is learnt
            from before the next one is answered.
        idle: Seconds without a request after which a stream is moved to disk; None keeps it in memory.
        audit: Megabytes of audit per stream above which its oldest lines are deleted, except those that a replay from
            the oldest kept snapshot needs; None keeps all. Pinned snapshots do not count.
        remembered: Request ids remembered per stream, so that none is learnt from twice and labels can be scored.
    """

    batch: int = 64
    wait: float = 0.02
    queue: int = 512
    streams: int = 32
    save_every: int = 50
    keep: int = 10
    images: int = 256
    pixels: int = 1 << 24
    learn_share: float = 0.25
    idle: float | None = 600.0
    audit: float | None = 256.0
    remembered: int = 10_000


@dataclass(frozen=True)
class Ask:
    """One request: images of one stream.

    Args:
        stream: The stream's name.
        images: Images, float32 (N, C, H, W) on the CPU, finite, in [0, 1].
        id: The client's id for the request; a repeated id is answered but not learnt from again. None is never a
            repetition and cannot be labelled.
        learn: Whether the request may be learnt from; False predicts without changing the adapter.
    """

    stream: str
    images: Tensor
    id: str | None = None
    learn: bool = True


@dataclass(frozen=True)
class Reply:
    """The answer to one request.

    Args:
        logits: Logits, float32 (N, K) on the CPU, one row per image of the request, in its order.
        steps: Steps that the adapter that answered had learnt; in shadow mode, the champion.
        mode: The stream's mode when it answered.
        snapshot: Name of the newest snapshot at that time; None if there was none.
        learnt: Whether the adapter is going to learn from the request's batch. It does not if the guard stops the
            learning before that. With a window, it learns from the batch that completes the window.
    """

    logits: Tensor
    steps: int
    mode: Mode
    snapshot: str | None
    learnt: bool


@dataclass(frozen=True)
class SnapshotInfo:
    """One saved state of a stream.

    Args:
        name: The snapshot's name, as passed to rollback.
        steps: Steps learnt when it was taken.
        time: When it was taken, in seconds since the epoch.
        health: The last known signals of the guard at that time, by name, and the method's alpha if it logs one.
        pinned: Whether it is kept regardless of `Limits.keep`.
        good: Whether the guard's phase was "ok" when it was taken.
    """

    name: str
    steps: int
    time: float
    health: Mapping[str, float] = field(default_factory=dict)
    pinned: bool = False
    good: bool = True


@dataclass(frozen=True)
class StreamStatus:
    """The status of one stream; values that are not known yet are None.

    Args:
        name: The stream's name.
        mode: The stream's mode.
        steps: Steps learnt by the adapter that learns.
        skipped: Steps without an update, because a loss or a gradient was not finite.
        queue: Images waiting.
        last_snapshot: Name of the newest snapshot.
        snapshots: Every snapshot kept, oldest first.
        entropy: Mean entropy of the predictions for the last batch given to the adapter to learn from, divided by log
            K.
        alpha: The method's own momentum or mixing weight in the last step, if it logs one.
        diversity: Entropy of the mean prediction for the last batch given to the adapter to learn from, divided by log
            K.
        agreement: Share of the last compared predictions that equal those of the unadapted network.
        loss: The loss of the last step that had one.
        resets: Resets by the method, by the guard and by hand, including rollbacks, since the service started.
        guard: The guard's phase: "ok", "cooldown" or "probation"; "off" without rules.
        error: Error over the labelled images in percent, of the first prediction for each; None without labels.
        labelled: Images labelled since the service started.
        answered: Images answered since the service started.
        learnt: Batches learnt from since the service started. Batches that the guard held back, and those that only
            filled a window, do not count.
        shed: Batches not learnt from because other requests were waiting, since the service started.
        latency_ms: Median time to answer the last requests, in milliseconds.
        failures: Batches that failed to be answered or learnt from because of an error, since the service started.
        unsaved: Snapshots that could not be written, since the service started.
        unaudited: Lines of the audit that could not be written, since the service started.
        unrecorded: Batches and uploaded states that could not be recorded for a replay, since the service started.
        stopped: The error with which the stream's thread ended; None while it runs.
    """

    name: str
    mode: Mode
    steps: int
    skipped: int = 0
    queue: int = 0
    last_snapshot: str | None = None
    snapshots: tuple[SnapshotInfo, ...] = ()
    entropy: float | None = None
    alpha: float | None = None
    diversity: float | None = None
    agreement: float | None = None
    loss: float | None = None
    resets: int = 0
    guard: str = "ok"
    error: float | None = None
    labelled: int = 0
    answered: int = 0
    learnt: int = 0
    shed: int = 0
    latency_ms: float | None = None
    failures: int = 0
    unsaved: int = 0
    unaudited: int = 0
    unrecorded: int = 0
    stopped: str | None = None


@dataclass(frozen=True)
class LabelReport:
    """The result of scoring the labels that a client sent.

    Args:
        error: The stream's error over all labelled images in percent; None without any.
        labelled: The number of labelled images of the stream.
        unknown: Request ids whose prediction is not remembered, or whose number of labels is wrong.
    """

    error: float | None
    labelled: int
    unknown: tuple[str, ...] = ()
