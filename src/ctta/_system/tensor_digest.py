"""Digests of tensors and of nested states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hashlib import _Hash


def add_tensor(sha: _Hash, name: str, tensor: Tensor) -> None:
    """Add a tensor to a digest: its name, dtype, shape and bytes. Device and memory layout do not matter.

    Args:
        sha: The digest to update.
        name: The name of the tensor.
        tensor: A dense tensor.
    """
    data = tensor.detach().cpu().contiguous()
    sha.update(f"{name} {data.dtype} {tuple(data.shape)}\n".encode())
    sha.update(data.view(-1).view(torch.uint8).numpy().data)


def add_value(sha: _Hash, name: str, value: Any) -> None:
    """Add a tensor or a nested value to a digest.

    Args:
        sha: The digest to update.
        name: The name of the value.
        value: A tensor, a plain value, or dicts and lists of them. For any other object only the type is added, because
            its repr may differ between processes.
    """
    if isinstance(value, Tensor) and not value.is_quantized:
        add_tensor(sha, name, value)
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            add_value(sha, f"{name}/{key!r}", value[key])
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            add_value(sha, f"{name}/{i}", item)
    elif isinstance(value, (bool, int, float, str, bytes, type(None), Tensor)):
        sha.update(f"{name} {value!r}\n".encode())
    else:
        sha.update(f"{name} {type(value).__qualname__}\n".encode())
