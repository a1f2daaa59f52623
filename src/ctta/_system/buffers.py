"""The buffers of a module by name: which exist, which names share a tensor, and how to set them.

A model's own forward pass may write a buffer, create it, resize it, or replace one that two modules share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Form(NamedTuple):
    """What a buffer is, apart from its values.

    Args:
        first: The first of the names under which its tensor is registered.
        shape: Its shape.
        dtype: Its dtype; None for floats, because those follow the dtype of the module.
    """

    first: str
    shape: torch.Size
    dtype: torch.dtype | None


#: The form of every registered buffer by name; None for a buffer without a tensor.
Forms = Mapping[str, Form | None]


def buffer_forms(root: nn.Module) -> dict[str, Form | None]:
    """Return the form of every buffer of a module, under each of its names.

    Args:
        root: The module.
    """
    forms: dict[str, Form | None] = {}
    first: dict[int, str] = {}
    for name, module, key in _slots(root):
        value = module._buffers[key]
        if value is None:
            forms[name] = None
        else:
            dtype = None if value.is_floating_point() else value.dtype
            forms[name] = Form(first.setdefault(id(value), name), value.shape, dtype)
    return forms


def changed_forms(before: Forms, now: Forms) -> set[str]:
    """Return the names of buffers that have been created, removed, resized, or no longer share the same tensor.

    Args:
        before: What `buffer_forms` returned.
        now: What it returned later.
    """
    return {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}


@torch.no_grad()
def restore_buffers(root: nn.Module, forms: Forms, values: Mapping[str, Tensor]) -> None:
    """Return every buffer to the tensor it had, with the same sharing; one that was not registered is removed.

    Args:
        root: The module.
        forms: What `buffer_forms` returned.
        values: The values by the first name of each tensor. A registered buffer without one becomes None.
    """
    restored: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, module, key in _slots(root):
        form = forms.get(name)
        first = name if form is None else form.first
        buffer = module._buffers[key]
        if first not in values and name not in forms:
            del module._buffers[key]
            module._non_persistent_buffers_set.discard(key)
        elif first not in values:
            module._buffers[key] = None
        else:
            if first not in restored:
                restored[first] = filled(None if id(buffer) in taken else buffer, values[first])
                taken.add(id(restored[first]))
            if buffer is not restored[first]:
                module._buffers[key] = restored[first]


@torch.no_grad()
def set_buffers(root: nn.Module, values: Mapping[str, Tensor | None], *, persistent: bool, own: bool = False) -> None:
    """Set buffers by name, in place if that is possible.

    Args:
        root: The module.
        values: Their values. None leaves a buffer registered without a tensor.
        persistent: Whether they are part of the state_dict.
        own: Give each of them a new tensor, which no other buffer shares.

    Raises:
        KeyError: If the module itself has no buffer of such a name; inside its parts it is registered.
    """
    device = next((p.device for p in root.parameters()), None)
    written: dict[int, Tensor] = {}
    for name, given in values.items():
        path, _, key = name.rpartition(".")
        module = root.get_submodule(path)
        if module is root and key not in root._buffers:
            raise KeyError(name)  # only a network's forward pass registers buffers
        if given is None:
            module.register_buffer(key, None, persistent)
            continue
        value = given.to(device)
        buffer = module._buffers.get(key)
        before = written.get(id(buffer))
        if before is None or not (before.shape == value.shape and torch.equal(before, value)):
            tensor = filled(buffer if before is None and not own else None, value)
            written[id(tensor)] = tensor
            if tensor is not buffer:
                module.register_buffer(key, tensor, persistent)


def distinct(tensor: Tensor) -> Tensor:
    """Return a view of a tensor's elements that can be written in place: an expanded tensor repeats elements.

    Args:
        tensor: The tensor; one that is not expanded is returned as it is.
    """
    for dim in range(tensor.dim()):
        if tensor.stride(dim) == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _slots(root: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Yield the name of every buffer with its module and its key there; a shared module appears under all its names."""
    for prefix, module in root.named_modules(remove_duplicate=False):
        for key in [key for key, _ in module._buffers.items()]:  # TorchScript offers no more
            yield f"{prefix}.{key}".lstrip("."), module, key


def filled(buffer: Tensor | None, value: Tensor) -> Tensor:
    """Write a value into a buffer, or return a copy of it if the buffer cannot hold it.

    Args:
        buffer: The buffer; None if there is none yet.
        value: The value.
    """
    if buffer is None or (buffer.shape, buffer.dtype) != (value.shape, value.dtype) or distinct(buffer) is not buffer:
        return value.clone()
    return buffer.copy_(value)
