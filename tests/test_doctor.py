"""ctta doctor: its report on models that methods accept and on models they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from torch import Tensor, nn
from typer.testing import CliRunner

import ctta
from ctta.cli.doctor import doctor, load_model
from ctta.doctor import examine
from reference import net

app = typer.Typer()
app.command()(doctor)

MODEL_FILE = """
from torch import nn
def build():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 7))
number = 3
class Later:
    def __call__(self):
        return 1 / 0
fails = Later()
"""


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MODEL_FILE)
    return path


def test_a_batch_norm_network_is_served_by_every_method() -> None:
    diagnosis = examine(net(), image_size=16)
    assert (diagnosis.head, diagnosis.num_features, diagnosis.num_classes) == ("fc", 16, 10)
    assert diagnosis.norms == {"BatchNorm2d": 11} and diagnosis.parameters == 12_906
    assert all(report.refusal is None for report in diagnosis.methods)
    by_name = {report.name: report for report in diagnosis.methods}
    affine = sum(m.weight.numel() + m.bias.numel() for m in net().modules() if isinstance(m, nn.BatchNorm2d))
    assert by_name["tent"].trained == affine and by_name["source"].trained == 0
    assert by_name["dmse"].smallest_batch == 2 and by_name["source"].smallest_batch == 1


class NoNormNoHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).relu().mean((2, 3))


def test_methods_that_cannot_serve_a_model_say_why() -> None:
    reports = {report.name: report for report in examine(NoNormNoHead()).methods}
    assert reports["source"].refusal is None and reports["cotta"].refusal is None
    for name in ("tent", "eata", "sar", "deyo", "roid", "rotta", "bn", "santa"):
        assert str(reports[name].refusal).startswith("NothingToTrain"), name
    for name in ("dmse", "rmt"):
        assert str(reports[name].refusal).startswith("HeadNotFound"), name


def test_the_command_reads_a_file_and_prints_json(model_file: Path) -> None:
    result = CliRunner().invoke(app, [f"{model_file}:build", "--json", "--image-size", "8"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["head"] == "4" and told["num_classes"] == 7 and len(told["methods"]) == len(ctta.registry.methods())


def test_the_command_prints_a_table_and_the_refusals(model_file: Path) -> None:
    result = CliRunner().invoke(app, [f"{model_file}:build"])
    assert "4 features to 7 classes" in result.stdout and "1 BatchNorm2d" in result.stdout
    assert "dmse" in result.stdout


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("json", "Which model of json"),
        ("{file}:fails", "raised ZeroDivisionError"),
        ("{file}:nothing", "has no 'nothing'"),
        ("{file}:number", "got int"),
        ("absent.py:build", "no Python file"),
        ("no_such_package_here:build", "no module 'no_such_package_here'"),
    ],
)
def test_a_wrong_target_is_named(model_file: Path, target: str, words: str) -> None:
    with pytest.raises(ctta.CttaError, match=words):
        load_model(target.format(file=model_file))


def test_a_file_with_one_function_needs_no_name(model_file: Path) -> None:
    assert isinstance(load_model(str(model_file)), nn.Sequential)


def test_a_models_own_complaint_is_told_method_by_method() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, x: Tensor) -> Tensor:
            if x.shape[-1] != 16:
                raise RuntimeError("16 pixels only")
            return self.inner(x)

    assert all("16 pixels only" in str(report.refusal) for report in examine(Picky(), image_size=10).methods)


def test_an_installed_module_can_be_named() -> None:
    assert isinstance(load_model("torch.nn:Identity"), nn.Identity)


SOFTMAX_FILE = """
from torch import nn
layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 7)
logits, probabilities = nn.Sequential(*layers), nn.Sequential(*layers, nn.Softmax(1))
"""


def test_a_model_that_returns_probabilities_is_warned_about(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SOFTMAX_FILE)
    options = ["--image-size", "16", "--method", "source"]
    told = CliRunner().invoke(app, [f"{path}:probabilities", *options]).output
    assert "remove the softmax" in " ".join(told.split())
    assert "warning" not in CliRunner().invoke(app, [f"{path}:logits", *options]).output


def test_methods_that_fail_in_the_same_way_are_listed_together(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from torch import nn\nmodel = nn.Sequential(nn.Flatten(), nn.Linear(48, 4), nn.Linear(4, 3))\n")
    options = ["--image-size", "16", "--method", "source", "--method", "dmse"]
    told = " ".join(CliRunner().invoke(app, [f"{path}:model", *options]).output.split())
    before, refused = told.split("dmse, source cannot adapt it")
    assert refused.count("shapes cannot be multiplied") == 1 and "recommended: nothing. trio suits" in before


def test_the_doctor_says_all_that_adapt_chooses_and_marks_methods_that_see_the_batch_first(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SOFTMAX_FILE)
    options = ["--image-size", "16", "--method", "lame", "--method", "tent"]
    told = " ".join(CliRunner().invoke(app, [f"{path}:logits", *options]).output.split())
    for choice in ('precision="bf16" is faster', "Memory layout", "pass guard=False", "No window", "ms for 1,"):
        assert choice in told
    assert " lame† " in told and " tent " in told and "† predicts after using the batch" in told
    report = json.loads(CliRunner().invoke(app, [f"{path}:logits", "--method", "tent", "--json"]).stdout)
    assert len(report["computes"]) >= 3
    unmarked = CliRunner().invoke(app, [f"{path}:logits", "--method", "tent"]).output
    assert "†" not in unmarked


def test_steps_are_timed_without_the_guard_which_costs_more_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[ctta.Adapter] = []

    def note(adapter: ctta.Adapter, x: Tensor, *, repeats: int) -> float:
        timed.append(adapter)
        return 0.25 * len(x)

    monkeypatch.setattr("ctta.doctor.seconds_per_step", note)
    assert examine(net(), image_size=16, among={}).seconds == {1: 0.25, 16: 4.0}
    assert [type(adapter) for adapter in timed] == [ctta.Trio, ctta.Trio]
