"""What a stream holds: the adapter that learns, the champion that predicts in shadow mode, and the mode."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ctta._adapter.answer import Answer
from ctta._adapter.checkpoint import Capture, capture, read
from ctta.adapter import Adapter, Step
from ctta.errors import MethodMismatch, NotACheckpoint, SourceMismatch, WrongMode
from ctta.guarded import Guarded
from ctta.serve.sharing import refuse_other_source
from ctta.serve.types import Mode
from ctta.serve.windows import begin_window, completes_window, fitting_window
from ctta.version import __version__

_INNER = "inner."


@dataclass(frozen=True)
class Taken:
    """A copy of a learner.

    Args:
        learner: The state of the guarded adapter.
        champion: The state of the champion; None outside shadow mode.
        mode: The mode at that time.
    """

    learner: Capture
    champion: Capture | None
    mode: Mode


class Learner:
    """A guarded adapter and its mode. A replay uses it in the same way as the service.

    The network that predicts stays the same when the mode changes: leaving shadow mode keeps the champion.

    Args:
        adapter: The guarded adapter.
        mode: The mode to start in.
    """

    def __init__(self, adapter: Guarded, mode: Mode = "adapt") -> None:
        self.adapter = adapter
        self.champion: Adapter | None = None
        self.mode: Mode = "adapt"
        # What the window held before the last batch, if that emptied it.
        self._emptied: dict[str, Any] | None = None
        self.set_mode(mode)

    def predict(self, x: Tensor) -> Tensor:
        """Predict for a batch without changing any state; in shadow mode the champion predicts.

        Args:
            x: Images (N, C, H, W) in [0, 1].
        """
        with fitting_window(self.champion or self.adapter.inner, x):
            return (self.champion or self.adapter).predict(x, allow_small=True)

    def can_learn(self, images: int) -> bool:
        """Return whether a batch of this size can be learnt from in the current mode.

        Args:
            images: The number of images in the batch.
        """
        enough = images >= self.adapter.smallest_batch or self.adapter.inner._window is not None
        return self.mode != "frozen" and enough

    def will_learn(self, x: Tensor) -> bool:
        """Return whether the next batch, if it can be learnt from, will be: the guard and the window decide.

        Args:
            x: The images of the batch (N, C, H, W).
        """
        return self.adapter.watch.learns() and completes_window(self.adapter.inner, x)

    @property
    def steps(self) -> int:
        """Steps learnt by the adapter that predicts."""
        return (self.champion or self.adapter).steps

    def ask(self, x: Tensor) -> Answer:
        """Predict and lock the adapter until the answer is learnt or forgotten; not for shadow mode.

        Args:
            x: Images (N, C, H, W) in [0, 1].
        """
        self._emptied = begin_window(self.adapter.inner, x)
        with self._window_back_on_error():
            return self.adapter.ask(x)

    def learn_answer(self, answer: Answer) -> Step:
        """Learn from a batch for which `ask` predicted. If that fails, the adapter is as before the batch.

        Args:
            answer: What `ask` returned last.
        """
        with self._window_back_on_error():
            return answer.learn()

    def learn(self, x: Tensor) -> Step:
        """Learn from a batch whose prediction was already made.

        Args:
            x: Images (N, C, H, W) in [0, 1].
        """
        self._emptied = begin_window(self.adapter.inner, x)
        with self._window_back_on_error():
            return self.adapter.step(x)

    def see(self, x: Tensor) -> None:
        """Add a batch to the adapter's window, if it has one, without learning from it.

        Args:
            x: Images (N, C, H, W) in [0, 1].
        """
        begin_window(self.adapter.inner, x)
        self.adapter.see(x)

    def set_mode(self, mode: Mode) -> None:
        """Change the mode.

        Args:
            mode: The new mode; the current one changes nothing.
        """
        if mode == self.mode:
            return
        if self.champion is not None:
            self.adapter.take_over(self.champion.state_dict())
            self.champion = None
        if mode == "shadow":
            self.champion = _copy(self.adapter.inner)
        self.mode = mode

    def promote(self) -> None:
        """Swap the champion and the challenger.

        Raises:
            WrongMode: If the mode is not "shadow".
        """
        if self.champion is None:
            raise WrongMode(f"Only a stream in shadow mode has a challenger to promote; this one is {self.mode!r}.")
        challenger, champion = self.adapter.inner.state_dict(), self.champion.state_dict()
        self.champion.load_state_dict(challenger)
        self.adapter.take_over(champion)

    def reset(self) -> None:
        """Return to the source; in shadow mode, both champion and challenger."""
        self.adapter.reset()
        if self.champion is not None:
            self.champion.reset()

    def put(self, data: bytes) -> None:
        """Load a checkpoint file of the same method, guarded or not; in shadow mode it becomes the challenger.

        Args:
            data: The content of the checkpoint file.

        Raises:
            NotACheckpoint: If it is damaged, or ctta did not write it.
            MethodMismatch: If it belongs to another method.
            SourceMismatch: If it started from other weights.
        """
        header, state = _parse(data)
        guarded = header["method"] == "guarded"
        if guarded:
            state = _inner(state)
        self._refuse_foreign(header, state["_extra_state"]["method"] if guarded else header["method"], state)
        self.adapter.take_over(state)

    def take(self) -> Taken:
        """Copy everything."""
        return Taken(capture(self.adapter), None if self.champion is None else capture(self.champion), self.mode)

    def put_back(self, learner: dict[str, Any], champion: dict[str, Any] | None, mode: Mode) -> None:
        """Restore a state that `take` copied.

        Args:
            learner: The state dict of the guarded adapter.
            champion: The state dict of the champion; None if there was none.
            mode: The mode at that time.
        """
        if learner["_extra_state"]["watch"]["rules"] == self.adapter.watch.state()["rules"]:
            self.adapter.load_state_dict(learner)
        else:
            # A guard with other rules starts over; what the adapter has learnt stays.
            self.adapter.take_over(_inner(learner))
        self.champion = None
        if champion is not None:
            self.champion = _copy(self.adapter.inner)
            self.champion.load_state_dict(champion)
        self.mode = mode

    def load(self, learner: Path, champion: Path | None, mode: Mode) -> None:
        """Restore a state from checkpoint files.

        Args:
            learner: The checkpoint file of the guarded adapter.
            champion: The checkpoint file of the champion; None if there was none.
            mode: The mode to restore.
        """
        header, state = read(learner)
        self._refuse_foreign(header, None, state, _INNER)
        self.put_back(state, None if champion is None else read(champion)[1], mode)

    @contextmanager
    def _window_back_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self._emptied is not None and self.adapter.inner._window is not None:
                self.adapter.inner._window.load(self._emptied)
            raise

    def _refuse_foreign(
        self, header: dict[str, Any], method: str | None, state: dict[str, Any], prefix: str = ""
    ) -> None:
        inner = self.adapter.inner
        if method is not None and method.lower() != type(inner).__name__.lower():
            raise MethodMismatch(f"The state is of {method}; this stream adapts by {type(inner).__name__}.")
        if header["source"] != inner.source_digest:
            raise SourceMismatch(
                f"The state was adapted from weights {header['source'][:12]}..., not from {inner.source_digest[:12]}..."
            )
        refuse_other_source(state, inner, prefix)


def _parse(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the state in a checkpoint file's content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        path.write_bytes(data)
        try:
            return read(path)
        except NotACheckpoint as error:
            # The message of the error has the path, which means nothing to a client and must not be sent.
            raise NotACheckpoint(
                "The state must be a whole checkpoint file, as Adapter.save or a download writes it; got "
                f"{len(data)} bytes that ctta {__version__} cannot read. Save or download it again."
            ) from error


def _inner(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of the adapter inside a guarded one."""
    return {name.removeprefix(_INNER): value for name, value in state.items() if name.startswith(_INNER)}


def _copy(adapter: Adapter) -> Adapter:
    """Return a copy that shares the initial state and the parameters that never change."""
    shared = {id(p): p for name, p in adapter.named_parameters() if name in adapter._frozen}
    initial = {id(value): value for value in adapter._initial.values()}
    return copy.deepcopy(adapter, {**shared, **initial})
