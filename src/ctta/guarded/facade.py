"""Base of adapters that wrap another one and show its state as their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ctta.adapter import Adapter

#: Facts about a method that are attributes of its class.
_FACTS = (
    "learns",
    "uses_batch_statistics",
    "trains",
    "predicts_first",
    "predicts_batch_together",
    "logits_are",
    "passes",
    "answers_with",
    "mirrored",
)


class Facade(Adapter):
    """Base class of an adapter that wraps another one."""

    inner: Adapter

    def show(self, adapter: Adapter) -> None:
        """Wrap an adapter.

        Args:
            adapter: The adapter to wrap.
        """
        self.inner = adapter
        for name in _FACTS:
            if hasattr(adapter, name):
                vars(self)[name] = getattr(adapter, name)

    @property
    def student(self) -> Any:  # type: ignore[override]
        """The inner adapter's student."""
        return self.inner.student

    @property
    def trained(self) -> list[nn.Parameter]:  # type: ignore[override]
        """The trained parameters."""
        return self.inner.trained

    @property
    def generator(self) -> torch.Generator:  # type: ignore[override]
        """The inner adapter's generator."""
        return self.inner.generator

    @property
    def steps(self) -> int:  # type: ignore[override]
        """Steps learnt; a return to an earlier state also restores this number."""
        return self.inner.steps

    @property
    def skipped(self) -> int:  # type: ignore[override]
        """Steps that were not finite."""
        return self.inner.skipped

    @property
    def restores(self) -> int:  # type: ignore[override]
        """How often the inner adapter itself returned to the source."""
        return self.inner.restores

    @property
    def source_digest(self) -> str:  # type: ignore[override]
        """The digest of the source weights."""
        return self.inner.source_digest

    @property
    def source_free(self) -> bool:  # type: ignore[override]
        """Whether the inner adapter uses no source data."""
        return self.inner.source_free

    @property
    def smallest_batch(self) -> int:
        """The smallest batch that a step accepts with this model."""
        return self.inner.smallest_batch

    def answer(self, x: Tensor) -> Tensor:
        """Predict as the inner adapter does."""
        return self.inner.answer(x)

    def combine(self, *logits: Tensor) -> Tensor:  # type: ignore[override]
        """Combine the logits of the inner adapter's networks."""
        return self.inner.combine(*logits)

    def restore(self) -> None:
        """Return the inner adapter to its initial values; keep counters and generator."""
        self.inner.restore()

    def remember(self) -> None:
        """Make the inner adapter's current state the one that it returns to."""
        self.inner.remember()

    def restart_optimizer(self) -> None:
        """Return the inner adapter's optimizer to its initial state."""
        self.inner.restart_optimizer()

    def keep_for_undo(self) -> None:
        """Copy the inner adapter's parameters before they change."""
        self.inner.keep_for_undo()

    def source_of_trained(self) -> list[Tensor]:
        """Return the source values of the trained parameters, in order."""
        return self.inner.source_of_trained()

    @property
    def _lock(self) -> Any:  # type: ignore[override]
        return self.inner._lock
