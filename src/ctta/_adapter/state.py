"""Save and load the state of an adapter: everything that changes along the stream, as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ctta._adapter.learning import LearningState, same_bits
from ctta._adapter.optional_state import OptionalState
from ctta._system.buffers import buffer_forms, changed_forms, set_buffers
from ctta.errors import CheckpointError

__all__ = ["AdapterState", "OptionalState"]

# What torch and Python raise for values of the wrong type, shape, size or name.
_MISFITS = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError)


class AdapterState(LearningState):
    """A module whose parameters, buffers, optimizer, generator, window and counters are saved and loaded together.

    Its constructor takes the arguments of `LearningState`.
    """

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
            assign: Must be False: the optimizer needs the current parameters.

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
            free = self._changed_buffers() | set(_extra(state).get("replaced", ()))
            self._refuse_unfit(state, free)
            converted = self._converted(state, free)
            self._restore_buffers()
            set_buffers(self, {name: converted.get(name) for name in sorted(free)}, persistent=True, own=True)
            return super().load_state_dict(converted, strict)
        except _MISFITS as error:
            raise CheckpointError(
                f"The state does not fit {type(self).__name__}, or is damaged ({type(error).__name__}: {error})."
            ) from error

    def _refuse_unfit(self, state: Mapping[str, Any], free: set[str]) -> None:
        """Refuse a state of another adapter; buffers that forward passes create or resize are free to differ."""
        self._refuse_another_origin(state)
        lazy = self._lazy_names() | free
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

    def _refuse_another_origin(self, state: Mapping[str, Any]) -> None:
        extra = _extra(state)
        if not extra:
            raise CheckpointError(f"A state of {type(self).__name__} has an entry '_extra_state'; this one has none.")
        kind = type(self._optimizer).__name__
        for what, found, mine in (
            ("method", extra["method"], type(self).__name__),
            ("source weights", extra["source"][:12], self.source_digest[:12]),
            ("optimizer", extra["optimizer_kind"], kind),
        ):
            if found != mine:
                raise CheckpointError(f"The state belongs to another {what}: {found}, not {mine}.")

    def _changed_buffers(self) -> set[str]:
        """Return the names of saved buffers that a forward pass created, removed, resized, retyped or unshared."""
        changed = changed_forms(self._built_forms, buffer_forms(self))
        for name, value in self.named_buffers():
            initial = self._initial_of(name)
            if initial is not None and initial.dtype != value.dtype:
                changed.add(name)
        return changed - self._lazy_names() - self._unsaved_names()

    def _converted(self, state: Mapping[str, Any], free: set[str]) -> dict[str, Any]:
        """Convert every tensor of a state to this adapter's device and to the dtype that it has here.

        The dtypes may be mixed. An optional buffer may not exist here: it is converted like others of its dtype.
        """
        own = {name: v for name, v in super().state_dict().items() if isinstance(v, Tensor) and name not in free}
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
            # What cannot be recomputed from the source model: state given to the constructor, or remembered.
            "initial": {n: v for n, v in self._initial.items() if n in self._buffers or self._initial_optimizer},
            "initial_optimizer": self._initial_optimizer,
            "source_free": self.source_free,
            "transient": self._transient(),
        } | ({"replaced": sorted(replaced)} if (replaced := self._changed_buffers()) else {})

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore counters, generator, window and optimizer.

        Args:
            state: What ``get_extra_state`` returned.
        """
        self.steps, self.skipped, self.restores = state["steps"], state["skipped"], state["restores"]
        self.generator.set_state(state["generator"].cpu())
        if self._window is not None:
            self._window.clear()
            if state["window"] is not None:
                self._window.load(state["window"])
        self._load_optimizer(state["optimizer"])
        self._initial = self._initial | state["initial"]
        self._initial_optimizer = state["initial_optimizer"]
        self.source_free = state["source_free"]
        unsaved = {name: self._initial_of(name) for name in sorted(self._unsaved_names())}
        set_buffers(self, unsaved | state.get("transient", {}), persistent=False)

    def _initial_of(self, name: str) -> Tensor | None:
        """Return the initial value of a buffer, which may share its tensor with another."""
        form = self._initial_forms.get(name)
        return self._initial.get(name if form is None else form.first)

    def _transient(self) -> dict[str, Tensor | None]:
        """Return the buffers that torch does not save and that the model's own forward pass has changed."""
        buffers = dict(self.named_buffers(remove_duplicate=False))
        changed: dict[str, Tensor | None] = {}
        for name in sorted(self._unsaved_names()):
            value, initial = buffers.get(name), self._initial_of(name)
            if value is None or initial is None:
                if value is not initial:
                    changed[name] = None if value is None else value.clone()
            elif value.dtype != initial.dtype or not same_bits(value, initial):
                changed[name] = value.clone()
        return changed

    def _unsaved_names(self) -> set[str]:
        return {
            f"{prefix}.{name}".lstrip(".")
            for prefix, module in self.named_modules()
            for name in module._non_persistent_buffers_set
        }

    def cast_like(self, state: Mapping[str, Any]) -> None:
        """Convert every floating parameter and buffer to the dtype that it has in a state.

        Args:
            state: Tensors by name, from an adapter that may have been converted after it was built.
        """
        named = [*self.named_parameters(), *self.named_buffers(), *self._initial.items()]
        converted = {name: v.dtype for name, v in state.items() if isinstance(v, Tensor)}
        for name in _extra(state).get("replaced", ()):  # of another dtype by the forward pass, not by a conversion
            converted.pop(name, None)
        dtypes = {id(v): converted[n] for n, v in named if v.is_floating_point() and n in converted}
        self._apply(lambda value: value.to(dtypes.get(id(value), value.dtype)))


def _extra(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry that get_extra_state made; nothing if there is none."""
    extra = state.get("_extra_state")
    return extra if isinstance(extra, dict) else {}


def _shape(value: Any) -> torch.Size | None:
    return value.shape if isinstance(value, Tensor) else None
