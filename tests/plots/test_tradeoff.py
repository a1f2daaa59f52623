"""The figure of error against cost."""

from __future__ import annotations

import math

from ctta.plots.tradeoff import Method, frontier, plot_error_by_cost

METHODS = [
    Method("bn", 1.0, 29.7),
    Method("tent", 2.1, 27.8),
    Method("sar", 2.1, 29.0),
    Method("trio", 6.8, 20.6),
    Method("rmt", 6.7, 26.1),
    Method("cotta", 38.0, 25.3),
]


def beaten(method: Method) -> bool:
    """Whether another is at least as good in both, and better in one."""
    return any(
        other.cost <= method.cost and other.error <= method.error and (other.cost, other.error) != method[1:]
        for other in METHODS
    )


def test_the_line_joins_the_methods_that_no_other_beats_in_both() -> None:
    expected = sorted((m for m in METHODS if not beaten(m)), key=lambda m: m.cost)
    assert frontier(METHODS) == expected
    assert [method.name for method in expected] == ["bn", "tent", "rmt", "trio"]
    (panel,) = plot_error_by_cost(METHODS).canvas.panels
    assert panel.lines == [[(math.log10(m.cost), m.error) for m in expected]]


def test_every_method_has_a_dot_and_its_name() -> None:
    (panel,) = plot_error_by_cost(METHODS).canvas.panels
    assert sorted(dot for dots in panel.marks for dot in dots) == sorted((math.log10(m.cost), m.error) for m in METHODS)
    assert {method.name for method in METHODS} <= set(panel.texts)


def test_a_single_method_can_be_drawn() -> None:
    assert b"<svg" in plot_error_by_cost(METHODS[:1]).svg()
