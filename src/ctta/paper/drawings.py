"""The paper's figures: outcomes of experiments as plots."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ctta.bench.defaults import default_arguments
from ctta.bench.paired import combined, paired_difference
from ctta.bench.record import Record
from ctta.bench.spec import RunSpec
from ctta.datasets import get_dataset
from ctta.paper.experiment import Outcome
from ctta.plots import curves, entropy, momentum, prototypes, resets, teacher
from ctta.registry import method

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from ctta.plots.canvas import Canvas

#: Kinds of prototypes, each with its marker.
_KINDS = (("classifier rows", "^"), ("test time", "o"), ("source means", "s"))


def draw_lines(parameter: str, label: str, *, log: bool = False) -> Callable[[Sequence[Outcome]], Figure]:
    """Return a function that draws error against a parameter, with a line per method.

    Args:
        parameter: "images" per domain, or an argument of the method.
        label: Label of the parameter's axis.
        log: Whether that axis is logarithmic.
    """

    def draw(outcomes: Sequence[Outcome]) -> Figure:
        by_method: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            by_method.setdefault(outcome.cell.procedure.method, []).append(outcome)
        return curves.draw_curves([_curve(name, mine, parameter) for name, mine in by_method.items()], label, log=log)

    return draw


def draw_sweep(parameter: str) -> Callable[[Sequence[Outcome]], Figure]:
    """Return a function that draws the error at several values of an argument, relative to its default.

    Both are measured on the same images.

    Args:
        parameter: An argument of the method.
    """

    def draw(outcomes: Sequence[Outcome]) -> Figure:
        values = [_value(outcome, parameter) for outcome in outcomes]
        first = outcomes[0].records[0].spec
        default = _number(default_arguments(method(first.method), first.data_name, first.batch_size)[parameter])
        base = outcomes[values.index(default) if default in values else 0]
        return curves.draw_sweep(
            curves.Sweep(
                parameter,
                x=values,
                points=[outcome.mean - base.mean for outcome in outcomes],
                bars=[_standard_error(outcome, base) for outcome in outcomes],
                default=_value(base, parameter),
                error=base.mean,
            )
        )

    return draw


def draw_orders(outcomes: Sequence[Outcome]) -> Figure:
    """Draw a dot per random order and method.

    Args:
        outcomes: One outcome per method, with a record per order.
    """
    return curves.draw_orders([(outcome.cell.label, outcome.errors, outcome.mean) for outcome in outcomes])


def draw_alphas(outcomes: Sequence[Outcome]) -> Figure:
    """Draw error against a fixed momentum, by corruption and severity.

    Args:
        outcomes: One outcome per severity and momentum.
    """
    return momentum.draw_alphas(_errors_by_alpha(outcomes))


def draw_best_alphas(outcomes: Sequence[Outcome]) -> Figure:
    """Draw for how many corruptions each momentum is best.

    Args:
        outcomes: One outcome per severity and momentum.
    """
    return momentum.draw_best_alphas(_errors_by_alpha(outcomes))


def draw_entropies(outcomes: Sequence[Outcome]) -> Figure:
    """Draw histograms of the entropy of correct and incorrect predictions.

    Args:
        outcomes: One outcome per panel.
    """
    histograms = []
    for outcome in outcomes:
        logs = [outcome.folder_of(record).read_log(record.counts) for record in outcome.records]
        histograms.append(entropy.Histogram.of_logs(outcome.cell.label, logs))
    return entropy.draw_entropies(histograms, _classes(outcomes[0].records[0].spec))


def draw_teacher(outcomes: Sequence[Outcome]) -> Canvas:
    """Draw entropy, momentum and resets along the stream of the first run.

    Args:
        outcomes: The first one is drawn.
    """
    record = outcomes[0].records[0]
    return teacher.draw_teacher(outcomes[0].steps(record), record.settings.get("e_min"), width=7.5)


def draw_resets(outcomes: Sequence[Outcome]) -> Figure:
    """Draw error and share of resets by threshold, with a panel per situation.

    Args:
        outcomes: Outcomes whose labels begin with "situation:".
    """
    situations: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        situations.setdefault(outcome.cell.label.split(":")[0], []).append(outcome)
    return resets.draw_resets(
        [
            resets.Thresholds(
                situation,
                e_min=[_number(outcome.records[0].settings["e_min"]) for outcome in mine],
                error=mine[0].mean,
                points=[outcome.mean - mine[0].mean for outcome in mine],
                bars=[_standard_error(outcome, mine[0]) for outcome in mine],
                resets=[100 * statistics.fmean(_share_of_resets(o, record) for record in o.records) for o in mine],
            )
            for situation, mine in situations.items()
        ]
    )


def draw_prototypes(outcomes: Sequence[Outcome]) -> Figure:
    """Draw the prototypes that runs began and ended with in one plane.

    Args:
        outcomes: Runs that kept their adapted model, with and without source data.
    """
    from safetensors import safe_open  # noqa: PLC0415

    found: dict[str, NDArray[np.float32]] = {}
    for outcome in outcomes:
        with safe_open(outcome.folder_of(outcome.records[0]).adapted_file, framework="np") as file:
            if outcome.cell.source_data:
                found["source means"] = file.get_tensor("p_0")
            else:
                found["classifier rows"], found["test time"] = file.get_tensor("p_0"), file.get_tensor("p_t")
    return prototypes.draw_prototypes([(name, marker, found[name]) for name, marker in _KINDS if name in found])


def _classes(spec: RunSpec) -> int | None:
    """The number of classes of a run; None if its dataset does not define it."""
    # Data with some of the model's classes is predicted with the logits of those.
    return None if "model_classes" in spec.data else get_dataset(spec.data_name).classes


def _curve(name: str, outcomes: Sequence[Outcome], parameter: str) -> curves.Curve:
    values = [_value(outcome, parameter) for outcome in outcomes]
    published = [(v, o.published.mean) for v, o in zip(values, outcomes, strict=True) if o.published is not None]
    means, spreads = [outcome.mean for outcome in outcomes], [outcome.spread or 0.0 for outcome in outcomes]
    return curves.Curve(name, values, means, spreads, published)


def _value(outcome: Outcome, parameter: str) -> float:
    images = outcome.cell.images
    return _number(images if parameter == "images" else outcome.records[0].settings[parameter])


def _standard_error(outcome: Outcome, base: Outcome) -> float:
    """The standard error of the difference between two outcomes on the same images; 0 if it is not known."""
    of_base = {record.spec.seed: record for record in base.records}
    pairs = [(record, of_base[record.spec.seed]) for record in outcome.records if record.spec.seed in of_base]
    found = [paired_difference(outcome.steps(mine), base.steps(other)) for mine, other in pairs]
    return combined(found).standard_error or 0.0 if found else 0.0


def _errors_by_alpha(outcomes: Sequence[Outcome]) -> momentum.Errors:
    found: dict[int, dict[str, dict[float, float]]] = {}
    for outcome in outcomes:
        by_domain = found.setdefault(outcome.cell.procedure.severity, {})
        for domain, error in [*outcome.domains.items(), ("mean", outcome.mean)]:
            by_domain.setdefault(domain, {})[_number(outcome.cell.procedure.settings["alpha"])] = error
    return dict(sorted(found.items()))


def _number(setting: object) -> float:
    assert isinstance(setting, (int, float))
    return setting


def _share_of_resets(outcome: Outcome, record: Record) -> float:
    steps = outcome.steps(record)
    return len(teacher.resets_of(steps)) / len(steps)
