"""The paper's experiments: complete, buildable, and with the published figures beside ours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ctta.bench.experiments import EXPERIMENTS, UnknownExperiment, experiment
from ctta.cli import app
from ctta.registry import method
from reference import net


def test_the_main_table_has_the_papers_twelve_rows() -> None:
    cells = experiment("main").cells("cifar10-c")
    published = {cell.label: cell.published for cell in cells}
    # Three figures read off the published table.
    assert len(cells) == 12
    assert (published["Source only"], published["BN + Adapt"], published["RMT"]) == (43.5, 20.4, 17.3)


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("dataset", ["cifar10-c", "cifar100-c", "imagenet-c-5k", "imagenet-c-50k"])
def test_every_cell_can_be_built_and_cells_differ(name: str, dataset: str) -> None:
    cells = experiment(name).cells(dataset)
    assert len({cell.label for cell in cells}) == len(cells)
    for cell in cells:
        method(cell.method)(net(), **cell.settings)


def test_figures_published_for_imagenet_alone_are_not_claimed_for_others() -> None:
    assert {cell.published for cell in experiment("alpha-e").cells("cifar10-c")} == {None}
    by_label = {cell.label: cell.published for cell in experiment("alpha-e").cells("imagenet-c-5k")}
    assert by_label["alpha_min 0.99, e_min 0.2"] == 58.1 and len(by_label) == 25
    assert len(experiment("tau-lambda").cells("imagenet-c-5k")) == 15


def test_an_unknown_experiment_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownExperiment, match="Did you mean 'components'"):
        experiment("component")


@pytest.fixture
def clean_images(tmp_path: Path) -> Path:
    x = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "clean.npz", x=x, y=np.arange(40) % 10)
    return tmp_path / "clean.npz"


def test_a_reduced_table_prints_ours_the_papers_and_how_it_differs(tmp_path: Path, clean_images: Path) -> None:
    arguments = ["reproduce", "main", "cifar10-c", "--data", str(clean_images), "--model", "digits_resnet8"]
    arguments += ["--methods", "source,bn", "--images", "20", "--out", str(tmp_path / "runs"), "--quiet"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "ANOTHER BACKBONE: digits_resnet8" in shown.stdout and "REDUCED SIZE: 20 images" in shown.stdout
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert [row["row"] for row in told["rows"]] == ["Source only", "BN + Adapt"]
    for row, published in zip(told["rows"], (43.5, 20.4), strict=True):
        assert float(row["paper"]) == published
        assert float(row["difference"]) == pytest.approx(float(row["ours"]) - published, abs=0.11)


def test_rows_that_need_source_data_are_left_out_and_named(tmp_path: Path, clean_images: Path) -> None:
    arguments = ["reproduce", "main", "cifar10-c", "--data", str(clean_images), "--model", "digits_resnet8"]
    result = CliRunner().invoke(
        app, [*arguments, "--methods", "rmt", "--images", "4", "--out", str(tmp_path), "--quiet"]
    )
    assert result.exit_code == 0, result.output
    assert "LEFT OUT, because they need --source-data: RMT." in result.stdout
