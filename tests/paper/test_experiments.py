"""The paper's experiments: complete, buildable, and with the published numbers next to ours."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ctta.bench.workload import Inputs
from ctta.cli import app
from ctta.errors import MissingData
from ctta.paper import EXPERIMENTS, UnknownExperiment, experiment, numbers
from ctta.paper.reproduce import Plan, Request, plan
from ctta.registry import method
from reference import net


def test_the_main_table_has_the_papers_twelve_rows() -> None:
    cells = experiment("main").cells("cifar10-c")
    published = {cell.label: cell.published.mean for cell in cells}
    # Three figures read off the published table.
    assert len(cells) == 12
    assert (published["Source only"], published["BN + Adapt"], published["RMT"]) == (43.5, 20.4, 17.3)


def test_published_errors_of_the_main_table_average_to_the_published_mean() -> None:
    for dataset in ("cifar10-c", "cifar100-c", "imagenet-c-5k", "imagenet-c-50k"):
        for cell in experiment("main").cells(dataset):
            found = list(cell.published.domains.values())
            # One row of the paper is off by a third of a point: RDumb on CIFAR100-C, whose entries average 45.42.
            within = 0.33 if (dataset, cell.label) == ("cifar100-c", "RDumb") else 0.11
            assert len(found) == 15 and sum(found) / 15 == pytest.approx(cell.published.mean, abs=within), cell.label


@pytest.mark.parametrize(
    ("name", "dataset"), [(e.name, dataset) for e in EXPERIMENTS.values() for dataset in e.datasets]
)
def test_cells_are_different_runs(name: str, dataset: str) -> None:
    cells = experiment(name).cells(dataset)
    assert len({cell.label for cell in cells}) == len(cells)
    assert len({repr(replace(cell, label="", published=None)) for cell in cells}) == len(cells)


def test_every_cell_can_be_built() -> None:
    cells = [cell for e in EXPERIMENTS.values() for dataset in e.datasets for cell in e.cells(dataset)]
    for procedure in {(c.procedure.method, repr(c.procedure.settings)): c.procedure for c in cells}.values():
        method(procedure.method)(net(), **procedure.settings)


def test_figures_the_paper_publishes_once_stand_where_it_has_them() -> None:
    def published(name: str, dataset: str) -> dict[str, float]:
        return {c.label: c.published.mean for c in experiment(name).cells(dataset) if c.published is not None}

    # Read off the paper's tables.
    assert published("samples", "imagenet-c-50k")["RDumb, 25000 images"] == 54.3
    assert published("orders", "imagenet-c-50k")["TENT-cont."] == 84.4
    assert published("clean-source", "cifar100-c")["DMSE, not learning on it"] == 24.4
    assert published("clean-source", "cifar100-c")["DMSE, learning on it"] == 23.5
    assert published("domainnet", "domainnet-126")["SANTA*"] == 38.7
    assert published("long", "imagenet-c-50k") == {"dynamic momentum": 57.5, "momentum 0.999": 70.2}
    assert published("loss", "cifar10-c") == {"SCE": 16.4, "CE": 23.6}
    assert published("orders", "cifar10-c") == {}


def test_figures_published_for_imagenet_alone_are_not_claimed_for_others() -> None:
    assert {cell.published for cell in experiment("alpha-e").cells("cifar10-c")} == {None}
    by_label = {cell.label: cell.published for cell in experiment("alpha-e").cells("imagenet-c-5k")}
    assert by_label["alpha_min 0.99, e_min 0.2"].mean == 58.1 and len(by_label) == 25
    assert len(experiment("tau-lambda").cells("imagenet-c-5k")) == 15


def test_an_unknown_experiment_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownExperiment, match="Did you mean 'components'"):
        experiment("component")


FEW = ("--corruptions", "fog,contrast")


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
    assert "ANOTHER BACKBONE: digits_resnet8" in shown.stdout and "ANOTHER SIZE: 20 images" in shown.stdout
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert [row["row"] for row in told["rows"]] == ["Source only", "BN + Adapt"]
    # The published rows end with jpeg compression, 30.3 and 27.3 %.
    for row, published, jpeg in zip(told["rows"], (43.5, 20.4), (30.3, 27.3), strict=True):
        assert row["paper"] == published
        assert row["difference"] == pytest.approx(row["ours"] - published)
        assert row["paper_domains"]["jpeg_compression"] == jpeg
        assert f"{row['domains']['jpeg_compression'] - jpeg:+.1f}" in shown.stdout


def test_the_papers_mean_is_over_the_corruptions_that_ran(tmp_path: Path, clean_images: Path) -> None:
    def row(corruptions: str) -> dict[str, Any]:
        arguments = ["main", "cifar10-c", "--data", str(clean_images), "--model", "digits_resnet8", "--images", "4"]
        told = reproduce(*arguments, "--methods", "source", "--corruptions", corruptions, out=tmp_path)
        return dict(told["rows"][0])

    # Published: fog 26.0, jpeg compression 30.3.
    some = row("jpeg_compression,fog")
    assert some["paper"] == pytest.approx(28.15)
    assert some["difference"] == pytest.approx(some["ours"] - 28.15)
    # The paper has no number for speckle noise.
    assert row("fog,speckle_noise")["paper"] is None


def test_rows_that_need_source_data_are_left_out_and_named(tmp_path: Path, clean_images: Path) -> None:
    arguments = ["reproduce", "main", "cifar10-c", "--data", str(clean_images), "--model", "digits_resnet8"]
    result = CliRunner().invoke(
        app, [*arguments, "--methods", "rmt", "--images", "4", "--out", str(tmp_path), "--quiet"]
    )
    assert result.exit_code == 0, result.output
    assert "LEFT OUT, because it needs --source-data: RMT." in result.stdout


def test_a_method_that_is_no_row_of_an_experiment_is_named_and_few_steps_are_a_warning(tmp_path: Path) -> None:
    words = ["reproduce", "reset", "digits", "--methods", "dmse,trio", "--images", "4", "--corruptions", "fog"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "LEFT OUT, because it is no row of this experiment: trio." in result.stdout
    assert "FEW STEPS: dmse learns once per step" in result.stderr


def reproduce(*arguments: str, out: Path) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(out), "--quiet", "--json"])
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def test_a_figure_is_drawn_from_its_runs(tmp_path: Path) -> None:
    told = reproduce("entropy", "digits", "--images", "20", "--methods", "source,bn", out=tmp_path)
    (figure,) = told["figures"]
    text = Path(figure).read_text(encoding="utf-8")
    assert "Entropy of correct and incorrect predictions: digits, digits_resnet8" in text
    wrong = [round(row["ours"]) for row in told["rows"]]
    # All domains have the same size, so that the mean error is the share of incorrect predictions.
    assert all(f"incorrect ({share} %)" in text and f"correct ({100 - share} %)" in text for share in wrong)


def test_a_figure_of_entropies_is_drawn_for_an_own_model(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))\n"
    )
    own = ("--methods", "source", "--model", f"{tmp_path / 'own.py'}:build")
    (figure,) = reproduce("entropy", "digits", "--images", "4", *FEW, *own, out=tmp_path)["figures"]
    assert "entropy of the prediction (nat)" in Path(figure).read_text(encoding="utf-8")


def test_figures_of_own_data_are_named_after_its_folder(tmp_path: Path, clean_images: Path) -> None:
    for folder in ("days", "nights 2"):
        (tmp_path / folder).mkdir()
        shutil.copy(clean_images, tmp_path / folder / "monday.npz")
        arguments = ("teacher", str(tmp_path / folder), "--model", "digits_resnet8", "--images", "4")
        (figure,) = reproduce(*arguments, out=tmp_path / "runs")["figures"]
        assert Path(figure).name == f"teacher_{folder.replace(' ', '_')}_digits_resnet8.svg"
        assert f"along the stream: {folder}, digits_resnet8" in Path(figure).read_text(encoding="utf-8")


@pytest.mark.trial
def test_the_clean_source_is_asked_after_the_stream_with_and_without_learning(tmp_path: Path) -> None:
    told = reproduce("clean-source", "digits", "--images", "50", *FEW, "--methods", "source,rmt", out=tmp_path)
    rows = {row["row"]: row for row in told["rows"]}
    resting, learning = rows["RMT*, not learning on it"], rows["RMT*, learning on it"]
    assert list(resting["domains"])[-1] == "clean" and resting["ours"] == resting["domains"]["clean"]
    # Until the source comes back the two runs are one run.
    assert all(resting["domains"][d] == learning["domains"][d] for d in list(resting["domains"])[:-1])
    steps = [(tmp_path / row["runs"][0] / "steps.jsonl").read_text().splitlines()[-1] for row in (resting, learning)]
    assert [json.loads(step)["loss"] is None for step in steps] == [True, False]
    # A model that never learns has its clean error either way.
    source = rows["Source only, learning on it"]
    assert source["ours"] == rows["Source only, not learning on it"]["ours"] < 10


def test_sizes_beyond_what_is_asked_for_are_left_out(tmp_path: Path) -> None:
    told = reproduce("samples", "digits", "--images", "200", *FEW, "--methods", "rdumb", out=tmp_path)
    assert [row["row"] for row in told["rows"]] == ["RDumb, 200 images"]
    assert any("needs more than 200 images" in note and "RDumb, 500 images" in note for note in told["notes"])


def planned(name: str, *methods: str) -> Plan:
    inputs = Inputs("digits", "digits_resnet8")
    return plan(experiment(name), Request("digits", inputs, methods=frozenset(methods) or None))


def test_sizes_beyond_those_of_the_data_are_left_out(clean_images: Path) -> None:
    found = planned("samples")
    # A domain of the digits has 900 images.
    assert [cell.label for cell in found.cells] == [f"{m}, {n} images" for m in ("DMSE", "RDumb") for n in (200, 500)]
    assert found.left_out["DMSE, 1000 images"] == "needs more than 900 images per domain"
    few = Request("cifar10-c", Inputs("cifar10-c", "digits_resnet8", data=clean_images, images=500))
    with pytest.raises(MissingData, match="RDumb, 200 images needs more than 40 images per domain"):
        plan(experiment("samples"), few)


def test_methods_may_be_named_in_capital_letters() -> None:
    assert [cell.label for cell in planned("reset", "DMSE").cells] == ["with reset", "without reset"]
    assert planned("reset", "DMSE", "Trio").left_out == {"trio": "is no row of this experiment"}


def test_an_own_method_gets_a_row_on_every_stream_of_a_table() -> None:
    sizes = {cell.label: cell.procedure.batch_size for cell in planned("batch-sizes", "mine.py:Own").cells}
    assert sizes == {f"mine.py:Own, batch {size}": size for size in (16, 32, 64, 128)}
    protocols = {cell.label: cell.procedure.protocol for cell in planned("clean-source", "mine.py:Own").cells}
    assert protocols == {
        "mine.py:Own, not learning on it": "then-clean-resting",
        "mine.py:Own, learning on it": "then-clean",
    }
    assert [cell.label for cell in planned("alpha-e", "mine.py:Own").cells] == ["mine.py:Own"]


@pytest.mark.parametrize("name", [name for name, e in EXPERIMENTS.items() if not e.drawings])
def test_rows_of_one_condition_have_one_stream(name: str) -> None:
    table = experiment(name)
    cells = table.cells(table.datasets[0])
    streams = {(c.condition, repr((replace(c.procedure, method="", settings={}), c.images, c.domain))) for c in cells}
    assert len(streams) == len({condition for condition, _ in streams})


@pytest.mark.parametrize(
    "name", ["main", *(pytest.param(name, marks=pytest.mark.trial) for name in ("gradual", "long"))]
)
def test_the_size_of_a_domain_is_told_also_where_it_comes_again_and_again(
    tmp_path: Path, clean_images: Path, name: str
) -> None:
    options = ["--model", "digits_resnet8", "--methods", "source,dmse", "--corruptions", "fog", "--images", "20"]
    notes = " ".join(reproduce(name, "cifar10-c", "--data", str(clean_images), *options, out=tmp_path)["notes"])
    assert "ANOTHER SIZE: 20 images" in notes and "images are generated" in notes


def test_sizes_that_are_a_tables_own_are_no_deviation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = replace(numbers.SETTINGS["digits"], images=300)
    monkeypatch.setitem(numbers.SETTINGS, "digits", digits)
    notes = reproduce("samples", "digits", "--images", "200", *FEW, "--methods", "rdumb", out=tmp_path)["notes"]
    assert not any("ANOTHER SIZE" in note for note in notes)


@pytest.mark.trial
def test_random_orders_are_ten_different_streams(tmp_path: Path) -> None:
    told = reproduce("orders", "digits", "--images", "4", "--methods", "source", out=tmp_path)
    (row,) = told["rows"]
    assert row["seeds"] == 10 and row["spread"] > 0
    orders = [json.loads((tmp_path / run / "record.json").read_text())["spec"]["corruptions"] for run in row["runs"]]
    assert len({tuple(order) for order in orders}) == 10 and len({frozenset(order) for order in orders}) == 1


def test_an_experiment_about_other_data_is_refused(tmp_path: Path) -> None:
    for name, dataset in (("domainnet", "cifar10-c"), ("main", "domainnet-126")):
        result = CliRunner().invoke(app, ["reproduce", name, dataset, "--out", str(tmp_path)])
        assert result.exit_code == 1 and f"ParameterError: The experiment {name} is about" in result.output


@pytest.mark.trial
def test_saying_what_is_usual_finds_the_same_run(tmp_path: Path) -> None:
    base = ("--images", "4")
    default = reproduce("reset", "digits", *base, out=tmp_path)["rows"][0]["runs"]
    said = {row["row"]: row["runs"] for row in reproduce("loss", "digits", *base, out=tmp_path)["rows"]}
    assert said["SCE"] == default != said["CE"]
