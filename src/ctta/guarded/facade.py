"""An adapter around another one shows the inner adapter's state as its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ctta.adapter import Adapter

#: Facts about a method that are attributes of its class.
_FACTS = ("learns", "uses_batch_statistics", "trains", "predicts_first", "logits_are", "passes", "answers_with")


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
        """The parameters that learn."""
        return self.inner.trained

    @property
    def generator(self) -> torch.Generator:  # type: ignore[override]
        """The inner adapter's generator."""
        return self.inner.generator

    @property
    def steps(self) -> int:  # type: ignore[override]
        """Steps learnt; a return to an earlier state sets them back as well."""
        return self.inner.steps

    @property
    def skipped(self) -> int:  # type: ignore[override]
        """Steps that were not finite."""
        return self.inner.skipped

    @property
    def restores(self) -> int:  # type: ignore[override]
        """Returns to the source by the inner adapter itself."""
        return self.inner.restores

    @property
    def source_digest(self) -> str:  # type: ignore[override]
        """The digest of the source weights."""
        return self.inner.source_digest

    @property
    def smallest_batch(self) -> int:
        """The fewest images that a step takes with this model."""
        return self.inner.smallest_batch

    @property
    def _lock(self) -> Any:  # type: ignore[override]
        return self.inner._lock
