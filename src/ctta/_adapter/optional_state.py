"""Buffers that a module may not have yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


class OptionalState(nn.Module):
    """A module with optional buffers: one that is registered as None may be set, removed and resized later.

    torch refuses to load a state in which a buffer exists that the module does not have yet, such as a moving average
    before the first batch. Here such buffers are created or removed to match the loaded state.

    Example:
        >>> import torch
        >>> class Average(OptionalState):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.register_buffer("mean", None)
        >>> one, other = Average(), Average()
        >>> one.mean = torch.ones(2)
        >>> _ = other.load_state_dict(one.state_dict())
        >>> other.mean
        tensor([1., 1.])
    """

    def __init__(self) -> None:
        super().__init__()
        self._lazy: set[str] = set()

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register a buffer, which is optional if it is None now.

        Args:
            name: The name of the buffer.
            tensor: Its value.
            persistent: Whether it is part of the state_dict.
        """
        super().register_buffer(name, tensor, persistent)
        if tensor is None:
            self._lazy.add(name)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        device = next((value.device for value in [*self.parameters(), *self.buffers()]), None)
        for name in self._lazy:
            saved = state_dict.get(prefix + name)
            self._buffers[name] = None if saved is None else saved.to(device, copy=True)
        super()._load_from_state_dict(state_dict, prefix, *args)
