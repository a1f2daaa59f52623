"""What arrives at once."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Images of one step of a stream, with what only the scorer may look at: labels and domain."""

    x: Tensor  # (N, C, H, W), floats in [0, 1]
    y: Tensor  # (N,)
    domain: str
    severity: int
    index: int  # the step's number in the whole stream

    def __len__(self) -> int:
        return len(self.y)
