"""Batch: the images of one step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Images of one step of a stream, with labels and domain, which only the scorer may use.

    Args:
        x: The images, (N, C, H, W), floats in [0, 1].
        y: The class of each image, (N,).
        domain: Name of the domain the images come from.
        severity: Severity of the corruption; 0 if there is none, or if several are mixed; their sum in `ccc`.
        index: Number of the step in the whole stream, from 0.
    """

    x: Tensor  # (N, C, H, W), floats in [0, 1]
    y: Tensor  # (N,)
    domain: str
    severity: float
    index: int  # the step's number in the whole stream

    def __len__(self) -> int:
        return len(self.y)
