"""The contract: nineteen points, and the function that runs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from torch import Tensor, nn

from ctta.adapter import Adapter
from ctta.errors import UnknownCheck
from ctta.sequences import names_of
from ctta.testing.accidents import accidents_do_not_reach_weights
from ctta.testing.answers import any_norm, batch_of_one, finite_logits, grad_modes, modes_change_nothing
from ctta.testing.leaks import memory_is_flat
from ctta.testing.memories import only_trained_move, predict_leaves_no_trace, reset_restores, resume_bit_equal
from ctta.testing.numbers import clean_stream, double_precision
from ctta.testing.outside import constructor_reads_nothing, seeded
from ctta.testing.parameters import every_argument_counts
from ctta.testing.prequential import ask_and_learn_is_step, forget_leaves_no_trace, predicts_before_learning
from ctta.testing.subject import Subject, Variation
from ctta.testing.task import trained

Check = Callable[[Subject], None]

_POINTS: tuple[Check, ...] = (
    finite_logits,
    only_trained_move,
    reset_restores,
    resume_bit_equal,
    seeded,
    predict_leaves_no_trace,
    grad_modes,
    batch_of_one,
    any_norm,
    accidents_do_not_reach_weights,
    memory_is_flat,
    modes_change_nothing,
    every_argument_counts,
    double_precision,
    constructor_reads_nothing,
    clean_stream,
    predicts_before_learning,
    ask_and_learn_is_step,
    forget_leaves_no_trace,
)


def checks() -> Iterator[tuple[str, Check]]:
    """The name and the function of every point, in order; a function takes a Subject and raises ContractBroken."""
    yield from ((check.__name__, check) for check in _POINTS)


def check_adapter(
    make: Callable[..., Adapter],
    *,
    model: Callable[[], nn.Module] | None = None,
    images: Tensor | None = None,
    labels: Tensor | None = None,
    variations: Mapping[str, Variation] | None = None,
    skip: str | Collection[str] = (),
    margin: float = 5.0,
) -> None:
    """Run every point of the contract on a method; the first one it breaks raises ContractBroken.

    ``make(model, **arguments)`` builds the adapter: its class will do. ``model`` builds the source model and ``images``
    (M, C, H, W) are a stream for it; without them a tiny network is trained here. ``variations`` gives, per
    constructor argument, arguments that set it so that it shows (with the company it needs), or a function of the
    source Classifier that does. ``skip`` names points to leave out; ``margin`` is that of the last point, in percent.
    """
    points = dict(checks())
    skip = names_of(skip, "skip")
    for name in skip:
        if name not in points:
            raise UnknownCheck(name, points)
    subject = Subject(make, model or trained, images, labels, variations or {}, margin)
    for name, check in points.items():
        if name not in skip:
            check(subject)
