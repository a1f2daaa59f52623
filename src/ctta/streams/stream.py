"""Stream: batches in the order in which they arrive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from ctta._checks.numbers import check_whole
from ctta._system.device import to_device
from ctta.datasets.domain import Labelled
from ctta.errors import ParameterError
from ctta.streams.batch import Batch


@dataclass(frozen=True)
class Segment:
    """A stretch of a stream from one domain: which of its images arrive, in which order.

    Args:
        domain: Name of the domain.
        severity: Severity of the corruption; 0 if there is none, or if several are mixed; their sum in `ccc`.
        images: The labelled images of the domain.
        order: Positions in `images` in the order of arrival, (n,) integers.
    """

    domain: str
    severity: float
    images: Labelled
    order: Tensor


class Stream:
    """Segments cut into batches; iterating again gives the same batches again.

    A batch never spans two segments: the last one of a segment may be smaller. Only the images of the current batch are
    read or generated.

    Args:
        segments: The stretches of the stream, in order.
        batch_size: Images per batch.
        start: The step to begin with.
        device: Where the images of a batch are put; labels stay on the CPU.
    """

    def __init__(
        self, segments: Sequence[Segment], *, batch_size: int, start: int = 0, device: torch.device | None = None
    ) -> None:
        check_whole(batch_size, "The 'batch_size' of a stream")
        check_whole(start, "The first step of a stream", low=0)
        self.segments = tuple(segments)
        self.batch_size = batch_size
        self.start = start
        self.device = device
        self._steps = [-(-len(segment.order) // batch_size) for segment in self.segments]
        if start > sum(self._steps):
            raise ParameterError(f"A stream of {sum(self._steps)} steps cannot start at step {start}.")

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains in order of first appearance, including those before the start."""
        return tuple(dict.fromkeys(segment.domain for segment in self.segments))

    @property
    def shifts(self) -> frozenset[int]:
        """The steps at which a segment begins, including those before the start."""
        begins = accumulate(self._steps, initial=0)
        return frozenset(begin for begin, steps in zip(begins, self._steps, strict=False) if steps)

    def starting_at(self, step: int) -> Stream:
        """Return the same stream from a step on; steps keep their numbers, and skipped batches are never generated.

        Args:
            step: The first step, from 0 to the number of steps of the whole stream.
        """
        return Stream(self.segments, batch_size=self.batch_size, start=step, device=self.device)

    def on(self, device: torch.device) -> Stream:
        """Return the same stream with its images on a device.

        Args:
            device: Where the images of a batch are put; labels stay on the CPU.
        """
        return Stream(self.segments, batch_size=self.batch_size, start=self.start, device=device)

    def __len__(self) -> int:
        return sum(self._steps) - self.start

    def __iter__(self) -> Iterator[Batch]:
        first = 0  # the number of the segment's first step
        for segment, steps in zip(self.segments, self._steps, strict=True):
            for index in range(max(self.start, first), first + steps):
                begin = (index - first) * self.batch_size
                part = segment.images.take(segment.order[begin : begin + self.batch_size])
                x = part.floats() if self.device is None else to_device(part.floats(), self.device)
                yield Batch(x, part.y, segment.domain, segment.severity, index)
            first += steps
