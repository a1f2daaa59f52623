"""The paper's figures show the numbers of the runs behind them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from ctta.bench.record import Record
from ctta.bench.workload import Procedure
from ctta.paper import EXPERIMENTS, Cell, Outcome, experiment
from ctta.paper.drawings import (
    draw_alphas,
    draw_best_alphas,
    draw_lines,
    draw_orders,
    draw_prototypes,
    draw_resets,
    draw_sweep,
)
from ctta.plots.style import svg
from run_folders import record_of

Make = Callable[..., Outcome]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Outcomes with the errors a test gives them, and a log of two steps of which one resets."""

    def outcome(cell: Cell, *errors: dict[str, float], wrongs: tuple[int, int] = (1, 1)) -> Outcome:
        records = []
        for seed, by_domain in enumerate(errors):
            address = f"{len(list(tmp_path.iterdir()))}"
            log = {"entropy": 0.3, "alpha": 0.99, "entropy_right": [3, *[0] * 19], "entropy_wrong": [*[0] * 19, 1]}
            steps = [
                log
                | {"index": i, "domain": "fog", "images": 4, "wrong": wrong, "error": 25.0 * wrong, "seconds": 0.1}
                | {"severity": 5}
                | {"teacher_reset": float(i)}
                for i, wrong in enumerate(wrongs)
            ]
            (tmp_path / address).mkdir()
            (tmp_path / address / "steps.jsonl").write_text("\n".join(json.dumps(step) for step in steps))
            p = np.random.default_rng(seed).normal(size=(2, 10, 8)).astype(np.float32)
            save_file({"p_0": p[0], "p_t": p[1]}, tmp_path / address / "adapted.ctta")
            made = record_of(cell.procedure.method, steps, seed=seed, model={"name": "cifar10_resnet20"})
            records.append(
                replace(
                    Record.from_json(made),
                    address=address,
                    errors=by_domain,
                    mean=sum(by_domain.values()) / len(by_domain),
                    settings={"e_min": 0.2, "gamma": 0.3, "beta": 0.01, **cell.procedure.settings},
                    source_free=not cell.source_data,
                )
            )
        return Outcome(cell, records, tmp_path)

    return outcome


def points(panel: Any) -> list[list[float]]:
    return [[float(v) for v in line.get_ydata()] for line in panel.get_lines()]


def test_a_curve_shows_the_mean_error_at_every_value(make: Make) -> None:
    cells = [Cell(f"gamma {g}", Procedure("dmse", {"gamma": g})) for g in (0.1, 0.3)]
    figure = draw_lines("gamma", "gamma")([make(cells[0], {"fog": 10.0}), make(cells[1], {"fog": 12.0}, {"fog": 14.0})])
    (panel,) = figure.axes
    assert points(panel)[0] == [10.0, 13.0]
    assert [float(x) for x in panel.get_lines()[0].get_xdata()] == [0.1, 0.3]


def gammas(make: Make, error: float) -> list[Outcome]:
    cells = [Cell(f"gamma {gamma}", Procedure("dmse", {"gamma": gamma})) for gamma in (0.1, 0.3)]
    return [make(cells[0], {"fog": error}, wrongs=(3, 0)), make(cells[1], {"fog": 26.5})]


def test_a_sweep_shows_differences_from_the_default_with_their_standard_errors(make: Make) -> None:
    (panel,) = draw_sweep("gamma")(gammas(make, 26.4)).axes
    # The default of gamma is 0.3; the batches of four differ from its own by 50 and -25 points.
    bars = panel.containers[0]
    assert [float(y) for y in bars.lines[0].get_ydata()] == pytest.approx([-0.1, 0.0])
    (low, high), same = ([float(y) for _, y in part] for part in bars.lines[2][0].get_segments())
    assert (high - low) / 2 == pytest.approx(37.5) and same == [0.0, 0.0]


def test_differences_of_a_tenth_do_not_fill_the_axis(make: Make) -> None:
    cells = [Cell(f"gamma {gamma}", Procedure("dmse", {"gamma": gamma})) for gamma in (0.1, 0.3)]
    figure = draw_sweep("gamma")([make(cells[0], {"fog": 26.4}), make(cells[1], {"fog": 26.5})])
    assert figure.axes[0].get_ylim() == pytest.approx((-0.5, 0.5))


