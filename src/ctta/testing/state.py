"""Contract points 2, 3, 4 and 6: which state changes, and reset, resume and predict."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

from ctta.adapter import Adapter
from ctta.errors import ContractBroken
from ctta.registry import methods
from ctta.testing.compare import difference, same_bits
from ctta.testing.hints import global_state, other_keys, other_logits
from ctta.testing.subject import Subject, run


def only_trained_move(subject: Subject) -> None:
    """2: only the parameters passed to begin change in the student, and the user's model stays unchanged.

    A teacher, the method's own buffers and buffers that the model's forward pass updates itself may change.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "2 only_trained_move"
    model = subject.source()
    untouched = _facts(model)
    adapter = subject.make(model)
    source = subject.classifier()
    types = {name: type(module) for name, module in source.named_modules()}
    kept = {id(p) for p in adapter.parameters()}
    if foreign := [p for p in adapter.trained if id(p) not in kept]:
        raise ContractBroken(point, "trained parameters that belong to the adapter", f"{len(foreign)} that do not")
    learning = {id(p) for p in adapter.trained}
    frozen = {name: p for name, p in adapter.student.named_parameters() if id(p) not in learning}
    for name, module in adapter.student.named_modules():
        # A layer that the method substituted for one of the source may keep its own statistics.
        if types.get(name) is type(module):
            frozen |= {f"{name}.{key}": b for key, b in module.named_buffers(recurse=False)}
    for name in subject.updated_by_forward:
        frozen.pop(name, None)
    before = {name: value.detach().clone() for name, value in frozen.items()}
    run(adapter, subject.batches(5))
    now = dict(adapter.student.named_parameters()) | dict(adapter.student.named_buffers())
    moved = [name for name in before if name not in now or not same_bits(before[name], now[name])]
    if moved:
        raise ContractBroken(point, "only the parameters passed to begin to change", f"changes in {moved[:5]}")
    if found := difference(untouched, _facts(model), "model"):
        raise ContractBroken(point, "the user's own model to stay unchanged", found)


def reset_restores(subject: Subject) -> None:
    """3: reset() restores every bit of the state, and the same stream then gives the same predictions.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "3 reset_restores"
    for arguments in subject.with_and_without_window():
        adapter = subject.build(**arguments)
        start = adapter.state_dict()
        batches = subject.batches(5)
        drawn = global_state()
        first = run(adapter, batches)
        adapter.reset()
        if found := difference(start, adapter.state_dict()):
            raise ContractBroken(point, "the state of a new adapter after reset()", other_keys(found))
        if found := difference(first, run(adapter, batches), "logits"):
            raise ContractBroken(point, "the same predictions after reset()", other_logits(found, drawn))


def resume_bit_equal(subject: Subject) -> None:
    """4: a fresh adapter that loads a state saved mid-stream continues bit for bit.

    The state goes through state_dict and, if the method is registered, through a file.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "4 resume_bit_equal"
    for arguments in subject.with_and_without_window():
        adapter = subject.build(**arguments)
        drawn = global_state()
        run(adapter, subject.batches(3))
        copies = {"state_dict": subject.build(**arguments)}
        copies["state_dict"].load_state_dict(adapter.state_dict())
        if methods().get(type(adapter).__name__.lower()) is type(adapter):
            copies["Adapter.load"] = _through_a_file(adapter, subject)
        rest = subject.batches(4, start=3)
        expected = run(adapter, rest)
        state = adapter.state_dict()
        adapter.reset()
        for how, resumed in copies.items():
            if found := difference(expected, run(resumed, rest), "logits"):
                wanted = f"a stream resumed by {how} to continue bit for bit"
                raise ContractBroken(point, wanted, other_logits(found, drawn))
            if found := difference(state, resumed.state_dict()):
                raise ContractBroken(point, f"the same state at the end of a stream resumed by {how}", found)
            resumed.reset()
            if found := difference(adapter.state_dict(), resumed.state_dict()):
                raise ContractBroken(point, f"reset() after {how} to restore the same initial state", found)


def predict_leaves_no_trace(subject: Subject) -> None:
    """6: predict changes neither the state nor the predictions of the next step.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "6 predict_leaves_no_trace"
    for arguments in subject.with_and_without_window():
        adapter, twin = subject.build(**arguments), subject.build(**arguments)
        for i, x in enumerate(subject.batches(4)):
            before = adapter.state_dict()
            first = adapter.predict(subject.batches(1, start=i + 2)[0])
            if found := difference(before, adapter.state_dict()):
                raise ContractBroken(point, "predict to leave the state unchanged", found)
            if found := difference(first, adapter.predict(subject.batches(1, start=i + 2)[0]), "logits"):
                raise ContractBroken(point, "the same logits from predict when called twice", found)
            if found := difference(twin.step(x).logits, adapter.step(x).logits, "logits"):
                raise ContractBroken(point, "predict not to affect the next step", found)


def _through_a_file(adapter: Adapter, subject: Subject) -> Adapter:
    defaults = adapter.arguments()
    # Pass again what a file cannot hold; tensors are saved as state.
    carried = bool | int | float | str | None | Tensor | type
    given = {
        name: value
        for name, value in adapter.settings.items()
        if value is not defaults[name] and not isinstance(value, carried)
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "adapter.safetensors"
        adapter.save(path)
        return type(adapter).load(path, subject.source(), **given)


def _facts(model: Any) -> dict[str, Any]:
    """Snapshot everything in a model that an adapter could change."""
    state = copy.deepcopy(dict(model.state_dict()))
    flags = {name: (p.requires_grad, p.grad is None) for name, p in model.named_parameters()}
    return {"state": state, "flags": flags, "training": [m.training for m in model.modules()]}
