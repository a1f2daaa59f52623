"""What may be the cause if an adapter that should repeat its predictions does not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from ctta.testing.compare import difference


def global_state() -> dict[str, Any]:
    """Return the states of the global random generators."""
    numpy_state: Any = np.random.get_state()  # noqa: NPY002 - the checks are about the global generator
    return {"torch": torch.get_rng_state(), "numpy": repr(numpy_state), "random": random.getstate()}


def moved(before: dict[str, Any]) -> str | None:
    """Say which global random generators moved, and what to use instead; None if none did.

    Args:
        before: An earlier `global_state`.
    """
    now = global_state()
    names = [f"generator.{name}" for name in before if difference(before[name], now[name])]
    return f"{' and '.join(names)} moved: draw from self.generator instead" if names else None


def other_logits(found: str, before: dict[str, Any]) -> str:
    """Add the likely cause to a difference between logits: a global random generator, or state that is not saved.

    Args:
        found: The difference.
        before: The `global_state` before the steps.
    """
    hidden = (
        "is there state that is not a buffer, or a generator besides self.generator? Call self.register_buffer before "
        "self.begin"
    )
    return f"{found}; {moved(before) or hidden}"


def other_keys(found: str) -> str:
    """Add the likely cause to a difference between states if one of them has other keys.

    Args:
        found: The difference.
    """
    late = "is it registered after begin()? Call self.register_buffer before self.begin"
    return f"{found}; {late}" if ": keys [" in found else found
