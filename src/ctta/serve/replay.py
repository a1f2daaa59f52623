"""Replay a stream's audit from the recorded images, and compare the result with the snapshots, bit for bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ctta._adapter.checkpoint import read
from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.errors import BadData, MissingData
from ctta.guard import DEFAULT_RULES, Rule
from ctta.guarded import Guarded
from ctta.serve.audit import Line, read_batch, read_stream, upload_file
from ctta.serve.history import champion_file, snapshot_file
from ctta.serve.index import Kind, folder_name, read_index, refuse_other_kind
from ctta.serve.learner import Learner, Taken
from ctta.serve.types import Mode

_RETURNS = ("rollback", "resume")


@dataclass(frozen=True)
class Replay:
    """The result of a replay.

    Args:
        learner: The stream's learner after the last line.
        lines: The number of lines that were replayed.
        learnt: The number of "learn" lines, including batches that the guard held back.
        compared: Names of the snapshots that were compared with their files.
        different: Names of the compared snapshots that differ in at least one bit.
    """

    learner: Learner
    lines: int
    learnt: int
    compared: tuple[str, ...]
    different: tuple[str, ...]


def replay(
    state: Path,
    record: Path,
    stream: str,
    classifier: Classifier,
    make: Callable[[Classifier], Adapter],
    *,
    guard: tuple[Rule, ...] = DEFAULT_RULES,
    mode: Mode = "adapt",
) -> Replay:
    """Replay one stream from its beginning, or from the oldest snapshot from which on the audit is complete.

    Args:
        state: The service's state folder.
        record: The folder of its recorded images.
        stream: The stream's name.
        classifier: The source classifier.
        make: Builds the adapter, as the service did.
        guard: The service's rules, for audits that do not contain them.
        mode: The mode in which the service started the stream.

    Raises:
        MissingData: If the audit, a batch or an uploaded state is missing.
        BadData: If the audit or a batch is damaged.
        MethodMismatch, SourceMismatch: If the stream was adapted by another method or from other weights.
    """
    folder = state / "streams" / folder_name(stream)
    index, adapter = read_index(folder), make(classifier)
    if index is not None:
        kind = Kind(type(adapter).__name__.lower(), adapter.source_digest)
        refuse_other_kind(index, kind, "Give the method, the model and the weights that the service had.")
    lines = list(read_stream(folder))
    _refuse_gaps(lines, stream)
    first = _first_snapshot(folder, lines, stream)
    lines = lines[lines.index(first) + 1 :] if first is not None else lines
    player = _Player(
        folder=folder,
        images=record / folder_name(stream),
        new=lambda rules: Learner(Guarded(make(classifier), rules=rules), mode),
        rules="; ".join(map(str, guard)),
        returns=Counter(line.snapshot for line in lines if line.do in _RETURNS),
    )
    if first is not None:
        player.start_from(first)
    for line in lines:
        player.play(line)
    learnt = sum(line.do == "learn" for line in lines)
    return Replay(player.learner, len(lines), learnt, tuple(player.compared), tuple(player.different))


def _refuse_gaps(lines: list[Line], stream: str) -> None:
    for before, after in pairwise(lines):
        if after.n != before.n + 1:
            raise BadData(
                f"The audit of stream {stream!r} has no line between {before.n} and {after.n}: it could not be written "
                "then, as the service's log tells. What happened after it cannot be done again."
            )


def _first_snapshot(folder: Path, lines: list[Line], stream: str) -> Line | None:
    """Return the line of the snapshot to start from; None if the lines go back to the beginning."""
    if not lines or lines[0].n == 1:
        return None
    for line in lines:
        # A rollback names a snapshot that was taken earlier.
        taken = line.snapshot == f"{line.n:08d}"
        if taken and snapshot_file(folder, f"{line.n:08d}").is_file():
            return line
    raise BadData(
        f"The audit of stream {stream!r} begins with line {lines[0].n}, and no snapshot to start from is left."
    )


class _Player:
    """Replays the lines of one audit."""

    def __init__(
        self,
        *,
        folder: Path,
        images: Path,
        new: Callable[[str], Learner],
        rules: str,
        returns: Counter[str | None],
    ) -> None:
        self._folder = folder
        self._images = images
        self._new = new
        self._rules = rules
        # How many later lines return to each snapshot: as long as there are any, the snapshot is held in memory.
        self._returns = returns
        self._taken: dict[str | None, Taken] = {}
        self.learner = new(rules)
        self.compared: list[str] = []
        self.different: list[str] = []

    def start_from(self, line: Line) -> None:
        name = str(line.snapshot)
        state = read(snapshot_file(self._folder, name))[1]
        self._rules = "; ".join(state["_extra_state"]["watch"]["rules"])
        self.learner = self._new(self._rules)
        self._load(name, line.mode)
        if self._returns[name]:
            self._taken[name] = self.learner.take()

    def play(self, line: Line) -> None:
        if line.do in ("start", "resume"):  # a start may also follow a crash before the first snapshot
            self._rules = line.rules or self._rules
            self.learner = self._new(self._rules)
        if line.do in _RETURNS:
            self._return(line)
        else:
            self._do(line)
            if line.snapshot is not None:
                self._compare(line.snapshot)

    def _do(self, line: Line) -> None:
        learner = self.learner
        if line.do == "learn":
            learner.learn(read_batch(self._images, line))
        elif line.do == "see":
            learner.see(read_batch(self._images, line))
        elif line.do == "reset":
            learner.reset()
        elif line.do == "promote":
            learner.promote()
        elif line.do in ("mode", "start"):
            learner.set_mode(line.mode)
        elif line.do == "put":
            self._put(line)

    def _put(self, line: Line) -> None:
        upload = upload_file(self._images, line.n)
        if upload.is_file():
            self.learner.put(upload.read_bytes())
        elif snapshot_file(self._folder, str(line.snapshot)).is_file():  # the state after the upload
            self._load(str(line.snapshot), line.mode)
        else:
            raise MissingData(
                f"Line {line.n} replaced the state with an uploaded one, which is needed for a replay; there is no "
                f"{upload}. The service keeps uploads if it was started with --record."
            )

    def _load(self, name: str, mode: Mode) -> None:
        """Load a snapshot, and go on in a mode."""
        champion = champion_file(self._folder, name)
        shadow = champion.is_file()
        self.learner.load(
            snapshot_file(self._folder, name), champion if shadow else None, "shadow" if shadow else "adapt"
        )
        self.learner.set_mode(mode)

    def _return(self, line: Line) -> None:
        then = self._taken.get(line.snapshot)
        if then is None and snapshot_file(self._folder, str(line.snapshot)).is_file():
            # It was taken before the oldest line that is kept.
            self._load(str(line.snapshot), line.mode)
            return
        if then is None:
            raise BadData(f"Line {line.n} returns to snapshot {line.snapshot}, which no earlier line takes.")
        self.learner.put_back(then.learner.state, None if then.champion is None else then.champion.state, then.mode)
        self.learner.set_mode(line.mode)  # a rollback leaves the mode as it was
        self._returns[line.snapshot] -= 1
        if not self._returns[line.snapshot]:
            del self._taken[line.snapshot]

    def _compare(self, name: str) -> None:
        taken = self.learner.take()
        if self._returns[name]:
            self._taken[name] = taken
        file, champion = snapshot_file(self._folder, name), champion_file(self._folder, name)
        if file.is_file():
            self.compared.append(name)
            same = same_state(read(file)[1], taken.learner.state)
            if taken.champion is not None:
                same = same and champion.is_file() and same_state(read(champion)[1], taken.champion.state)
            if not same:
                self.different.append(name)


def same_state(one: Any, other: Any) -> bool:
    """Return whether two states are equal bit for bit; lists and tuples count as the same.

    Args:
        one: A state: a tensor, a dict, list or tuple of states, or any other value, which is compared by its repr.
        other: The state to compare it with.
    """
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        both = isinstance(one, Tensor) and isinstance(other, Tensor)
        return both and (one.dtype, one.shape) == (other.dtype, other.shape) and torch.equal(_bits(one), _bits(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_state(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(same_state(a, b) for a, b in zip(one, other, strict=True))
    return repr(one) == repr(other)


def _bits(value: Tensor) -> Tensor:
    # Flat: a dimension of size 1 may have any stride, which view refuses.
    return value.detach().cpu().contiguous().flatten().view(torch.uint8)
