"""What moves in an adapter, and how it is remembered, restored, copied out and taken over."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ctta.errors import CheckpointError
from ctta.options import Optimizer
from ctta.owner import Owner
from ctta.savepoint import Savepoint
from ctta.window import Window

Result = TypeVar("Result")

# What torch and Python raise on values of the wrong type, shape, size or name.
_MISFITS = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError)


class LazyBuffers(nn.Module):
    """A module whose buffers registered as None may come, go and change size along the stream."""

    def __init__(self) -> None:
        super().__init__()
        self._lazy: set[str] = set()

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register a buffer; one that is None is lazy."""
        super().register_buffer(name, tensor, persistent)
        if tensor is None:
            self._lazy.add(name)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        device = next((value.device for value in [*self.parameters(), *self.buffers()]), None)
        for name in self._lazy:
            saved = state_dict.get(prefix + name)
            self._buffers[name] = None if saved is None else saved.to(device, copy=True)
        super()._load_from_state_dict(state_dict, prefix, *args)


class Stateful(LazyBuffers):
    """A module whose state, with its optimizer, generator, window and counters, is saved and restored as one."""

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
        self._still: frozenset[str] = frozenset()

    def _start(self, trained: list[nn.Parameter], still: set[str]) -> None:
        """Set what learns, build its optimizer, and remember the initial state of all that is not ``still``."""
        self.trained, self._still = trained, frozenset(still)
        self.requires_grad_(False)
        for parameter in trained:
            parameter.requires_grad_(True)
        self._optimizer = self._new_optimizer()
        self._initial = self._snapshot()

    def remember(self) -> None:
        """Make the present state, the optimizer's included, the one that restore and reset return to."""
        self._initial = self._snapshot()
        self._initial_optimizer = self._optimizer_state()

    def _all_or_nothing(self, change: Callable[[], Result]) -> Result:
        """Run a change of the state. Any exception, Ctrl-C included, undoes all of it."""
        before = self._savepoint()
        try:
            return change()
        except BaseException:
            before.put_back()
            raise

    def _savepoint(self) -> Savepoint:
        return Savepoint(
            self,
            generator=self.generator,
            frozen=self._still,
            optimizer=self._optimizer,
            window=self._window,
        )

    def _without_trace(self, predict: Callable[[], Result]) -> Result:
        """Run forward passes and put back what they write: the generator, and buffers that some models keep."""
        before = Savepoint(self, generator=self.generator, parameters=False)
        try:
            try:
                return predict()
            finally:
                before.put_back()
        except BaseException:
            before.put_back()  # again, in case the first time was interrupted
            raise

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
            self._all_or_nothing(self._reset)

    def _reset(self) -> None:
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
        """Take over a snapshot of an adapter of the same method and source; one that does not fit changes nothing."""
        if assign:
            raise CheckpointError("assign=True would cut the optimizer off from the weights; leave it out.")
        with self._owner:
            return self._all_or_nothing(lambda: self._load(state_dict, strict))

    def _load(self, state: Mapping[str, Any], strict: bool) -> Any:
        try:
            self._refuse_unfit(state)
            return super().load_state_dict(self._converted(state), strict)
        except _MISFITS as error:
            raise CheckpointError(
                f"The state does not fit {type(self).__name__}, or is damaged ({type(error).__name__}: {error})."
            ) from error

    def _refuse_unfit(self, state: Mapping[str, Any]) -> None:
        extra = state.get("_extra_state")
        if not isinstance(extra, dict):
            raise CheckpointError(f"A state of {type(self).__name__} has an entry '_extra_state'; this one has none.")
        kind = type(self._optimizer).__name__
        for what, found, mine in (
            ("method", extra["method"], type(self).__name__),
            ("source weights", extra["source"][:12], self.source_digest[:12]),
            ("optimizer", extra["optimizer_kind"], kind),
        ):
            if found != mine:
                raise CheckpointError(f"The state belongs to another {what}: {found}, not {mine}.")
        lazy = self._lazy_names()
        # As torch names it: without buffers that are not persistent, and with every name of a shared tensor.
        own = {name: value for name, value in super().state_dict().items() if name not in lazy}
        missing = [name for name in own if name not in state]
        unexpected = [name for name in state if name not in own and name not in lazy]
        shapes = [name for name, v in own.items() if name in state and _shape(state[name]) != _shape(v)]
        if missing or unexpected or shapes:
            raise CheckpointError(
                f"The state does not fit {type(self).__name__}. Missing: {missing[:3] or 'none'}; "
                f"unexpected: {unexpected[:3] or 'none'}; of another shape: {shapes[:3] or 'none'}."
            )

    def _lazy_names(self) -> set[str]:
        modules = [(name, m) for name, m in self.named_modules() if isinstance(m, LazyBuffers)]
        return {f"{name}.{buffer}".lstrip(".") for name, module in modules for buffer in module._lazy}

    def _converted(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Every tensor of a state on this adapter's device and in the dtype that it has here.

        The dtypes may be mixed, and a buffer that comes and goes has none here: it is converted as the others of its
        dtype are.
        """
        own = {name: value for name, value in super().state_dict().items() if isinstance(value, Tensor)}
        like = next(self.parameters(), torch.empty(0))
        dtypes = {v.dtype: own[name].dtype for name, v in state.items() if name in own and v.is_floating_point()}

        def convert(value: Any, name: str | None = None) -> Any:
            if isinstance(value, Mapping):
                return {key: convert(item, key if key in own else None) for key, item in value.items()}
            # The generator's state is bytes that stay on the CPU, and step counters are scalars that stay as they are.
            if not isinstance(value, Tensor) or value.dtype == torch.uint8 or value.dim() == 0:
                return value
            return value.to(like.device, own[name].dtype if name in own else dtypes.get(value.dtype, value.dtype))

        return {name: convert(value, name) for name, value in state.items()}

    def get_extra_state(self) -> dict[str, Any]:
        """Counters, generator, window and optimizer."""
        return {
            "method": type(self).__name__,
            "source": self.source_digest,
            "optimizer_kind": type(self._optimizer).__name__,
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
            "transient": self._transient(),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what get_extra_state gave."""
        self.steps, self.skipped, self.restores = state["steps"], state["skipped"], state["restores"]
        self.generator.set_state(state["generator"].cpu())
        if self._window is not None and state["window"] is not None:
            self._window.load(state["window"])
        self._load_optimizer(state["optimizer"])
        self._initial = self._initial | state["initial"]
        self._initial_optimizer = state["initial_optimizer"]
        self.source_free = state["source_free"]
        buffers = dict(self.named_buffers())
        for name, value in state.get("transient", {}).items():
            buffers[name].copy_(value)

    def _transient(self) -> dict[str, Tensor]:
        """Buffers that torch does not save and that the model's own forward pass has written."""
        buffers = dict(self.named_buffers())
        names = {
            f"{prefix}.{name}".lstrip(".")
            for prefix, module in self.named_modules()
            for name in module._non_persistent_buffers_set
        }
        unsaved = {name: buffers[name] for name in sorted(names) if name in buffers}
        return {
            name: value.clone()
            for name, value in unsaved.items()
            if name not in self._initial or not _same_bits(value, self._initial[name])
        }

    def cast_like(self, state: Mapping[str, Any]) -> None:
        """Give every parameter and buffer the floating dtype that its namesake has in a state.

        Args:
            state: Tensors by name, of an adapter that was converted after it was built.
        """
        named = [*self.named_parameters(), *self.named_buffers(), *self._initial.items()]
        dtypes = {id(v): state[n].dtype for n, v in named if v.is_floating_point() and isinstance(state.get(n), Tensor)}
        self._apply(lambda value: value.to(dtypes.get(id(value), value.dtype)))

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
            # The moments alone: learning rate and momentum are arguments of this adapter. And a copy, because torch
            # would keep, and step on, the very tensors it is given.
            groups = self._optimizer.state_dict()["param_groups"]
            self._optimizer.load_state_dict({"state": copy.deepcopy(state["state"]), "param_groups": groups})

    def _snapshot(self) -> dict[str, Tensor]:
        """Copies of all that may move; what starts out equal (teacher and student) is kept once."""
        kept: dict[tuple[Any, ...], list[Tensor]] = {}
        snapshot = {}
        for name, value in self._state().items():
            if name in self._still:
                continue
            twins = kept.setdefault((value.shape, value.dtype), [])
            twin = next((t for t in twins if _same_bits(t, value)), None)
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


def _same_bits(a: Tensor, b: Tensor) -> bool:
    # equal() takes -0.0 for 0.0, and a reset restores every bit.
    return torch.equal(a, b) and (not a.is_floating_point() or torch.equal(a.signbit(), b.signbit()))


def _shape(value: Any) -> torch.Size | None:
    return value.shape if isinstance(value, Tensor) else None