def test_published_figures_stand_beside_ours(make: Make) -> None:
    cells = [c for c in experiment("samples").cells("imagenet-c-50k") if c.procedure.method == "rdumb"]
    figure = draw_lines("images", "images", log=True)([make(cell, {"fog": 50.0}) for cell in cells])
    # The paper's row for RDumb.
    assert [62.7, 60.2, 58.7, 57.0, 55.9, 54.3, 53.2] in points(figure.axes[0])


def test_every_order_has_a_dot(make: Make) -> None:
    figure = draw_orders(
        [make(Cell("a", Procedure("bn")), {"fog": 1.0}, {"fog": 3.0}), make(Cell("b", Procedure("tent")), {"fog": 2.0})]
    )
    assert points(figure.axes[0]) == [[1.0, 3.0], [2.0]]


def alpha_cells(make: Make) -> list[Outcome]:
    errors = {(1, 0.9): (5.0, 9.0), (1, 0.99): (4.0, 9.0), (2, 0.9): (7.0, 8.0), (2, 0.99): (9.0, 6.0)}
    return [
        make(Cell(str(key), Procedure("dmse", {"alpha": key[1]}, severity=key[0])), {"fog": fog, "snow": snow})
        for key, (fog, snow) in errors.items()
    ]


def test_the_momentum_figure_has_a_panel_per_corruption_and_one_for_the_mean(make: Make) -> None:
    figure = draw_alphas(alpha_cells(make))
    panels = {panel.get_title(): points(panel) for panel in figure.axes}
    # Every line is followed by the mark of its lowest point, if it has one.
    assert panels["fog"] == [[5.0, 4.0], [4.0], [7.0, 9.0], [7.0]]
    assert panels["mean"] == [[7.0, 6.5], [6.5], [7.5, 7.5]]
    assert len({panel.get_ylim() for panel in figure.axes if panel.get_visible()}) == 1
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][-1] == "lowest error (no ties)"


def test_the_best_momentum_is_counted_over_corruptions_and_equals_share_the_point(make: Make) -> None:
    figure = draw_best_alphas(alpha_cells(make))
    heights = [[bar.get_height() for bar in bars] for bars in figure.axes[0].containers]
    # Severity 1: fog goes to 0.99 and snow is shared; severity 2: fog goes to 0.9 and snow to 0.99.
    assert heights == [[0.5, 1.5], [1.0, 1.0]]


def test_the_reset_figure_shows_differences_on_one_scale_and_the_share_of_resets(make: Make) -> None:
    errors = {"calm": (30.0, 20.0), "rough": (50.0, 50.1)}
    figure = draw_resets(
        [
            make(Cell(f"{situation}: e_min {e}", Procedure("dmse", {"e_min": e})), {"fog": error})
            for situation, found in errors.items()
            for e, error in zip((0.0, 0.2), found, strict=True)
        ]
    )
    calm, rough, behind, _ = figure.axes
    assert [points(panel)[-1] for panel in (calm, rough)] == [[0.0, -10.0], [0.0, pytest.approx(0.1)]]
    assert calm.get_ylim() == rough.get_ylim()
    assert calm.get_title() == "calm: 30.0 % without reset"
    assert [bar.get_height() for bar in behind.containers[0]] == [50.0, 50.0]


def test_prototypes_of_all_kinds_lie_in_one_plane(make: Make) -> None:
    outcomes = [
        make(Cell("DMSE", Procedure("dmse")), {"fog": 1.0}),
        make(Cell("DMSE^s", Procedure("dmse"), source_data=True), {"fog": 1.0}),
    ]
    panel = draw_prototypes(outcomes).axes[0]
    sizes = [len(dots.get_offsets()) for dots in panel.collections]
    assert sizes == [10, 0, 10, 0, 10, 0]
    assert panel.get_legend_handles_labels()[1] == ["classifier rows", "test time", "source means"]


@pytest.mark.parametrize("name", [name for name, e in EXPERIMENTS.items() if e.drawings])
def test_every_drawing_gives_the_same_bytes_twice(name: str, make: Make) -> None:
    table = experiment(name)
    outcomes = [make(cell, {"fog": 10.0 + i, "snow": 20.0 - i}) for i, cell in enumerate(table.cells("cifar10-c"))]
    for drawing in table.drawings:
        once, twice = (svg(drawing.draw(outcomes), drawing.title) for _ in range(2))
        assert once == twice and drawing.title.encode() in once
