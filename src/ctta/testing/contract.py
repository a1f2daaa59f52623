"""The nineteen points of the adapter contract, and `check_adapter`, which runs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from torch import Tensor, nn

from ctta._checks.sequences import names_of
from ctta.adapter import Adapter
from ctta.errors import UnknownCheck
from ctta.testing.memory import memory_is_flat
from ctta.testing.non_finite import accidents_do_not_reach_weights
from ctta.testing.outputs import any_norm, batch_of_one, finite_logits, grad_modes, modes_change_nothing
from ctta.testing.parameters import every_argument_counts
from ctta.testing.precision import clean_stream, double_precision
from ctta.testing.prequential import ask_and_learn_is_step, forget_leaves_no_trace, predicts_before_learning
from ctta.testing.rng_and_io import constructor_reads_nothing, seeded
from ctta.testing.state import only_trained_move, predict_leaves_no_trace, reset_restores, resume_bit_equal
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
    """Yield the name and function of every point, in order.

    Each function takes a `Subject` and raises `ContractBroken` if the adapter violates the point.
    """
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
    """Check a method against every point of the contract.

    Args:
        make: Builds the adapter as ``make(model, **arguments)``; usually the class itself.
        model: Builds the source model. Default: a tiny network trained on synthetic images.
        images: A stream for the model, (M, C, H, W) in [0, 1]. Default: synthetic images that drift.
        labels: Labels of ``images`` for the point ``clean_stream``. Default: labelled synthetic images.
        variations: For a constructor argument that cannot be varied by its type alone: settings under which it has a
            visible effect, with any other argument it depends on; or a function that returns them for the source
            `Classifier`.
        skip: Names of points to leave out.
        margin: How far the error may rise on clean images, in percentage points.

    Raises:
        ContractBroken: At the first point the method violates.
        UnknownCheck: If ``skip`` names no point.
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
