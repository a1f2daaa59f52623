"""The figures of a report show the numbers of its records and steps."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from ctta.bench.plots import line_style
from ctta.bench.report import cost, entropies, errors
from ctta.bench.report.figures import shown_rows
from ctta.bench.report.runs import Line, read_groups
from run_folders import make_run, record_of, steps_of, write_run

WRONG = {"source": (9, 5, 6), "tent": (4, 2, 3), "dmse": (3, 4, 1)}


@pytest.fixture
def lines(tmp_path: Path) -> list[Line]:
    for method, wrong in WRONG.items():
        make_run(tmp_path, method, wrong)
    return read_groups([tmp_path])[0].lines


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are made, instead of their files."""
    figures: list[Figure] = []
    for module in (errors, entropies, cost):
        monkeypatch.setattr(module, "svg", lambda figure, title: figures.append(figure) or b"")
    return figures


def styles_of(lines: list[Line]) -> dict[str, Any]:
    return {line.row.label: line_style(number) for number, line in enumerate(lines)}


def heights(panel: Any) -> list[list[float]]:
    return [[float(v) for v in line.get_ydata()] for line in panel.get_lines()]


def test_the_source_comes_first_then_names(lines: list[Line]) -> None:
    assert [line.row.label for line in lines] == ["source", "dmse", "tent"]


def test_bars_are_as_long_as_the_mean_errors(lines: list[Line], drawn: list[Figure]) -> None:
    errors.mean_errors(lines)
    (panel,) = drawn[0].axes
    assert [bar.get_width() for bar in panel.patches] == pytest.approx([200 / 3, 80 / 3, 90 / 3])
    assert [text.get_text() for text in panel.texts] == ["66.7", "26.7", "30.0"]
    assert [tick.get_text() for tick in panel.get_yticklabels()] == ["source", "dmse", "tent"]


def test_domains_have_their_errors_above_and_the_distance_from_the_median_below(
    lines: list[Line], drawn: list[Figure]
) -> None:
    errors.domain_errors(lines, styles_of(lines), in_order=True)
    above, below = drawn[0].axes
    of = [[90.0, 50.0, 60.0], [30.0, 40.0, 10.0], [40.0, 20.0, 30.0]]
    assert heights(above) == of
    middle = [statistics.median(column) for column in zip(*of, strict=True)]
    near = [[e - m for e, m in zip(row, middle, strict=True)] for row in of]
    assert heights(below) == [*near, [0, 0]]
    assert [tick.get_text() for tick in below.get_xticklabels()] == ["gaussian noise", "fog", "contrast"]


def test_two_rows_have_no_median_and_random_orders_no_order(lines: list[Line], drawn: list[Figure]) -> None:
    picture = errors.domain_errors(lines[:2], styles_of(lines), in_order=False)
    assert len(drawn[0].axes) == 1
    assert picture.caption == "Error in each domain; lower is better."


def test_the_error_so_far_ends_at_the_error_of_the_whole_stream(lines: list[Line], drawn: list[Figure]) -> None:
    errors.running_errors(lines, styles_of(lines))
    found = heights(drawn[0].axes[0])[:3]
    for values, method in zip(found, ("source", "dmse", "tent"), strict=True):
        counts = [wrong for wrong in WRONG[method] for _ in range(4)]
        assert values == pytest.approx([10 * statistics.fmean(counts[: i + 1]) for i in range(12)])


def test_a_long_stream_is_thinned_and_keeps_its_end(tmp_path: Path, drawn: list[Figure]) -> None:
    steps = steps_of((4, 2, 3)) * 84
    write_run(tmp_path, record_of("tent", steps), steps)
    (line,) = read_groups([tmp_path])[0].lines
    errors.running_errors([line], styles_of([line]))
    curve = drawn[0].axes[0].get_lines()[0]
    assert len(curve.get_xdata()) <= 250 and curve.get_xdata()[-1] == 84 * 12 - 1
    assert curve.get_ydata()[-1] == pytest.approx(30.0)


def test_seeds_with_other_orders_have_no_boundaries_in_common(tmp_path: Path, drawn: list[Figure]) -> None:
    for seed, domains in enumerate([("fog", "snow", "frost"), ("snow", "fog", "frost")]):
        steps = steps_of((1, 2, 3), domains)
        write_run(tmp_path, record_of("tent", steps, seed=seed, protocol={"name": "random-order"}), steps)
    (line,) = read_groups([tmp_path])[0].lines
    picture = errors.running_errors([line], styles_of([line]))
    assert "Vertical lines" not in picture.caption and len(drawn[0].axes[0].get_lines()) == 1


def test_histograms_are_shares_of_right_and_of_wrong_answers(lines: list[Line], drawn: list[Figure]) -> None:
    entropies.entropies(lines)
    for panel in drawn[0].axes:
        right, wrong = (patch.get_data().values for patch in panel.patches)
        assert list(right) == [100.0] + [0.0] * 19
        assert list(wrong) == [0.0] * 9 + [100.0] + [0.0] * 10


def test_speed_and_memory_are_those_of_the_records(lines: list[Line], drawn: list[Figure]) -> None:
    picture = cost.costs(lines)
    assert "memory is the largest resident size of the process during the run, off Linux also" in picture.caption
    speed, memory = drawn[0].axes
    assert [bar.get_width() for bar in speed.patches] == [100.0] * 3
    assert [bar.get_width() for bar in memory.patches] == [123.0] * 3


def test_of_many_rows_the_source_and_the_best_are_drawn(tmp_path: Path) -> None:
    make_run(tmp_path, "source", (9, 9, 9))
    for place in range(18):
        make_run(tmp_path, "tent", (place % 9, 2, 2), settings={"lr": place / 1000})
    lines = read_groups([tmp_path])[0].lines
    means = sorted(10 * (place % 9 + 4) / 3 for place in range(18))
    shown = shown_rows(lines)
    assert shown[0].row.label == "source" and len(shown) == 13
    assert sorted(line.row.mean for line in shown[1:]) == pytest.approx(means[:12])


def test_groups_are_in_the_order_of_data_model_and_protocol(tmp_path: Path) -> None:
    make_run(tmp_path, "source", protocol={"name": "mixed"})
    make_run(tmp_path, "tent", protocol={"name": "continual"})
    assert [group.spec["protocol"]["name"] for group in read_groups([tmp_path])] == ["continual", "mixed"]
