"""The plots of a report show the numbers of its records and steps."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ctta.bench.compare import Row
from ctta.plots.cost import plot_costs
from ctta.plots.domains import plot_differences, plot_domain_errors, pointed_out
from ctta.plots.entropy import Histogram, draw_entropies, plot_entropies
from ctta.plots.errors import plot_mean_errors, plot_running_errors
from ctta.plots.panel import Panel
from ctta.plots.style import row_styles
from ctta.plots.teacher import has_teacher, plot_teacher
from ctta.report.groups import Group, read_groups
from ctta.report.plots import shown_rows
from run_folders import make_run, record_of, steps_of, write_run

SVG = "{http://www.w3.org/2000/svg}"
WRONG = {"source": (9, 5, 6), "tent": (4, 2, 3), "dmse": (3, 4, 1)}


@pytest.fixture
def group(tmp_path: Path) -> Group:
    for method, wrong in WRONG.items():
        make_run(tmp_path, method, wrong)
    return read_groups([tmp_path])[0]


@pytest.fixture
def rows(group: Group) -> list[Row]:
    return group.rows


def logged(group: Group) -> list[Any]:
    return [(row.label, [group.logs[record.address].steps for record in row.records]) for row in group.rows]


def heights(panel: Panel) -> list[list[float]]:
    return [[y for _, y in line] for line in panel.lines]


def test_the_source_comes_first_then_names(rows: list[Row]) -> None:
    assert [row.label for row in rows] == ["source", "dmse", "tent"]


def test_a_row_carries_the_records_of_its_seeds(tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(tmp_path, "tent", seed=seed)
    (row,) = read_groups([tmp_path])[0].rows
    assert [record.spec.seed for record in row.records] == list(row.seeds) == [0, 1]


def test_bars_are_as_long_as_the_mean_errors(rows: list[Row]) -> None:
    (panel,) = plot_mean_errors(rows).canvas.panels
    assert panel.bars == [pytest.approx([200 / 3, 80 / 3, 90 / 3])]
    assert panel.texts[:3] == ["66.7", "26.7", "30.0"] and panel.texts[-3:] == ["source", "dmse", "tent"]


def test_every_domain_and_the_mean_have_a_dot_per_row(rows: list[Row]) -> None:
    (panel,) = plot_domain_errors(rows, row_styles(rows), in_order=True).canvas.panels
    # Rows that are not highlighted come first; tent is neither the source nor the best.
    found = [[x for x, _ in dots] for dots in panel.marks]
    assert found == [[40, 20, 30, 30], [90, 50, 60, pytest.approx(200 / 3)], [30, 40, 10, pytest.approx(80 / 3)]]
    assert not panel.lines and panel.texts[:4] == ["gaussian noise", "fog", "contrast", "mean"]


def test_the_source_batch_norm_and_the_best_are_pointed_out(tmp_path: Path) -> None:
    for method, wrong in {"source": (9, 5, 6), "bn": (5, 4, 4), "tent": (4, 2, 3), "dmse": (3, 4, 1)}.items():
        make_run(tmp_path, method, wrong)
    rows = read_groups([tmp_path])[0].rows
    assert pointed_out(rows) == ["source", "bn", "dmse"]
    assert pointed_out(rows[:1]) == ["source"]


def test_random_orders_have_no_order(rows: list[Row]) -> None:
    plot = plot_domain_errors(rows, row_styles(rows), in_order=False)
    assert plot.caption == "Error in each domain, and the mean; lower is better."


def test_the_grid_shows_the_distance_from_the_median_row(rows: list[Row]) -> None:
    (panel,) = plot_differences(rows).canvas.panels
    of = [[90.0, 50.0, 60.0, 200 / 3], [30.0, 40.0, 10.0, 80 / 3], [40.0, 20.0, 30.0, 30.0]]
    middle = [statistics.median(column) for column in zip(*of, strict=True)]
    (cells,) = panel.cells
    assert cells == [pytest.approx([e - m for e, m in zip(row, middle, strict=True)]) for row in of]


def test_better_is_blue_and_worse_orange_in_the_grid(rows: list[Row]) -> None:
    root = ElementTree.fromstring(plot_differences(rows).svg())
    cells = {
        cell.findtext(f"{SVG}title"): cell.get("fill", "")
        for cell in root.iter(f"{SVG}rect")
        if cell.findtext(f"{SVG}title")
    }
    for tip, colour in cells.items():
        red, blue = int(colour[1:3], 16), int(colour[5:], 16)
        value = float(str(tip).rsplit(" ", 1)[1])
        assert (red > blue) == (value > 0) and (red < blue) == (value < 0)
    assert len(cells) == 12


def test_the_error_so_far_ends_at_the_error_of_the_whole_stream(group: Group) -> None:
    plot = plot_running_errors(logged(group), row_styles(group.rows))
    found = heights(plot.canvas.panels[0])
    for values, method in zip(found, ("source", "dmse", "tent"), strict=True):
        counts = [wrong for wrong in WRONG[method] for _ in range(4)]
        assert values == pytest.approx([10 * statistics.fmean(counts[: i + 1]) for i in range(12)])


def test_a_long_stream_is_thinned_and_keeps_its_end(tmp_path: Path) -> None:
    steps = [step | {"index": index} for index, step in enumerate(steps_of((4, 2, 3)) * 84)]
    write_run(tmp_path, record_of("tent", steps), steps)
    (group,) = read_groups([tmp_path])
    (curve,) = plot_running_errors(logged(group), row_styles(group.rows)).canvas.panels[0].lines
    assert len(curve) <= 250 and curve[-1] == (84 * 12 - 1, pytest.approx(30.0))


def test_seeds_with_other_orders_have_no_boundaries_in_common(tmp_path: Path) -> None:
    for seed, domains in enumerate([("fog", "snow", "frost"), ("snow", "fog", "frost")]):
        steps = steps_of((1, 2, 3), domains)
        write_run(tmp_path, record_of("tent", steps, seed=seed, protocol={"name": "random-order"}), steps)
    (group,) = read_groups([tmp_path])
    plot = plot_running_errors(logged(group), row_styles(group.rows))
    assert "Vertical lines" not in plot.caption and "fog" not in plot.canvas.panels[0].texts


def test_histograms_are_shares_of_correct_and_of_incorrect_predictions() -> None:
    correct, wrong = [30, 10, *[0] * 18], [*[0] * 9, 3, 1, *[0] * 9]
    plot = plot_entropies([Histogram("a", correct, wrong), Histogram("b", correct, wrong)])
    for panel in plot.canvas.panels:
        assert panel.stairs == [[75.0, 25.0] + [0.0] * 18, [0.0] * 9 + [75.0, 25.0] + [0.0] * 9]


def test_without_a_number_of_classes_entropy_is_a_share_of_the_highest() -> None:
    histogram = Histogram("a", [3, *[0] * 19], [*[0] * 19, 1])
    for classes, end, unit in ((None, 1.0, "as a share of ln C"), (10, 2.302585, "(nat)")):
        (panel,) = draw_entropies([histogram], classes).axes
        assert panel.patches[0].get_data().edges[-1] == pytest.approx(end)
        assert panel.get_xlabel() == f"entropy of the prediction {unit}"


def teacher_steps(**logged: float | None) -> list[Any]:
    return [step | logged for step in steps_of((1, 2, 3))]


def test_only_what_a_teacher_logged_is_drawn_and_mentioned() -> None:
    momentum = plot_teacher("petta", teacher_steps(alpha=0.99), None, 0)
    (panel,) = momentum.canvas.panels
    assert heights(panel) == [[0.99] * 12] and "fog" in panel.texts
    assert momentum.caption == "Seed 0: momentum of the teacher in 12 steps."
    assert b"entropy" not in momentum.svg() and b"reset" not in momentum.svg()
    both = plot_teacher("trio", teacher_steps(alpha=0.99, entropy=0.5), None, 0)
    assert [heights(panel) for panel in both.canvas.panels] == [[[0.5] * 12], [[0.99] * 12]]
    assert both.caption == "Seed 0: mean entropy of the student's predictions and momentum of the teacher in 12 steps."


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None])
def test_a_momentum_or_entropy_that_is_not_finite_is_left_out(bad: float | None) -> None:
    steps = teacher_steps(alpha=0.5, entropy=0.25)
    steps[3] |= {"alpha": bad, "entropy": bad}
    for panel, value in zip(plot_teacher("dmse", steps, bad, 0).canvas.panels, (0.25, 0.5), strict=True):
        assert panel.lines == [[(index, value) for index in range(12) if index != 3]]
    assert has_teacher(steps) and not has_teacher(teacher_steps(alpha=bad, entropy=0.25))


def test_speed_and_memory_are_those_of_the_records(rows: list[Row]) -> None:
    plot = plot_costs(rows)
    assert "memory is the largest resident size of the process during the run (on systems other" in plot.caption
    speed, memory = plot.canvas.panels
    assert (speed.bars, memory.bars) == ([[100.0] * 3], [[123.0] * 3])


def test_of_many_rows_the_source_and_the_best_are_drawn(tmp_path: Path) -> None:
    make_run(tmp_path, "source", (9, 9, 9))
    for place in range(18):
        make_run(tmp_path, "tent", (place % 9, 2, 2), settings={"lr": place / 1000})
    means = sorted(10 * (place % 9 + 4) / 3 for place in range(18))
    shown = shown_rows(read_groups([tmp_path])[0].rows)
    assert shown[0].label == "source" and len(shown) == 13
    assert sorted(row.mean for row in shown[1:]) == pytest.approx(means[:12])


def test_groups_are_in_the_order_of_data_model_and_protocol(tmp_path: Path) -> None:
    make_run(tmp_path, "source", protocol={"name": "mixed"})
    make_run(tmp_path, "tent", protocol={"name": "continual"})
    assert [group.spec.protocol_name for group in read_groups([tmp_path])] == ["continual", "mixed"]
