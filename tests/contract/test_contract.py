"""Every registered method keeps every point of the contract, on every norm family."""

from __future__ import annotations

from functools import cache, partial

import pytest

from contract.variations import SETTINGS, VARIATIONS
from ctta.errors import CttaError
from ctta.registry import methods
from ctta.testing import Subject, checks
from ctta.testing.contract import Check
from ctta.testing.models import bn_cnn, gn_cnn, ln_vit
from ctta.testing.task import trained

FAMILIES = {"bn": bn_cnn, "ln": ln_vit, "gn": gn_cnn}
# Points that bring their own models, or whose subject is the method and not the model.
ONCE = {"any_norm", "memory_is_flat", "every_argument_counts", "constructor_reads_nothing", "clean_stream"}

# Points about the order of calls and the state around them, which the norm layer hardly changes: what a method keeps is
# checked with a second family, how it is called with one. tests/hostile/contract_points.py has all of them.
STATE = {"reset_restores", "resume_bit_equal", "predict_leaves_no_trace"}
CALLS = {
    "seeded",
    "grad_modes",
    "accidents_do_not_reach_weights",
    "modes_change_nothing",
    "ask_and_learn_is_step",
    "forget_leaves_no_trace",
}
# Points that take many steps, or many adapters.
LONG = {"clean_stream", "every_argument_counts", "memory_is_flat"}
MANY_STEPS = (pytest.mark.trial,)
LEFT_OUT = {"bn": set(), "ln": ONCE | CALLS, "gn": ONCE | CALLS | STATE}

CASES = [
    pytest.param(method, family, check, id=f"{method}-{family}-{name}", marks=MANY_STEPS if name in LONG else ())
    for method in sorted(methods())
    for family in FAMILIES
    for name, check in checks()
    if name not in LEFT_OUT[family]
]


@cache
def subject_of(method: str, family: str) -> Subject | CttaError:
    """The method around a trained network of this family, or the named error with which it refuses the family."""
    make = partial(methods()[method], **SETTINGS.get(method, {}))
    model = partial(trained, FAMILIES[family])
    try:
        make(model())
    except CttaError as error:
        return error
    return Subject(make, model, variations=VARIATIONS.get(method, {}))


@pytest.mark.parametrize(("method", "family", "check"), CASES)
def test_method_keeps(method: str, family: str, check: Check) -> None:
    subject = subject_of(method, family)
    if isinstance(subject, CttaError):
        pytest.skip(f"{method} refuses this family: {subject}")
    check(subject)


@pytest.mark.parametrize("method", sorted(methods()))
def test_every_method_takes_a_model_with_batch_norm(method: str) -> None:
    assert isinstance(subject_of(method, "bn"), Subject)
