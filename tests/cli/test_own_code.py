"""ctta run, reproduce and doctor with the user's own models and methods."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import ctta
from cli.command import ctta as cli
from ctta.bench.folder import read_record
from ctta.cli.command_line import command_line, remember
from ctta.errors import BadData, MissingData, ModelError, NotWeights, ParameterError, UnknownModel, UserCodeError
from ctta.nets.by_name import load_model
from ctta.track import Target
from jobs import make_job
from third_party import third_party

CODE = '''
import torch
from torch import nn
import ctta

def build():
    print("building")
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
    )

def normalised():
    return ctta.Classifier(build(), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))

ready = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 10))

class Calmer(ctta.Tent):
    """Tent that logs one thing more."""
    def adapt(self, x):
        step = yield from super().adapt(x)
        return ctta.Step(step.logits, step.loss, {"calm": 1.0})
'''

SMALL = ("--images", "20", "--batch-size", "10", "--corruptions", "fog", "--quiet")


def records(*words: object) -> list[dict[str, Any]]:
    result = cli(*words, "--json")
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout))


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "my code" / "mine.py"
    path.parent.mkdir()
    path.write_text(CODE)
    return path


def test_a_run_takes_a_model_and_a_method_from_a_file_and_its_record_holds_no_path(code: Path, tmp_path: Path) -> None:
    (record,) = records("run", f"{code}:Calmer", "digits", f"--model={code}:build", *SMALL, "--out", tmp_path / "runs")
    digest = hashlib.sha256(code.read_bytes()).hexdigest()
    assert record["spec"]["method"] == f"calmer@{digest[:12]}"
    assert record["spec"]["model"]["name"] == "build" and record["spec"]["model"]["code"] == digest
    steps = (tmp_path / "runs" / record["address"] / record["steps"]).read_text().splitlines()
    assert [json.loads(step)["calm"] for step in steps] == [1.0, 1.0]
    assert record["images"] == 20 and record["environment"]["device"]
    assert record["command"].startswith("ctta run mine.py:Calmer digits --model=mine.py:build --images 20")
    record["command"] = record["command"].replace(str(tmp_path / "runs"), "")
    assert str(tmp_path) not in json.dumps(record)


def test_a_changed_file_is_another_run_and_an_unchanged_one_is_not(code: Path, tmp_path: Path) -> None:
    words = ("run", f"{code}:Calmer", "digits", "--model", f"{code}:build", *SMALL, "--out", tmp_path / "runs")
    (first,), (again,) = records(*words), records(*words)
    assert again == first
    code.write_text(CODE + "\n# changed\n")
    (changed,) = records(*words)
    assert changed["address"] != first["address"]
    assert changed["spec"]["model"]["digest"] == first["spec"]["model"]["digest"]
    shown = cli("compare", tmp_path / "runs", "--json")
    assert shown.exit_code == 0 and len(json.loads(shown.stdout)["rows"]) == 2


def test_a_toml_file_names_own_code_too(code: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        f'command = "run"\nmethod = "bn"\nstream = "digits"\nmodel = "{code}:normalised"\nimages = 4\nbatch-size = 2\n'
        f'corruption = ["fog", "snow"]\nout = "{tmp_path / "runs"}"\njson = true\nquiet = true\n'
    )
    result = cli("do", file)
    assert result.exit_code == 0, result.output
    (record,) = json.loads(result.stdout)
    assert record["spec"]["model"]["mean"] == [0.5, 0.5, 0.5] and record["spec"]["model"]["std"] == [0.25, 0.25, 0.25]
    assert record["spec"]["corruptions"] == ["fog", "snow"] and "--model mine.py:normalised" in record["command"]


def test_a_job_for_another_machine_names_files_by_absolute_paths(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(code.parent)
    track = (Target("mlflow", Path("tracked")),)
    job = make_job("mine.py:Calmer", "digits", "hf:nets/vit", data=Path("mine.npz"), track=track)
    there = job.with_absolute_paths()
    assert there.work.procedure.method == f"{code}:Calmer"
    assert there.work.inputs.model == f"hf:{code.parent / 'nets' / 'vit'}"
    assert there.work.inputs.data == code.parent / "mine.npz"
    assert there.options.track == (Target("mlflow", code.parent / "tracked"),)
    assert make_job("tent", "digits", "pkg.mod:net").with_absolute_paths().work.inputs.model == "pkg.mod:net"


def test_an_experiment_gets_a_row_for_an_own_method(code: Path, tmp_path: Path) -> None:
    few = ("--images", "4", "--corruptions", "fog", "--quiet", "--out", tmp_path, "--json")
    result = cli("reproduce", "main", "digits", "--methods", f"bn,{code}:Calmer", *few)
    assert result.exit_code == 0, result.output
    rows = {row["row"]: row for row in json.loads(result.stdout)["rows"]}
    assert rows["mine.py:Calmer"]["paper"] is None and len(rows) == 2
    assert read_record(tmp_path / rows["mine.py:Calmer"]["runs"][0]).spec.method.startswith("calmer@")


def test_doctor_takes_own_methods_and_models_of_the_table(code: Path) -> None:
    result = cli("doctor", "digits_resnet8", "--methods", f"tent,{code}:Calmer", "--json")
    assert result.exit_code == 0, result.output
    assert {report["name"] for report in json.loads(result.stdout)["methods"]} == {"tent", f"{code}:Calmer"}


def test_a_factory_gives_the_same_weights_every_time_and_leaves_the_generator_alone(code: Path) -> None:
    state = torch.get_rng_state()
    first, second = (load_model(f"{code}:build") for _ in range(2))
    assert first.classifier.digest() == second.classifier.digest()
    assert torch.equal(torch.get_rng_state(), state)


def test_an_object_is_copied_and_takes_weights_from_a_file(code: Path, tmp_path: Path) -> None:
    before = load_model(f"{code}:ready").classifier
    zeros = {name: torch.zeros_like(value) for name, value in before.model.state_dict().items()}
    save_file(zeros, tmp_path / "zeros.safetensors")
    given = load_model(f"{code}:ready", tmp_path / "zeros.safetensors").classifier
    assert given.digest() != before.digest() == load_model(f"{code}:ready").classifier.digest()
    assert given(torch.rand(2, 3, 8, 8)).abs().max() == 0


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("digits_resnet9", UnknownModel, "Did you mean 'digits_resnet8'"),
        ("{code}:absent", UserCodeError, "has no 'absent'"),
        ("{code}:SMALL", UserCodeError, "has no 'SMALL'"),
        ("{code}:torch", ModelError, "must be, or return, a torch.nn.Module"),
        ("no_such_package:net", UserCodeError, "no module 'no_such_package'"),
        ("hf:{code}", MissingData, "as save_pretrained writes them"),
    ],
)
def test_a_wrong_name_is_a_named_error(code: Path, name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        load_model(name.format(code=code))


def test_a_relative_path_of_weights_is_recorded_as_it_was_typed() -> None:
    remember(["run", "bn", "digits", "--weights", "data/w.safetensors", "--model", "code/net.py:build"])
    assert command_line() == "ctta run bn digits --weights data/w.safetensors --model net.py:build"
    remember(["run", "bn", "digits", "--weights=/home/me/w.safetensors"])
    assert command_line() == "ctta run bn digits --weights=w.safetensors"


def test_the_absolute_path_of_weights_is_not_recorded(code: Path, tmp_path: Path) -> None:
    save_file(load_model(f"{code}:build").classifier.model.state_dict(), tmp_path / "w.safetensors")
    (record,) = records(
        "run",
        "source",
        "digits",
        "--model",
        f"{code}:build",
        "--weights",
        tmp_path / "w.safetensors",
        *SMALL,
        "--out",
        tmp_path / "runs",
    )
    assert "--weights w.safetensors" in record["command"]


@pytest.mark.parametrize("spelling", [("--corruptions", "fog,snow"), ("--corruption", "fog", "--corruption", "snow")])
def test_corruptions_are_named_alike_in_every_command(tmp_path: Path, spelling: tuple[str, ...]) -> None:
    words = ("--images", "2", "--batch-size", "2", "--quiet", *spelling, "--out", tmp_path)
    (record,) = records("run", "source", "digits", *words)
    assert record["spec"]["corruptions"] == ["fog", "snow"]
    few = ("--method", "source", "--images", "2", "--quiet", *spelling, "--out", tmp_path, "--json")
    rows = json.loads(cli("reproduce", "main", "digits", *few).stdout)["rows"]
    assert list(rows[0]["domains"]) == ["fog", "snow"]


@pytest.mark.models
@pytest.mark.parametrize(
    ("library", "name", "head"),
    [("timm", "timm:vit_tiny_patch16_224", "head"), ("torchvision", "torchvision:resnet18", "fc")],
)
def test_a_model_of_a_library_has_its_own_normalisation_and_size(
    library: str, name: str, head: str, tmp_path: Path
) -> None:
    third_party(library)
    loaded = load_model(name, classes=7)
    mean, std = ((0.5,) * 3, (0.5,) * 3) if library == "timm" else ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (loaded.mean, loaded.std, loaded.input_size) == (mean, std, 224)
    assert loaded.facts()["name"] == name and loaded.facts()["input_size"] == 224
    classifier = loaded.classifier
    assert classifier.head_name == f"net.{head}"
    x = torch.rand(1, 3, 32, 32)
    assert classifier(x).shape == (1, 7)
    assert load_model(name, classes=7).classifier.digest() == classifier.digest()
    # As many classes as a file of weights has, and the weights of that file.
    net = classifier.model.net
    assert isinstance(net, nn.Module)
    save_file({k: v.contiguous() for k, v in net.state_dict().items()}, tmp_path / "w.safetensors")
    assert torch.equal(load_model(name, tmp_path / "w.safetensors").classifier(x), classifier(x))
    with pytest.raises(UnknownModel, match="Did you mean"):
        load_model(name[:-1])


@pytest.fixture
def hugging_face(tmp_path: Path) -> Path:
    transformers = third_party("transformers")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=10
    )
    folder = tmp_path / "secret folder" / "resnet"
    transformers.ResNetForImageClassification(config).save_pretrained(folder)
    settings = {
        "do_normalize": True,
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.2, 0.2],
        "do_resize": True,
        "size": {"height": 48, "width": 48},
        "rescale_factor": 1 / 255,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.models
def test_a_folder_of_hugging_face_runs_with_its_processor_s_settings(hugging_face: Path, tmp_path: Path) -> None:
    loaded = load_model(f"hf:{hugging_face}")
    assert (loaded.mean, loaded.std, loaded.input_size) == ((0.5, 0.4, 0.3), (0.2, 0.2, 0.2), 48)
    net = third_party("transformers").ResNetForImageClassification.from_pretrained(hugging_face).eval()
    x = torch.rand(2, 3, 48, 48)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.5, 0.4, 0.3), (0.2, 0.2, 0.2)))
    with torch.no_grad():
        torch.testing.assert_close(loaded.classifier(x), net((x - mean) / std).logits)
    (record,) = records("run", "bn", "digits", "--model", f"hf:{hugging_face}", *SMALL, "--out", tmp_path / "runs")
    assert record["spec"]["model"]["name"] == "hf:ResNetForImageClassification"
    assert "--model hf:resnet" in record["command"] and "secret" not in json.dumps(record)


@pytest.mark.models
def test_a_damaged_folder_of_hugging_face_is_refused_and_never_unpickled(hugging_face: Path) -> None:
    with pytest.raises(ParameterError, match="Leave out --weights"):
        load_model(f"hf:{hugging_face}", hugging_face / "model.safetensors")
    settings = hugging_face / "preprocessor_config.json"
    good = settings.read_text()
    settings.write_text(json.dumps(json.loads(good) | {"rescale_factor": 1 / 127.5}))
    with pytest.raises(BadData, match="scales grey levels"):
        load_model(f"hf:{hugging_face}")
    settings.write_text("[]")
    with pytest.raises(BadData, match="not the configuration"):
        load_model(f"hf:{hugging_face}")
    settings.write_text(good)
    config = hugging_face / "config.json"
    config.write_text(
        config.read_text().replace('"hidden_sizes": [\n    8,\n    16\n  ]', '"hidden_sizes": [\n    8,\n    24\n  ]')
    )
    with pytest.raises((NotWeights, BadData)):
        load_model(f"hf:{hugging_face}")
    (hugging_face / "model.safetensors").rename(hugging_face / "pytorch_model.bin")
    with pytest.raises(MissingData, match="safetensors"):
        load_model(f"hf:{hugging_face}")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(ctta.errors.MissingExtra, match=r"timm is needed here .* 'ctta\[models\]'"):
        load_model("timm:resnet18")
