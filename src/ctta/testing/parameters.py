"""Contract point 13: every constructor argument has an effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ctta._system.processor import bf16_crashes
from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.errors import ContractBroken, CttaError, ParameterError
from ctta.norms import batch_norms
from ctta.testing.alternatives import alternatives
from ctta.testing.compare import difference, same_bits
from ctta.testing.subject import Subject

_POINT = "13 every_argument_counts"
_STEPS = 7


def every_argument_counts(subject: Subject) -> None:
    """13: changing any constructor argument changes the logits, the error raised or the number of forward passes.

    `seed` is exempt if the method draws no random numbers, `statistics` if the model has no batch norm, and `precision`
    on a processor that cannot compute in bfloat16. An argument that depends on another one, or whose values cannot be
    guessed from its type, needs an entry in ``variations``.

    Args:
        subject: The adapter under test, with its model and images.
    """
    adapter = subject.build()
    traces: dict[str, list[Any]] = {}
    idle = []
    for name in adapter.settings:
        tried = _without_effect(subject, name, adapter, traces)
        if tried is not None and not _exempt(name, subject, adapter):
            idle.append(f"{name} ({'; '.join(tried) or 'no value to try: give one in variations'})")
    if idle:
        still = _nothing_learned(subject)
        raise ContractBroken(
            _POINT, "every argument to change some output or cost", f"no effect of {', '.join(idle)}{still}"
        )


def _exempt(name: str, subject: Subject, adapter: Adapter) -> bool:
    if name == "seed":
        return _draws_nothing(subject)
    if name == "precision":
        return bf16_crashes()
    return name == "statistics" and not batch_norms(adapter.student)


def _without_effect(subject: Subject, name: str, adapter: Adapter, traces: dict[str, list[Any]]) -> list[str] | None:
    """List the values that had no effect, or return None if one had."""
    tried = []
    for baseline, other in alternatives(subject, name, adapter):
        try:
            changed = subject.build(**other)
        except ParameterError:
            continue
        expected = _baseline(subject, baseline, traces)
        if any(difference(a, b) for a, b in zip(expected, _outputs(changed, subject), strict=True)):
            return None
        tried.append(f"tried {_short(other)}")
    return tried


def _baseline(subject: Subject, arguments: dict[str, Any], traces: dict[str, list[Any]]) -> list[Any]:
    """Return the outputs with these arguments, cached for plain values because many comparisons share them."""
    plain = all(isinstance(value, bool | int | float | str | None) for value in arguments.values())
    key = repr(sorted(arguments.items())) if plain else ""
    if not plain or key not in traces:
        traces[key] = list(_outputs(subject.build(**arguments), subject))
    return traces[key]


def _outputs(adapter: Adapter, subject: Subject) -> Iterator[Any]:
    """Yield what a caller sees: logits or the error's name for normal, NaN and single images; then the pass count."""
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


def _nothing_learned(subject: Subject) -> str:
    """Say so if a method that learns changed none of its parameters; otherwise return an empty text."""
    adapter = subject.build()
    before = [parameter.detach().clone() for parameter in adapter.trained]
    for x in subject.batches(_STEPS):
        adapter.step(x)
    if not adapter.learns or any(not same_bits(old, new) for old, new in zip(before, adapter.trained, strict=True)):
        return ""
    return f"; no parameter changed in {_STEPS} steps: self.descend(loss) was not called"


def _short(arguments: dict[str, Any]) -> str:
    plain = {
        name: repr(v) if isinstance(v, bool | int | float | str | None) else "..." for name, v in arguments.items()
    }
    return ", ".join(f"{name}={value}" for name, value in plain.items())
