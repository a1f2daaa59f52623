"""Point 13: every constructor argument changes some output, or how often the networks run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.errors import ContractBroken, CttaError, ParameterError
from ctta.testing.alternatives import alternatives
from ctta.testing.compare import difference
from ctta.testing.subject import Subject

_POINT = "13 every_argument_counts"
_STEPS = 7


def every_argument_counts(subject: Subject) -> None:
    """13: another value of any constructor argument changes the logits, the named error, or the number of passes.

    The seed may go without where the method draws nothing. An argument that needs company, or a value that its type
    does not give away, needs an entry in ``variations``.
    """
    adapter = subject.build()
    traces: dict[str, list[Any]] = {}
    idle = []
    for name in adapter.settings:
        tried = _tried_in_vain(subject, name, adapter, traces)
        if tried is not None and not (name == "seed" and _draws_nothing(subject)):
            idle.append(f"{name} ({'; '.join(tried) or 'no value to try: give one in variations'})")
    if idle:
        raise ContractBroken(_POINT, "every argument to change some output or cost", f"no effect of {', '.join(idle)}")


def _tried_in_vain(subject: Subject, name: str, adapter: Adapter, traces: dict[str, list[Any]]) -> list[str] | None:
    """What was tried without an effect; None where something had one."""
    tried = []
    for usual, other in alternatives(subject, name, adapter):
        try:
            changed = subject.build(**other)
        except ParameterError:
            continue
        if any(
            difference(a, b) for a, b in zip(_usual(subject, usual, traces), _outputs(changed, subject), strict=True)
        ):
            return None
        tried.append(f"tried {_short(other)}")
    return tried


def _usual(subject: Subject, arguments: dict[str, Any], traces: dict[str, list[Any]]) -> list[Any]:
    """The outputs with these arguments; those of plain arguments, which many comparisons share, are kept."""
    plain = all(isinstance(value, bool | int | float | str | None) for value in arguments.values())
    key = repr(sorted(arguments.items())) if plain else ""
    if not plain or key not in traces:
        traces[key] = list(_outputs(subject.build(**arguments), subject))
    return traces[key]


def _outputs(adapter: Adapter, subject: Subject) -> Iterator[Any]:
    """What a caller sees, as it comes: logits or the error's name, of sound, NaN and single images; then the passes."""
    passes: list[int] = []
    for network in adapter.modules():
        if isinstance(network, Classifier):
            network.register_forward_pre_hook(lambda network, args: passes.append(len(args[0])))
    batches = subject.batches(_STEPS)
    nan = batches[0].clone()
    nan[0] = float("nan")
    for x in (batches[0], nan, *batches[1:], batches[0][:1]):
        try:
            yield adapter.step(x).logits
            yield adapter.predict(x)
        except CttaError as error:
            yield type(error).__name__
            yield None
    yield len(passes)


def _draws_nothing(subject: Subject) -> bool:
    adapter = subject.build()
    before = adapter.generator.get_state()
    for x in subject.batches(_STEPS):
        adapter.step(x)
    return torch.equal(before, adapter.generator.get_state())


def _short(arguments: dict[str, Any]) -> str:
    plain = {
        name: repr(v) if isinstance(v, bool | int | float | str | None) else "..." for name, v in arguments.items()
    }
    return ", ".join(f"{name}={value}" for name, value in plain.items())
