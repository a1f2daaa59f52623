"""A device without hardware: tensors that say they are on ``lazy:0``, compute on the CPU, and keep apart from it.

Inside ``other_device()`` the device behaves as torch's GPUs do wherever this library can tell the difference:

- tensors get there by ``.to(DEVICE)`` or a factory's ``device=``, and back by ``.cpu()``; ``copy_`` goes across;
- an operation on tensors of both devices raises, apart from what torch allows on a GPU: one 0-dim CPU tensor in a
  binary operation, ``where`` or ``masked_fill``, and CPU indices into a tensor on the device;
- the memory cannot be read from the host: no ``numpy()`` and no ``data_ptr()``, while ``item()`` and ``tolist()`` copy;
- random numbers cannot be drawn there with a CPU generator. They cannot be drawn there at all, which is stricter than a
  GPU: results must not depend on the device, so every draw belongs on the CPU;
- ``module.to(DEVICE)`` keeps its parameters' identity, so that an optimizer goes on with them.

The numbers are those of the CPU, bit for bit. ``lazy`` is a device type that every build of torch knows and none has
kernels for; the autograd engine runs its nodes in the calling thread, so it needs no driver.

Not emulated: autocast (accepted, and without effect), asynchronous kernels, the rounding of other hardware, running out
of memory, and several devices.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

# With its index, because torch asks a driver for the index if it is left out.
DEVICE = torch.device("lazy:0")

_aten = torch.ops.aten
_ACROSS = {_aten._to_copy, _aten.copy_, _aten._foreach_copy_}
_INDEXED = {_aten.index, _aten._unsafe_index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}
_TAKES_CPU_SCALAR = {_aten.where, _aten.masked_fill, _aten.masked_fill_}


class OtherTensor(Tensor):
    """A tensor on the device; ``held`` is the CPU tensor with its numbers."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> OtherTensor:
        return Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=held.device,
            dispatch_device=True,  # torch asks __torch_dispatch__ for the device, here and in C++
        )

    def __init__(self, held: Tensor) -> None:
        self.held = held

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"{self.held!r} on {DEVICE}"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Tensor], *_: object) -> OtherTensor:
        return OtherTensor(parts["held"])

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __getitem__(self, index: Any) -> Tensor:
        # torch would build the index on the device, past any mode.
        return super().__getitem__(torch.tensor(index) if isinstance(index, list) else index)

    def new_tensor(self, data: Any, *, device: Any = None, **kwargs: Any) -> Tensor:
        return self.held.new_tensor(data, **kwargs).to(DEVICE if device is None else device)

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.held.untyped_storage()  # for its address: safetensors finds shared memory by it

    def data_ptr(self) -> int:
        raise RuntimeError(f"The memory of {DEVICE} has no address on the host.")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Factories(TorchDispatchMode):
    """Handles calls without a tensor of the device among their arguments: factories, and copies from the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


@contextmanager
def other_device() -> Iterator[torch.device]:
    """Make DEVICE exist inside the context, also for threads that are started there."""
    autocast, run = torch.autocast, threading.Thread.run

    def run_here(thread: threading.Thread) -> None:
        with sdpa_kernel(SDPBackend.MATH), _Factories():  # both belong to a thread
            run(thread)

    def autocast_here(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return nullcontext() if device_type == DEVICE.type else autocast(device_type, *args, **kwargs)

    swapped = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with (
            mock.patch.object(torch, "autocast", autocast_here),
            mock.patch.object(threading.Thread, "run", run_here),
            # torch.utils.checkpoint looks a device's module up, and asks it for nothing without random state.
            mock.patch.object(torch, DEVICE.type, SimpleNamespace(), create=True),
            mock.patch.object(torch, "tensor", partial(_from_data, torch.tensor)),
            mock.patch.object(torch, "as_tensor", partial(_from_data, torch.as_tensor)),
            sdpa_kernel(SDPBackend.MATH),  # the only attention that is the same on every device
            _Factories(),
        ):
            yield DEVICE
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swapped)


def _from_data(build: Callable[..., Tensor], data: Any, *args: Any, device: Any = None, **kwargs: Any) -> Tensor:
    """A tensor of Python data, made on the CPU first: torch would ask the device for a kernel, past any mode."""
    if device is None or torch.device(device).type != DEVICE.type:
        return build(data, *args, device=device, **kwargs)
    return build(data, *args, **kwargs).to(device)


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on the CPU once its arguments are found to agree on a device."""
    if func is torch.ops.prim.device.default:
        return DEVICE if isinstance(args[0], OtherTensor) else args[0].device
    leaves = [*_leaves(args), *_leaves(kwargs.values())]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    moved = sum(isinstance(t, OtherTensor) for t in tensors)
    if 0 < moved < len(tensors):
        _refuse_mixed(func, args, tensors)
    wanted = kwargs.get("device")
    here = moved > 0 if wanted is None else torch.device(wanted).type == DEVICE.type
    if not moved and not here:
        return func(*args, **kwargs)
    draws, aliases = _traits(func)
    if here and draws:
        found = [f"found '{leaf.device}'" for leaf in leaves if isinstance(leaf, torch.Generator)]
        raise RuntimeError(
            f"Expected a {DEVICE.type!r} device type for generator but {(found or ['there is none'])[0]} ({func})."
        )
    result = func(*_each(_held, args), **{name: _each(_held, value) for name, value in kwargs.items()})
    if not here:
        return result
    result = _each(_put, result)
    # In-place operations return the very tensor they were given, and views share its storage.
    return return_and_correct_aliasing(func, args, kwargs, result) if aliases else result


@cache
def _traits(func: Any) -> tuple[bool, bool]:
    """Whether an operation draws random numbers, and whether its results may be its arguments or views of them."""
    aliases = any(argument.alias_info is not None for argument in func._schema.arguments)
    return torch.Tag.nondeterministic_seeded in func.tags, aliases


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        else:
            yield value


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_each(change, item) for item in value])
    return change(value)


def _held(value: Any) -> Any:
    if isinstance(value, OtherTensor):
        return value.held
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == DEVICE.type else value


def _put(value: Any) -> Any:
    return OtherTensor(value) if isinstance(value, Tensor) else value


def _refuse_mixed(func: Any, args: tuple[Any, ...], tensors: list[Tensor]) -> None:
    operation = func.overloadpacket
    strangers = [t for t in tensors if not isinstance(t, OtherTensor)]
    if operation in _ACROSS:
        return
    if operation in _INDEXED and isinstance(args[0], OtherTensor):
        values = [t for t in _leaves(args[2:]) if isinstance(t, Tensor)]
        if all(isinstance(t, OtherTensor) or t.dim() == 0 for t in values):
            return
    binary = torch.Tag.pointwise in func.tags and len(tensors) == 2
    foreach = func._schema.name.startswith("aten::_foreach") and func._overloadname == "Tensor"
    written = [
        v for a, given in zip(func._schema.arguments, args, strict=False) if a.is_write for v in _leaves([given])
    ]
    if (
        (binary or foreach or operation in _TAKES_CPU_SCALAR)
        and len(strangers) == 1
        and strangers[0].dim() == 0
        and not any(value is strangers[0] for value in written)
    ):
        return
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE} and "
        f"{strangers[0].device}! (when checking {func})"
    )
