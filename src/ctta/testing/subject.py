"""The adapter under test, with the model and the images to test it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ctta._system.module_copy import deepcopy_module
from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.errors import ContractBroken
from ctta.testing.compare import same_bits
from ctta.testing.task import drifting_images, trained

__all__ = ["BATCH", "Arguments", "Chosen", "ContractBroken", "Subject", "Variation", "run"]

BATCH = 8

Arguments = Mapping[str, Any]
# Arguments to compare with the same ones minus the argument under test; or both sides of the comparison.
Chosen = Arguments | tuple[Arguments, Arguments]
Variation = Chosen | Callable[[Classifier], Chosen]


@dataclass(frozen=True)
class Subject:
    """An adapter under test. Every check builds its own adapters around a fresh copy of the model.

    Args:
        make: Builds the adapter as ``make(model, **arguments)``.
        model: Builds the source model.
        images: A stream for the model, (M, C, H, W) in [0, 1]. Default: synthetic images that drift.
        labels: Labels of ``images``.
        variations: Settings under which a constructor argument has a visible effect; see `check_adapter`.
        margin: How far the error may rise on clean images, in percentage points.
    """

    make: Callable[..., Adapter]
    model: Callable[[], nn.Module] = trained
    images: Tensor | None = None
    labels: Tensor | None = None
    variations: Mapping[str, Variation] = field(default_factory=dict)
    margin: float = 5.0

    def source(self) -> nn.Module:
        """Return a fresh copy of the source model."""
        return deepcopy_module(self._model)

    def classifier(self) -> Classifier:
        """Return a fresh copy of the source model, wrapped in a Classifier."""
        source = self.source()
        return source if isinstance(source, Classifier) else Classifier(source)

    def build(self, **arguments: Any) -> Adapter:
        """Build an adapter around a fresh copy of the model.

        Args:
            arguments: Constructor arguments of the method.
        """
        return self.make(self.source(), **arguments)

    def batches(self, count: int, size: int = BATCH, *, start: int = 0) -> list[Tensor]:
        """Return consecutive batches of the images, starting over at the end.

        Args:
            count: Number of batches.
            size: Images per batch.
            start: Number of batches to skip.
        """
        rows = torch.arange(start * size, (start + count) * size) % len(self._images)
        return [batch.clone() for batch in torch.split(self._images[rows], size)]

    def takes(self, argument: str) -> bool:
        """Return whether the constructor has this argument.

        Args:
            argument: Name of the argument.
        """
        return argument in self.settings

    def with_and_without_window(self) -> list[dict[str, Any]]:
        """Return arguments for an adapter that learns from every batch and for one that learns from every second."""
        return [{}, {"window": 2 * BATCH}] if self.takes("window") else [{}]

    @cached_property
    def updated_by_forward(self) -> list[str]:
        """Names of the classifier's buffers that a forward pass of the source model updates itself."""
        source = self.classifier().eval()
        before = {name: value.clone() for name, value in source.named_buffers()}
        with torch.no_grad():
            source(self.batches(1)[0])
        now = dict(source.named_buffers())
        return [name for name, value in now.items() if name not in before or not same_bits(before[name], value)]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every constructor argument and its value."""
        return self.build().settings

    @cached_property
    def _model(self) -> nn.Module:
        return self.model()

    @cached_property
    def _images(self) -> Tensor:
        return drifting_images(8 * BATCH) if self.images is None else self.images


def run(adapter: Adapter, batches: list[Tensor]) -> list[Tensor]:
    """Step through a stream and return the logits of every batch.

    Args:
        adapter: The adapter, which learns from every batch.
        batches: Images (N, C, H, W) of each batch, in order.
    """
    return [adapter.step(x).logits for x in batches]
