"""Windows in a service: images of another size begin a new window, so that one client cannot stop all others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from ctta._adapter.window import Window
from ctta.adapter import Adapter


def begin_window(adapter: Adapter, x: Tensor) -> dict[str, Any] | None:
    """Empty the adapter's window, if it has one with images of another size.

    Args:
        adapter: The adapter.
        x: The images (N, C, H, W) that come next.

    Returns:
        What the window held, if it was emptied.
    """
    window = adapter._window
    if window is None or window.fits(x):
        return None
    held = window.state()
    window.clear()
    return held


def completes_window(adapter: Adapter, x: Tensor) -> bool:
    """Return whether the adapter would learn from these images next: with a window, only if they complete it.

    Args:
        adapter: The adapter.
        x: Images (N, C, H, W).
    """
    window = adapter._window
    return window is None or (window.fresh if window.fits(x) else 0) + len(x) >= window.size


@contextmanager
def fitting_window(adapter: Adapter, x: Tensor) -> Iterator[None]:
    """Lend an adapter an empty window for a prediction, if its own has images of another size.

    Args:
        adapter: The adapter, which has its own window back when the block ends.
        x: The images (N, C, H, W) to predict for.
    """
    own = adapter._window
    if own is not None and not own.fits(x):
        adapter._window = Window(own.size)
    try:
        yield
    finally:
        adapter._window = own
