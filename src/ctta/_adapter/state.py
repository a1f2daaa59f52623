"""The state of an adapter: everything that changes along the stream, saved, restored and reset as a whole."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ctta._adapter.ownership import ExclusiveLock
from ctta._adapter.savepoint import Savepoint
from ctta._adapter.window import Window
from ctta.errors import CheckpointError
from ctta.options import Optimizer

Result = TypeVar("Result")

# What torch and Python raise for values of the wrong type, shape, size or name.
_MISFITS = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError)


class OptionalState(nn.Module):
    """A module with optional buffers: one that is registered as None may be set, removed and resized later.

    torch refuses to load a state in which a buffer exists that the module does not have yet, such as a moving average
    before the first batch. Here such buffers are created and removed as the loaded state says.

    Example:
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


class AdapterState(OptionalState):
    """A module whose parameters, buffers, optimizer, generator, window and counters are saved and restored together.

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
        self._initial_optimizer: dict[str, Any] | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._frozen: frozenset[str] = frozenset()

    def _start(self, trained: list[nn.Parameter], frozen: set[str]) -> None:
        """Set what learns, build its optimizer, and remember the initial state of everything that is not frozen."""
        self.trained = trained
        self._frozen = frozenset(frozen)
        self.requires_grad_(False)
        for parameter in trained:
            parameter.requires_grad_(True)
        self._optimizer = self._new_optimizer()
        self._initial = self._snapshot()

    def remember(self) -> None:
        """Make the present state, including the optimizer's, the one that restore and reset return to."""
        self._initial = self._snapshot()
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

        ``descend`` and ``restore`` do it. A method that changes parameters before it descends calls it first.
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
        for prefix, module in self.named_modules():
            for name, buffer in module._buffers.items():
                initial = self._initial.get(f"{prefix}.{name}".lstrip("."))
                if initial is None or buffer is None or buffer.shape != initial.shape:
                    module._buffers[name] = None if initial is None else initial.clone()
        for name, value in self._state().items():
            if name in self._initial:
                value.copy_(self._initial[name])
        self.restart_optimizer()
        self.restores += 1

    def restart_optimizer(self) -> None:
        """Return the optimizer to its initial state, without moments."""
        self._optimizer = self._new_optimizer()
        self._load_optimizer(self._initial_optimizer)

    def scale_lr(self, factor: float) -> None:
        """Scale the learning rate that the optimizer was built with.

        Args:
            factor: The factor; 1 returns to the original rate.
        """
        assert self._optimizer is not None
        for group in self._optimizer.param_groups:
            group["lr"] = factor * group.setdefault("initial_lr", group["lr"])

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

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return a copy of the state: parameters, teacher, prototypes, optimizer, counters and generator.

        Args:
            args: As for torch.
            kwargs: As for torch.
        """
        with self._lock:
            state = super().state_dict(*args, **kwargs)
            return {name: v.clone() if isinstance(v, Tensor) else v for name, v in state.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load the state of an adapter of the same method and source model.

        Args:
            state_dict: What ``state_dict`` returned.
            strict: As for torch.
            assign: Must be False: the optimizer needs the present parameters.

        Raises:
            CheckpointError: If the state does not fit. Nothing is changed.
        """
        if assign:
            raise CheckpointError("assign=True would cut the optimizer off from the weights; leave it out.")
        with self._lock:
            return self._all_or_nothing(lambda: self._load(state_dict, strict))

    def _load(self, state: Mapping[str, Any], strict: bool) -> Any:
        try:
            self.keep_for_undo()
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
        modules = [(name, m) for name, m in self.named_modules() if isinstance(m, OptionalState)]
        return {f"{name}.{buffer}".lstrip(".") for name, module in modules for buffer in module._lazy}

    def _converted(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Convert every tensor of a state to this adapter's device and to the dtype that it has here.

        The dtypes may be mixed. An optional buffer may not exist here: it is converted like others of its dtype.
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
        """Return counters, generator, window and optimizer."""
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
            # What cannot be computed again from the source model: state given to the constructor, or remembered.
            "initial": {n: v for n, v in self._initial.items() if n in self._buffers or self._initial_optimizer},
            "initial_optimizer": self._initial_optimizer,
            "source_free": self.source_free,
            "transient": self._transient(),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore counters, generator, window and optimizer.

        Args:
            state: What ``get_extra_state`` returned.
        """
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
        """Return the buffers that torch does not save and that the model's own forward pass has changed."""
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
        """Convert every floating parameter and buffer to the dtype that it has in a state.

        Args:
            state: Tensors by name, from an adapter that may have been converted after it was built.
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
                    # Adam's step counter is a scalar and stays on the CPU.
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
            # Only the moments: learning rate and momentum are arguments of this adapter. They are copied because torch
            # would keep and modify the given tensors.
            groups = self._optimizer.state_dict()["param_groups"]
            self._optimizer.load_state_dict({"state": copy.deepcopy(state["state"]), "param_groups": groups})

    def _snapshot(self) -> dict[str, Tensor]:
        """Copy everything that may change; tensors that are equal (teacher and student) share one copy."""
        kept: dict[tuple[Any, ...], list[Tensor]] = {}
        snapshot = {}
        for name, value in self._state().items():
            if name in self._frozen:
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
    # torch.equal treats -0.0 and 0.0 as equal, and a reset must restore every bit.
    return torch.equal(a, b) and (not a.is_floating_point() or torch.equal(a.signbit(), b.signbit()))


def _shape(value: Any) -> torch.Size | None:
    return value.shape if isinstance(value, Tensor) else None
