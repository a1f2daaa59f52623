"""A savepoint: a copy of everything a step may change, to undo a step that does not finish."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ctta._adapter.window import Window
from ctta._system.buffers import distinct


class Savepoint:
    """A copy of the state of an adapter, or of its buffers alone.

    A Ctrl-C can arrive between any two lines of a step, for example after the optimizer has updated the student and
    before the teacher is updated. ``put_back`` returns to the state at construction: the values of parameters, buffers
    and optimizer, the attributes of every module and the generator. It also removes all gradients.

    Args:
        root: The module whose state is copied.
        frozen: Names of parameters that never change and are not copied.
        parameters: Whether parameters and optimizer may change. A prediction changes only buffers, which some models
            write in their forward pass.
        optimizer: The optimizer, if there is one.
        generator: The random generator.
        window: The window, if there is one.
    """

    def __init__(
        self,
        root: nn.Module,
        *,
        generator: torch.Generator,
        parameters: bool = True,
        frozen: frozenset[str] = frozenset(),
        optimizer: torch.optim.Optimizer | None = None,
        window: Window | None = None,
    ) -> None:
        self._window = window
        self._window_state = None if window is None else window.state()
        self._generator = generator
        self._generator_state = generator.get_state()
        # TorchScript keeps the attributes of its modules outside Python, where they cannot be replaced.
        modules = [module for module in root.modules() if not isinstance(module, torch.jit.ScriptModule)]
        self._attributes = [(module, _attributes(module)) for module in modules]
        self._buffers = [_Kept(buffer, buffer.clone()) for buffer in map(distinct, root.buffers())]
        self._movable = [p for name, p in root.named_parameters() if name not in frozen] if parameters else []
        self._optimizer = optimizer
        self._parameters: _Parameters | None = None
        if parameters and optimizer is None:
            self.keep_parameters()

    def keep_parameters(self) -> None:
        """Copy the parameters and the optimizer's state, unless they were copied before.

        A step calls this right before it changes the first parameter: by then the activations are freed, so that the
        copy does not add to the peak memory of a step.
        """
        if self._parameters is None and self._movable:
            self._parameters = _Parameters(self._movable, self._optimizer)

    @torch.no_grad()
    def put_back(self) -> None:
        """Return to the state at construction. It is safe to call it twice."""
        for module, attributes in self._attributes:
            _set_attributes(module, attributes)
        for buffer in self._buffers:
            buffer.put_back()
        for parameter in self._movable:
            parameter.grad = None
        if self._parameters is not None:
            self._parameters.put_back()
        self._generator.set_state(self._generator_state)
        if self._window is not None and self._window_state is not None:
            self._window.load(self._window_state)


# The tables of a module that change when a buffer is set or registered, or a hook is added; others are not touched.
_TABLES = ("_buffers", "_non_persistent_buffers_set", "_forward_hooks", "_forward_pre_hooks")


def _attributes(module: nn.Module) -> dict[str, Any]:
    kept = dict(vars(module))
    for table in _TABLES:
        kept[table] = kept[table].copy()
    return kept


def _set_attributes(module: nn.Module, kept: dict[str, Any]) -> None:
    now = vars(module)
    for table in _TABLES:
        now[table].clear()
        now[table].update(kept[table])
    for name in [name for name in now if name not in kept]:
        del now[name]
    now.update({name: value for name, value in kept.items() if name not in _TABLES})


class _Kept(NamedTuple):
    tensor: Tensor
    value: Tensor

    def put_back(self) -> Tensor:
        return self.tensor.copy_(self.value)


class _Parameters:
    """Copies of parameters and of the state of their optimizer."""

    def __init__(self, parameters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer | None) -> None:
        self._values = [_Kept(p, p.detach().clone()) for p in parameters]
        self._optimizer = optimizer
        if optimizer is not None:
            self._groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
            self._moments = {p: {k: _kept(v) for k, v in s.items()} for p, s in optimizer.state.items()}

    def put_back(self) -> None:
        for value in self._values:
            value.put_back()
        if self._optimizer is not None:
            for group, kept in zip(self._optimizer.param_groups, self._groups, strict=True):
                for added in group.keys() - kept.keys() - {"params"}:
                    del group[added]
                group.update(kept)
            self._optimizer.state.clear()
            for parameter, state in self._moments.items():
                self._optimizer.state[parameter] = {
                    key: value.put_back() if isinstance(value, _Kept) else value for key, value in state.items()
                }


def _kept(value: Any) -> Any:
    return _Kept(value, value.clone()) if isinstance(value, Tensor) else copy.deepcopy(value)
