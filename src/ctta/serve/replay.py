"""Do again what a stream's audit says, from the recorded images, and compare with the snapshots, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ctta._adapter.checkpoint import read
from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.errors import BadData
from ctta.guard import DEFAULT_RULES, Rule
from ctta.guarded import Guarded
from ctta.serve.audit import STREAM_FILE, Line, read_audit, read_batch
from ctta.serve.history import folder_name
from ctta.serve.learner import Learner, Taken
from ctta.serve.types import Mode


@dataclass(frozen=True)
class Replay:
    """The result of a replay.

    Args:
        learner: The stream's learner after the last line.
        lines: The number of lines in the audit.
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
    """Replay one stream from its beginning.

    Args:
        state: The service's state folder.
        record: The folder of its recorded images.
        stream: The stream's name.
        classifier: The source classifier.
        make: Builds the adapter, as the service did.
        guard: The service's rules.
        mode: The mode in which the service started the stream.

    Raises:
        MissingData: The audit or a batch is not there.
        BadData: The audit or a batch is damaged.
    """
    folder = state / "streams" / folder_name(stream)
    images = record / folder_name(stream)
    lines = list(read_audit(folder / STREAM_FILE))
    returned = {line.snapshot for line in lines if line.do in ("rollback", "resume")}
    taken: dict[str, Taken] = {}
    rules = "; ".join(map(str, guard))
    learner = Learner(Guarded(make(classifier), rules=rules), mode)
    learnt, compared, different = 0, [], []
    for line in lines:
        if line.do == "start":  # also after a crash before the first snapshot
            learner = Learner(Guarded(make(classifier), rules=rules), mode)
        _do(line, learner, images, folder, taken)
        learnt += line.do == "learn"
        if line.snapshot is None or line.do in ("rollback", "resume"):
            continue
        if line.snapshot in returned:
            taken[line.snapshot] = learner.take()
        file = folder / f"{line.snapshot}.safetensors"
        if file.is_file():
            compared.append(line.snapshot)
            if not same_state(read(file)[1], learner.adapter.state_dict()):
                different.append(line.snapshot)
    return Replay(learner, len(lines), learnt, tuple(compared), tuple(different))


def _do(line: Line, learner: Learner, images: Path, folder: Path, taken: dict[str, Taken]) -> None:
    if line.do == "learn":
        learner.learn(read_batch(images, line))
    elif line.do == "see":
        learner.see(read_batch(images, line))
    elif line.do == "reset":
        learner.reset()
    elif line.do == "promote":
        learner.promote()
    elif line.do in ("mode", "start"):
        learner.set_mode(line.mode)  # type: ignore[arg-type]
    elif line.do == "put":
        # The uploaded state is not in the audit; the snapshot that followed it is.
        learner.load(folder / f"{line.snapshot}.safetensors", None, learner.mode)
    elif line.do in ("rollback", "resume"):
        if line.snapshot not in taken:
            raise BadData(f"Line {line.n} returns to snapshot {line.snapshot}, which no earlier line takes.")
        then = taken[line.snapshot]
        learner.put_back(then.learner.state, None if then.champion is None else then.champion.state, then.mode)


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
