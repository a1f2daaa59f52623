"""The values that the service, its front ends and its clients exchange."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

Mode = Literal["adapt", "frozen", "shadow"]
MODES: tuple[Mode, ...] = ("adapt", "frozen", "shadow")


@dataclass(frozen=True)
class Limits:
    """What the service accepts, and how it batches, learns and saves.

    Attributes:
        batch: Most images in one batch of a stream.
        wait: Seconds that the first request of a batch waits for others.
        queue: Most images that wait in one stream; more are refused with `QueueFull`.
        streams: Most streams; another one is refused with `TooManyStreams`.
        save_every: Learnt steps between two snapshots.
        keep: Snapshots kept per stream, besides the pinned ones.
        images: Most images in one request.
        pixels: Most numbers (images x channels x height x width) in one request.
        learn_share: Share of the batches that is learnt however many requests wait. The other
            batches are learnt only when nothing waits. 1 learns every batch.
        idle: Seconds without a request after which a stream is moved to disk; None never does it.
        remembered: Request ids remembered per stream, to learn no request twice and to score labels.
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
    remembered: int = 10_000


@dataclass(frozen=True)
class Ask:
    """One request: images of one stream.

    Attributes:
        stream: The stream's name.
        images: float32 (N, C, H, W) on the CPU, finite, in [0, 1].
        id: The client's name for the request. A repeated id is answered but not learnt again.
        learn: False asks for an answer that leaves no trace in the adapter.
    """

    stream: str
    images: Tensor
    id: str | None = None
    learn: bool = True


@dataclass(frozen=True)
class Reply:
    """The answer to one request.

    Attributes:
        logits: float32 (N, K), one row per image of the request, in its order.
        steps: Steps that the stream had learnt when it answered.
        mode: The stream's mode when it answered.
        snapshot: The last snapshot at that time, if there was one.
        learnt: Whether the batch of this request goes on to learning.
    """

    logits: Tensor
    steps: int
    mode: Mode
    snapshot: str | None
    learnt: bool


@dataclass(frozen=True)
class SnapshotInfo:
    """One saved state of a stream.

    Attributes:
        name: Its name, as rollback takes it.
        steps: Steps learnt when it was taken.
        time: Seconds since the epoch.
        health: The guard's signals at that time.
        pinned: Whether it is kept until it is unpinned or the stream is removed.
        good: Whether the guard had no complaint when it was taken.
    """

    name: str
    steps: int
    time: float
    health: Mapping[str, float] = field(default_factory=dict)
    pinned: bool = False
    good: bool = True


@dataclass(frozen=True)
class StreamStatus:
    """What is known about one stream.

    Attributes:
        name: The stream's name.
        mode: Its mode.
        steps: Steps learnt by the adapter that learns.
        skipped: Learnt steps without an update, because a loss or a gradient was not finite.
        queue: Images waiting.
        last_snapshot: Name of the newest snapshot.
        snapshots: Every snapshot kept, oldest first.
        entropy: Mean entropy of the last answers, divided by log K.
        alpha: The method's own momentum or mixing weight, where its log has one.
        diversity: Entropy of the mean prediction of the last answers, divided by log K.
        agreement: Share of the last compared answers equal to the reference's.
        loss: The last step's loss.
        resets: Resets by the method, by the guard and by hand.
        guard: "ok", "cooldown" or "off".
        error: Error over the labelled images in percent, as answered before learning from them.
        labelled: Images with a label.
        answered: Images answered.
        learnt: Batches learnt.
        shed: Batches not learnt because others waited.
        latency_ms: Median time to answer of the last requests, in milliseconds.
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


@dataclass(frozen=True)
class LabelReport:
    """What became of the labels that a client sent.

    Attributes:
        error: The stream's error over all labelled images in percent, None without any.
        labelled: All labelled images of the stream.
        unknown: Request ids that are not remembered, or whose number of labels is wrong.
    """

    error: float | None
    labelled: int
    unknown: tuple[str, ...] = ()
