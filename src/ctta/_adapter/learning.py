"""What an adapter learns: parameters, their optimizer and generator, and the source values that they return to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ctta._adapter.optional_state import OptionalState
from ctta._adapter.ownership import ExclusiveLock
from ctta._adapter.savepoint import Savepoint
from ctta._adapter.window import Window
from ctta._checks.model import refuse_half
from ctta._checks.optimizer import check_optimizer
from ctta._system.buffers import Form, Forms, buffer_forms, restore_buffers
from ctta.options import Optimizer

Result = TypeVar("Result")


class LearningState(OptionalState):
    """A module that learns along a stream, and can return to the state that it began with.

    Args:
        optimizer: "adam", "sgd", or a function that takes the list of parameters and returns an optimizer.
        lr: Learning rate.
        momentum: Momentum of "sgd".
        nesterov: Use Nesterov momentum with "sgd".
        seed: Seed of the generator.
        window: How many of the last images to keep, if any.
    """

    source_free: bool = True
    source_digest: str = ""

    def __init__(
        self,
        *,
        optimizer: Optimizer,
        lr: float,
        momentum: float,
        nesterov: bool,
        seed: int,
        window: int | None,
    ) -> None:
        super().__init__()
        self.optimizer = optimizer
        self.lr = lr
        self.momentum = momentum
        self.nesterov = nesterov
        self.seed = seed
        self.window = window
        self.generator = torch.Generator().manual_seed(seed)
        self.steps = 0
        self.skipped = 0
        self.restores = 0
        self.trained: list[nn.Parameter] = []
        self._lock = ExclusiveLock()
        self._window = None if window is None else Window(window)
        self._undo: Savepoint | None = None
        self._initial: dict[str, Tensor] = {}
        self._initial_forms: dict[str, Form | None] = {}
        self._initial_extras: dict[str, Any] = {}
        self._built_forms: Forms = {}
        self._initial_optimizer: dict[str, Any] | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._frozen: frozenset[str] = frozenset()

    def _start(self, trained: list[nn.Parameter], frozen: set[str]) -> None:
        """Set the parameters to train, build their optimizer, and remember the initial state of all but the frozen."""
        self.trained = trained
        self._frozen = frozenset(frozen)
        self.requires_grad_(False)
        for parameter in trained:
            parameter.requires_grad_(True)
        self._optimizer = self._new_optimizer()
        self._keep_initial()
        self._built_forms = self._initial_forms

    def _keep_initial(self) -> None:
        self._initial = self._snapshot()
        self._initial_forms = buffer_forms(self)
        self._initial_extras = {name: _copied(module.get_extra_state()) for name, module in self._with_extras()}

    def remember(self) -> None:
        """Make the current state, including the optimizer's, the one that restore and reset return to."""
        self._keep_initial()
        self._initial_optimizer = self._optimizer_state()

    def _all_or_nothing(self, change: Callable[[], Result]) -> Result:
        """Change the state; if any exception is raised, Ctrl-C included, undo the whole change."""
        before = self._savepoint()
        try:
            return change()
        except BaseException:
            before.put_back()
            raise
        finally:
            self._undo = None

    def _savepoint(self) -> Savepoint:
        self._undo = Savepoint(
            self,
            generator=self.generator,
            frozen=self._frozen,
            optimizer=self._optimizer,
            window=self._window,
        )
        return self._undo

    def keep_for_undo(self) -> None:
        """Copy the parameters before they change, so that an interrupted step can be undone.

        ``descend`` and ``restore`` call it. A method that changes parameters before ``descend`` must call it itself.
        """
        if self._undo is not None:
            self._undo.keep_parameters()

    def _without_trace(self, predict: Callable[[], Result]) -> Result:
        """Run forward passes and undo what they change: the generator, and buffers that some models write."""
        before = Savepoint(self, generator=self.generator, parameters=False)
        try:
            try:
                return predict()
            finally:
                before.put_back()
        except BaseException:
            before.put_back()  # again: a Ctrl-C may have interrupted the first call
            raise

    @torch.no_grad()
    def restore(self) -> None:
        """Return weights, optimizer and the method's state to their initial values; keep counters and generator."""
        self.keep_for_undo()
        self._restore_buffers()
        for name, parameter in self.named_parameters():
            if name in self._initial:
                parameter.copy_(self._initial[name])
        for name, module in self._with_extras():
            if name in self._initial_extras:
                module.set_extra_state(_copied(self._initial_extras[name]))
        self.restart_optimizer()
        self.restores += 1

    def _restore_buffers(self) -> None:
        # A method derived from another registers its optional buffers after the other's constructor has ended.
        restore_buffers(self, dict.fromkeys(self._lazy_names()) | self._initial_forms, self._initial)

    def _lazy_names(self) -> set[str]:
        modules = [(name, m) for name, m in self.named_modules() if isinstance(m, OptionalState)]
        return {f"{name}.{buffer}".lstrip(".") for name, module in modules for buffer in module._lazy}

    def restart_optimizer(self) -> None:
        """Return the optimizer to its initial state, without moments."""
        self._optimizer = self._new_optimizer()
        self._load_optimizer(self._initial_optimizer)

    @contextmanager
    def scaled_lr(self, factor: float) -> Iterator[None]:
        """Scale the learning rate of the optimizer in this context.

        Args:
            factor: The factor.
        """
        assert self._optimizer is not None
        groups = self._optimizer.param_groups
        rates = [group["lr"] for group in groups]
        try:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = factor * rate
            yield
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate

    def source_of_trained(self) -> list[Tensor]:
        """Return the source values of the trained parameters, in order."""
        names = {id(p): name for name, p in self.named_parameters()}
        return [self._initial[names[id(p)]] for p in self.trained]

    def source_of(self, module: nn.Module) -> list[Tensor]:
        """Return the source values of the parameters of a part of this adapter, in order.

        Args:
            module: The part, such as the teacher.
        """
        prefix = next(name for name, part in self.named_modules() if part is module)
        return [self._initial[f"{prefix}.{name}"] for name, _ in module.named_parameters()]

    def reset(self) -> None:
        """Return to the state of a newly built adapter, bit for bit."""
        with self._lock:
            self._all_or_nothing(self._reset)

    def _reset(self) -> None:
        self.restore()
        self.steps = self.skipped = self.restores = 0
        self.generator.manual_seed(self.seed)
        if self._window is not None:
            self._window.clear()

    def footprint(self) -> int:
        """Return the bytes that the adapter holds between batches, including the optimizer's moments."""
        moments = 2 if self.optimizer == "adam" else int(self.optimizer != "sgd" or self.momentum > 0)
        held = {id(t): t.nbytes for t in [*self._state().values(), *self._initial.values()]}
        return sum(held.values()) + moments * sum(p.nbytes for p in self.trained)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        refuse_half(fn(torch.zeros(())).dtype, type(self).__name__)
        moved: dict[int, tuple[Tensor, Tensor]] = {}

        def shared(value: Tensor) -> Tensor:
            """Convert a buffer once, so that modules which share it go on sharing it."""
            if isinstance(value, nn.Parameter):
                return fn(value)
            if id(value) not in moved:
                moved[id(value)] = (value, fn(value))
            return moved[id(value)][1]

        super()._apply(shared, recurse)  # type: ignore[no-untyped-call]
        self._initial = {name: shared(value) for name, value in self._initial.items()}
        if self._window is not None and self._window.images is not None:
            self._window.images = fn(self._window.images)
        if self._optimizer is not None:
            for parameter, state in self._optimizer.state.items():
                for key, value in state.items():
                    # Adam's step counter is a scalar and stays on the CPU.
                    if isinstance(value, Tensor) and value.shape == parameter.shape:
                        state[key] = fn(value)
        return self

    def _with_extras(self) -> list[tuple[str, nn.Module]]:
        """Return the modules of the networks that keep state which is not a tensor."""
        return [
            (name, module)
            for name, module in self.named_modules()
            if module is not self
            and type(module).get_extra_state is not nn.Module.get_extra_state
            and type(module).set_extra_state is not nn.Module.set_extra_state
        ]

    def _state(self) -> dict[str, Tensor]:
        named = [*self.named_parameters(), *self.named_buffers()]
        return {name: value.detach() for name, value in named}

    def _optimizer_state(self) -> dict[str, Any] | None:
        return None if self._optimizer is None else _copied(self._optimizer.state_dict())

    def _load_optimizer(self, state: dict[str, Any] | None) -> None:
        if self._optimizer is not None and state is not None:
            # Only the moments: learning rate and momentum are arguments of this adapter. They are copied because torch
            # would keep and modify the given tensors.
            groups = self._optimizer.state_dict()["param_groups"]
            self._optimizer.load_state_dict({"state": _copied(state["state"]), "param_groups": groups})

    def _snapshot(self) -> dict[str, Tensor]:
        """Copy everything that may change; tensors that are equal (teacher and student) share one copy."""
        kept: dict[tuple[Any, ...], list[Tensor]] = {}
        snapshot = {}
        for name, value in self._state().items():
            if name in self._frozen:
                continue
            twins = kept.setdefault((value.shape, value.dtype), [])
            twin = next((t for t in twins if same_bits(t, value)), None)
            if twin is None:
                twin = value.clone()
                twins.append(twin)
            snapshot[name] = twin
        return snapshot

    def _new_optimizer(self) -> torch.optim.Optimizer | None:
        if not self.trained:
            return None
        if not isinstance(self.optimizer, str):
            return check_optimizer(self.optimizer(self.trained))
        if self.optimizer == "adam":
            return torch.optim.Adam(self.trained, lr=self.lr, foreach=True)
        # Paper silent (DMSE): nesterov, as in the RMT code base.
        nesterov = self.nesterov and self.momentum > 0
        return torch.optim.SGD(self.trained, lr=self.lr, momentum=self.momentum, nesterov=nesterov, foreach=True)


def _copied(value: Any) -> Any:
    """Copy the state of an optimizer; ``copy.deepcopy`` takes ten times as long for a tensor."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) is list:
        return [_copied(item) for item in value]
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same shape and bits.

    Args:
        a: A tensor.
        b: Another one.
    """
    if a.is_floating_point() and a.element_size() == 1:  # torch cannot compare these floats
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    # torch.equal treats -0.0 and 0.0 as equal, and a reset must restore every bit.
    return torch.equal(a, b) and (not a.is_floating_point() or torch.equal(a.signbit(), b.signbit()))
