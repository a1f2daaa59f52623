"""Ctrl-C at a random line of a step, or of its two halves: the state is the one before the batch or after it."""

from __future__ import annotations

import contextlib
import copy
import gc
import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch import Tensor

from ctta._adapter.answer import Answer
from ctta.adapter import Adapter
from ctta.errors import AnswerFinished
from ctta.guarded import Guarded
from ctta.registry import methods
from ctta.testing.compare import difference
from ctta.testing.subject import Subject

LONG = 4000

# Settings under which a step does all that it can do: learn from a memory, restore weights, reset the teacher.
BUSY: dict[str, dict[str, Any]] = {
    "rotta": {"memory_size": 8, "update_every": 4},
    "cotta": {"views": 2, "p_th": 2.0},
    "dua": {"copies": 4},
    "memo": {"views": 2, "episodic": False},
    "note": {"memory_size": 8, "update_every": 4},
    "obao": {"buffer_size": 8, "e_margin": 1.0, "restore_p": 0.5},
    "petal": {"views": 2, "p_th": 2.0},
    "petta": {"memory_size": 8},
    "dmse": {"e_min": 0.6},
    "sar": {"reset_constant": 0.2, "e_margin": 1.0},
}


Call = Callable[[Adapter, Tensor, list[Answer]], object]


def step(adapter: Adapter, x: Tensor, kept: list[Answer]) -> None:
    """Predict and learn in one call."""
    adapter.step(x)


def ask_and_learn(adapter: Adapter, x: Tensor, kept: list[Answer]) -> None:
    """Predict and learn in two calls; the user keeps the answer."""
    kept.append(adapter.ask(x))
    kept[0].learn()


def ask_and_forget(adapter: Adapter, x: Tensor, kept: list[Answer]) -> None:
    """Predict, and undo what the batch changed."""
    kept.append(adapter.ask(x))
    kept[0].forget()


CALLS: tuple[Call, ...] = (step, ask_and_learn, ask_and_forget)


def main(count: int, seed: int) -> None:
    """Interrupt ``count`` calls, spread over all methods, and raise on the first torn state."""
    chance = random.Random(seed)
    names = sorted(methods())
    undone = 0
    for i in range(count):
        # Two of four calls are whole steps; one of eight adapters has a guard.
        call = CALLS[i // len(names) % 4 % 3]
        undone += interrupted_call_is_whole(names[i % len(names)], chance, call, guarded=chance.random() < 1 / 8)
    print(f"{count} interrupted calls of {len(names)} methods: {undone} undone, {count - undone} finished, 0 torn")


def interrupted_call_is_whole(name: str, chance: random.Random, call: Call = step, *, guarded: bool = False) -> bool:
    """Interrupt one call of a method and return whether it was undone; raise AssertionError on a torn state."""
    subject = Subject(_maker(name, guarded))
    arguments = BUSY.get(name, {}) | chance.choice(
        [{}, {"window": 16}] if "window" in methods()[name].arguments() else [{}]
    )
    adapter = subject.build(**arguments)
    batches = subject.batches(5)
    for x in batches[: chance.randrange(3)]:
        adapter.step(x)
    x = batches[3]
    before = adapter.state_dict()
    finished = copy.deepcopy(adapter)
    lines = _lines(lambda: call(finished, x, []))
    after = finished.state_dict()
    line = chance.randrange(lines)
    kept: list[Answer] = []
    interrupted = None
    try:
        _interrupt(lambda: call(adapter, x, kept), line)
    except KeyboardInterrupt as error:
        interrupted = error  # and its traceback, as in a notebook
    for answer in kept:
        with contextlib.suppress(AnswerFinished):
            answer.forget()  # the interrupt arrived before the call to learn or forget had begun
    found = adapter.state_dict()
    undone = difference(before, found) is None
    torn = None if undone else difference(after, found)
    where = f"{name} {arguments}, {call.__name__}, {guarded=}, interrupted at line {line} of {lines}"
    assert torn is None, f"{where}: {torn}"
    _goes_on(adapter, subject, arguments, before if undone else after, batches[4])
    # The number of lines differs from call to call, as some work is done once in a process: a call may finish.
    assert interrupted is not None or difference(after, found) is None, f"{where}: neither interrupted nor finished"
    return undone


def _maker(name: str, guarded: bool) -> Callable[..., Adapter]:
    """Build a method, or one with a guard that soon raises an alarm."""
    if not guarded:
        return methods()[name]
    rules = "drift > 0: fallback; entropy > 0: rollback"
    return lambda model, **arguments: Guarded(
        methods()[name](model, **arguments), rules=rules, patience=60.0, cooldown=1, keep_every=1, every=1
    )


def _goes_on(adapter: Adapter, subject: Subject, arguments: dict[str, Any], state: Any, x: Any) -> None:
    """The interrupted adapter takes the next step as one that was never interrupted would."""
    fresh = subject.build(**arguments)
    fresh.load_state_dict(state)
    found = difference(fresh.step(x).logits, adapter.step(x).logits, "logits")
    found = found or difference(fresh.state_dict(), adapter.state_dict())
    assert found is None, f"after an interrupted step of {type(adapter).__name__}: {found}"


def _lines(call: Callable[[], object]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    _traced(call, trace)
    return count


def _interrupt(call: Callable[[], object], line: int) -> None:
    """Raise KeyboardInterrupt when the call reaches this line, counted in the order in which lines run."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count > line:
                raise KeyboardInterrupt
        return trace

    _traced(call, trace)


def _traced(call: Callable[[], object], trace: Callable[[FrameType, str, object], Any]) -> None:
    earlier, collecting = sys.gettrace(), gc.isenabled()
    gc.disable()  # Python drops an exception that is raised in a callback of the garbage collector
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(earlier)
        if collecting:
            gc.enable()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else LONG, seed=0)
