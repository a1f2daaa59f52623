"""The double of a stream: a copy of what predicts, for the time in which the original learns."""

from __future__ import annotations

import copy
import weakref

import torch
from torch import Tensor

from ctta.adapter import Adapter
from ctta.guarded import Reference
from ctta.serve.learner import Learner
from ctta.serve.windows import begin_window, completes_window, fitting_window


class Double:
    """Predicts as a learner did when it was last followed.

    It shares with the learner's adapter what never changes, and has none of the optimizer's moments. It is not
    synchronised: one thread at a time may use it.
    """

    def __init__(self) -> None:
        self._copy: Adapter | None = None
        self._original: weakref.ref[Adapter] | None = None
        # The unadapted network, while the guard lets it predict.
        self._fallback: Reference | None = None
        self._smallest_batch = 1
        self._guard_learns = False
        #: Steps learnt by the adapter that is copied.
        self.steps = 0

    @property
    def ready(self) -> bool:
        """Whether there is a learner to stand in for."""
        return self._copy is not None

    def follow(self, learner: Learner) -> None:
        """Take over the current state of a learner; in shadow mode, that of its champion.

        Args:
            learner: The learner, which must be idle.
        """
        original = learner.champion or learner.adapter.inner
        if self._copy is None or self._original is None or self._original() is not original:
            self._copy = _copy(original)
            self._original = weakref.ref(original)
        else:
            _copy_state(original, self._copy)
        guarded = learner.adapter
        falls_back = learner.champion is None and guarded.watch.falls_back()
        self._fallback = guarded.reference if falls_back else None
        self._smallest_batch = 1 if guarded.inner._window is not None else guarded.smallest_batch
        self._guard_learns = guarded.watch.learns()
        self.steps = learner.steps

    @property
    def has_window(self) -> bool:
        """Whether the adapter keeps a window of images."""
        return self._copy is not None and self._copy._window is not None

    def drop(self) -> None:
        """Forget the learner and release the copy."""
        self._copy = self._original = self._fallback = None

    def can_learn(self, images: int) -> bool:
        """Return whether a batch of this size can be learnt from.

        Args:
            images: The number of images in the batch.
        """
        return images >= self._smallest_batch

    def will_learn(self, x: Tensor) -> bool:
        """Return whether a batch that is left to the learner will be learnt from: the guard and the window decide.

        Args:
            x: The images of the batch (N, C, H, W).
        """
        return self._guard_learns and (self._copy is None or completes_window(self._copy, x))

    def predict(self, x: Tensor) -> Tensor:
        """Predict for a batch without changing any state.

        Args:
            x: Images (N, C, H, W) in [0, 1].
        """
        own = self._copy
        assert own is not None, "follow a learner first"
        with fitting_window(own, x):
            if self._fallback is None:
                return own.predict(x, allow_small=True)
            admitted, _ = own._admit(x)
            held = admitted if own._window is None else own._window.seen_with(admitted)
            return self._fallback.predict(held, len(x), own.recent_classes, own.generator.get_state())

    def see(self, x: Tensor, *, learnt: bool) -> None:
        """Add a batch to the window, if there is one.

        Args:
            x: Images (N, C, H, W) in [0, 1].
            learnt: Whether the learner is going to learn from them; otherwise they do not count towards a full window.
        """
        if self._copy is None or self._copy._window is None:
            return
        begin_window(self._copy, x)
        window = self._copy._window
        admitted, broken = self._copy._admit(x)
        if broken is None and learnt:
            window.push(admitted)
        elif broken is None:
            window.images = window.seen_with(admitted).clone()


def _copy(adapter: Adapter) -> Adapter:
    shared = {id(p): p for name, p in adapter.named_parameters() if name in adapter._frozen}
    initial = {id(value): value for value in adapter._initial.values()}
    without_optimizer = {id(adapter._optimizer): None, id(adapter._initial_optimizer): None}
    new = copy.deepcopy(adapter, {**shared, **initial, **without_optimizer})
    # Without moments, which are as large as what learns. Methods that adapt to every image anew predict with it.
    new._optimizer = new._new_optimizer()
    return new


@torch.no_grad()
def _copy_state(source: Adapter, target: Adapter) -> None:
    """Copy everything that a prediction depends on."""
    for module, twin in zip(source.modules(), target.modules(), strict=True):
        for key, value in module._parameters.items():
            own = twin._parameters[key]
            if value is not None and own is not None and own.data_ptr() != value.data_ptr():
                own.copy_(value)
        for key, buffer in module._buffers.items():
            mine = twin._buffers.get(key)
            if buffer is not None and mine is not None and (mine.shape, mine.dtype) == (buffer.shape, buffer.dtype):
                mine.copy_(buffer)
            else:  # optional state that appeared, vanished or changed its size
                twin._buffers[key] = None if buffer is None else buffer.clone()
    target.generator.set_state(source.generator.get_state())
    if source._window is not None and target._window is not None:
        target._window.load(source._window.state())
