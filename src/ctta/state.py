"""What moves in an adapter, and how it is remembered, restored, copied out and taken over."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ctta.errors import CheckpointError
from ctta.options import Optimizer
from ctta.owner import Owner
from ctta.window import Window


class LazyBuffers(nn.Module):
    """A module whose own buffers may start as None or change size along the stream."""

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        for name, current in self._buffers.items():
            saved = state_dict.get(prefix + name)
            if saved is None:
                self._buffers[name] = None
            elif current is None or current.shape != saved.shape:
                self._buffers[name] = saved.clone()
        super()._load_from_state_dict(state_dict, prefix, *args)


class Stateful(LazyBuffers):
    """A module whose state, with its optimizer, generator, window and counters, is saved and restored as one."""

    source_free: bool = True

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
        self.optimizer, self.lr, self.momentum, self.nesterov = optimizer, lr, momentum, nesterov
        self.seed, self.window = seed, window
        self.generator = torch.Generator().manual_seed(seed)
        self.steps = self.skipped = self.restores = 0
        self.trained: list[nn.Parameter] = []
        self._owner = Owner()
        self._window = None if window is None else Window(window)
        self._initial: dict[str, Tensor] = {}
        self._initial_optimizer: dict[str, Any] | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._still: set[str] = set()

    def _start(self, trained: list[nn.Parameter], still: set[str]) -> None:
        """Set what learns, build its optimizer, and remember the initial state of all that is not ``still``."""
        self.trained, self._still = trained, still
        self.requires_grad_(False)
        for parameter in trained:
            parameter.requires_grad_(True)
        self._optimizer = self._new_optimizer()
        self._initial = self._snapshot()

    def remember(self) -> None:
        """Make the present state, the optimizer's included, the one that restore and reset return to."""
        self._initial = self._snapshot()
        self._initial_optimizer = self._optimizer_state()

    @torch.no_grad()
    def restore(self) -> None:
        """Return weights, optimizer and the method's state to the source; counters and generator go on."""
        for prefix, module in self.named_modules():
            for name, buffer in module._buffers.items():
                initial = self._initial.get(f"{prefix}.{name}".lstrip("."))
                if initial is None or buffer is None or buffer.shape != initial.shape:
                    module._buffers[name] = None if initial is None else initial.clone()
        for name, value in self._state().items():
            if name in self._initial:
                value.copy_(self._initial[name])
        self._optimizer = self._new_optimizer()
        self._load_optimizer(self._initial_optimizer)
        self.restores += 1

    def scale_lr(self, factor: float) -> None:
        """Set the learning rate to a share of the one the optimizer was built with."""
        assert self._optimizer is not None
        for group in self._optimizer.param_groups:
            group["lr"] = factor * group.setdefault("initial_lr", group["lr"])

    def source_of_trained(self) -> list[Tensor]:
        """The source values of the parameters that learn, in order."""
        names = {id(p): name for name, p in self.named_parameters()}
        return [self._initial[names[id(p)]] for p in self.trained]

    def source_of(self, module: nn.Module) -> list[Tensor]:
        """The source values of the parameters of a part of this adapter, in order."""
        prefix = next(name for name, part in self.named_modules() if part is module)
        return [self._initial[f"{prefix}.{name}"] for name, _ in module.named_parameters()]

    def reset(self) -> None:
        """Return to the state of a newly built adapter, bit for bit."""
        with self._owner:
            self.restore()
            self.steps = self.skipped = self.restores = 0
            self.generator.manual_seed(self.seed)
            if self._window is not None:
                self._window.clear()

    def footprint(self) -> int:
        """Bytes of everything the adapter holds between batches, with the optimizer's moments once it has stepped."""
        moments = 2 if self.optimizer == "adam" else 1
        held = {id(t): t.nbytes for t in [*self._state().values(), *self._initial.values()]}
        return sum(held.values()) + moments * sum(p.nbytes for p in self.trained)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """A snapshot of everything that moves: parameters, teacher, prototypes, optimizer, counters, generator."""
        with self._owner:
            state = super().state_dict(*args, **kwargs)
            return {name: v.clone() if isinstance(v, Tensor) else v for name, v in state.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take over a snapshot of an adapter of the same method and model."""
        with self._owner:
            try:
                return super().load_state_dict(state_dict, strict, assign)
            except RuntimeError as error:
                raise CheckpointError(f"The state does not fit {type(self).__name__}: {error}") from error

    def get_extra_state(self) -> dict[str, Any]:
        """Counters, generator, window and optimizer."""
        return {
            "steps": self.steps,
            "skipped": self.skipped,
            "restores": self.restores,
            "generator": self.generator.get_state(),
            "window": None if self._window is None else self._window.state(),
            "optimizer": self._optimizer_state(),
            # What the source model cannot give again: state handed to the constructor, or remembered.
            "initial": {n: v for n, v in self._initial.items() if n in self._buffers or self._initial_optimizer},
            "initial_optimizer": self._initial_optimizer,
            "source_free": self.source_free,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what get_extra_state gave."""
        self.steps, self.skipped, self.restores = state["steps"], state["skipped"], state["restores"]
        self.generator.set_state(state["generator"].cpu())
        if self._window is not None and state["window"] is not None:
            self._window.load(state["window"])
        self._load_optimizer(state["optimizer"])
        like = next(self.parameters(), torch.empty(0))
        self._initial |= {name: value.to(like.device) for name, value in state["initial"].items()}
        self._initial_optimizer, self.source_free = state["initial_optimizer"], state["source_free"]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        moved = {id(value): fn(value) for value in self._initial.values()}
        self._initial = {name: moved[id(value)] for name, value in self._initial.items()}
        if self._window is not None and self._window.images is not None:
            self._window.images = fn(self._window.images)
        if self._optimizer is not None:
            for parameter, state in self._optimizer.state.items():
                for key, value in state.items():
                    # Adam's step counter is a scalar that stays where it is.
                    if isinstance(value, Tensor) and value.shape == parameter.shape:
                        state[key] = fn(value)
        return self

    def _state(self) -> dict[str, Tensor]:
        named = [*self.named_parameters(), *self.named_buffers()]
        return {name: value.detach() for name, value in named}

    def _optimizer_state(self) -> dict[str, Any] | None:
        return None if self._optimizer is None else copy.deepcopy(self._optimizer.state_dict())

    def _load_optimizer(self, state: dict[str, Any] | None) -> None:
        if self._optimizer is not None and state is not None:
            # A copy: torch would keep, and step on, the very tensors it is given.
            self._optimizer.load_state_dict(copy.deepcopy(state))

    def _snapshot(self) -> dict[str, Tensor]:
        """Copies of all that may move; what starts out equal (teacher and student) is kept once."""
        kept: dict[tuple[Any, ...], list[Tensor]] = {}
        snapshot = {}
        for name, value in self._state().items():
            if name in self._still:
                continue
            twins = kept.setdefault((value.shape, value.dtype), [])
            twin = next((t for t in twins if torch.equal(t, value)), None)
            if twin is None:
                twin = value.clone()
                twins.append(twin)
            snapshot[name] = twin
        return snapshot

    def _new_optimizer(self) -> torch.optim.Optimizer | None:
        if not self.trained:
            return None
        if not isinstance(self.optimizer, str):
            return self.optimizer(self.trained)
        if self.optimizer == "adam":
            return torch.optim.Adam(self.trained, lr=self.lr, foreach=True)
        # Paper silent (DMSE): nesterov, as in the RMT code base.
        nesterov = self.nesterov and self.momentum > 0
        return torch.optim.SGD(self.trained, lr=self.lr, momentum=self.momentum, nesterov=nesterov, foreach=True)
