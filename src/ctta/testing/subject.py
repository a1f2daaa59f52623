"""What is checked: a way to build an adapter, a model, and images."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.errors import ContractBroken
from ctta.testing.task import drifting_images, trained

__all__ = ["BATCH", "Arguments", "Chosen", "ContractBroken", "Subject", "Variation", "run"]

BATCH = 8

Arguments = Mapping[str, Any]
# Arguments that make a difference to the same ones without the one in question; or the two sides of a comparison.
Chosen = Arguments | tuple[Arguments, Arguments]
Variation = Chosen | Callable[[Classifier], Chosen]


@dataclass(frozen=True)
class Subject:
    """An adapter under check; every check builds its own adapters around a fresh copy of the model."""

    make: Callable[..., Adapter]
    model: Callable[[], nn.Module] = trained
    images: Tensor | None = None
    labels: Tensor | None = None
    variations: Mapping[str, Variation] = field(default_factory=dict)
    margin: float = 5.0

    def source(self) -> nn.Module:
        """A fresh copy of the source model."""
        return copy.deepcopy(self._model)

    def classifier(self) -> Classifier:
        """A fresh copy of the source model as a Classifier."""
        source = self.source()
        return source if isinstance(source, Classifier) else Classifier(source)

    def build(self, **arguments: Any) -> Adapter:
        """A new adapter around a fresh copy of the model."""
        return self.make(self.source(), **arguments)

    def batches(self, count: int, size: int = BATCH, *, start: int = 0) -> list[Tensor]:
        """Consecutive batches of the images, which begin anew where they end."""
        rows = torch.arange(start * size, (start + count) * size) % len(self._images)
        return [batch.clone() for batch in torch.split(self._images[rows], size)]

    def takes(self, argument: str) -> bool:
        """Whether the constructor has this argument."""
        return argument in self.settings

    def with_and_without_window(self) -> list[dict[str, Any]]:
        """Arguments for an adapter that learns from every batch and for one that learns from every second."""
        return [{}, {"window": 2 * BATCH}] if self.takes("window") else [{}]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every constructor argument and the value it has here."""
        return self.build().settings

    @cached_property
    def _model(self) -> nn.Module:
        return self.model()

    @cached_property
    def _images(self) -> Tensor:
        return drifting_images(8 * BATCH) if self.images is None else self.images


def run(adapter: Adapter, batches: list[Tensor]) -> list[Tensor]:
    """The logits of every step of a stream."""
    return [adapter.step(x).logits for x in batches]
