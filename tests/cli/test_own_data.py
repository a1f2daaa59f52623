"""ctta run and reproduce with the user's own data: by path, and as a Dataset and a Protocol from outside."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cli.command import ctta as cli
from ctta.bench.inputs import open_stream
from ctta.corruptions import _FUNCTIONS as FUNCTIONS
from ctta.corruptions import CORRUPTIONS, HELD_OUT
from ctta.datasets import DATASETS, Dataset, get_dataset, locate, register
from ctta.errors import BadData, MissingData, ParameterError, UnknownProtocol, UnknownStream, UserCodeError
from ctta.nets.by_name import load_model
from ctta.protocol import PROTOCOLS, Protocol, get_protocol, order_text
from ctta.protocol import register as register_protocol
from ctta.streams.protocols import CONCENTRATION, GRADUAL
from jobs import make_job

MODEL = """
from torch import nn

def build():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )

def rigid():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 3))

def headless():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(nn.init.normal_(nn.Conv2d(3, 4, 1).weight))
        def forward(self, x):
            return nn.functional.conv2d(x, self.weight).mean((2, 3))
    return Net()
"""

PACKAGE = """
import torch
from ctta.datasets import Dataset
from ctta.protocol import Protocol
from ctta.streams import Domain, Images, continual

def _open(wanted):
    print("opening")
    made = {}
    for number, name in enumerate(("red", "green", "blue")):
        x = torch.zeros(6, 3, 16, 16, dtype=torch.uint8)
        x[:, number] = 200
        made[name] = Domain(name, 0, Images(x, [0, 1, 2, 0, 1, 2]))
    return [made[name] for name in wanted.domains or made]

def _twice(parts):
    back = list(parts.domains)[::-1]
    return continual([*back, *back], batch_size=parts.batch_size, seed=parts.shuffle, images=parts.images)

mydata = Dataset("mydata", _open, classes=3, batch_size=3, recipe={"tent": {"lr": 0.5}}, summary="three colours")
mine = Protocol("mine", _twice, visits=2, order="back to front, seed {seed}", summary="twice, back to front")
taken = Dataset("digits", _open)
number = 3
"""

QUICK = ("--batch-size", 3, "--quiet")


def record_of(*words: object) -> dict[str, Any]:
    result = cli(*words, "--json")
    assert result.exit_code == 0, result.output
    (record,) = json.loads(result.stdout)
    return dict(record)


def said(*words: object) -> str:
    result = cli(*words)
    assert result.exit_code == 1, result.output
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


def pixels(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8)


def picture(path: Path, seed: int, height: int = 20, width: int = 18) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(seed, height, width)).save(path)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a model of three classes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(MODEL)
    return tmp_path


@pytest.fixture
def outside(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module outside ctta with a dataset and a protocol."""
    for registry in (DATASETS, PROTOCOLS):
        monkeypatch.setattr(registry, "_own", dict(registry._own))
    (here / "far_away.py").write_text(PACKAGE)
    return here / "far_away.py"


def errors_of(images: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """The error in percent of the model on each domain, from images (N, H, W, 3) and labels."""
    model = load_model("net.py:build").classifier
    found = {}
    for name, (x, y) in images.items():
        with torch.no_grad():
            predicted = model(torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255).argmax(1).numpy()
        found[name] = 100 * float((predicted != y).mean())
    return found


def test_a_run_reads_the_arrays_that_corrupt_wrote_at_any_size(here: Path) -> None:
    np.savez(here / "own.npz", x=pixels(0, 6, 24, 20), y=np.arange(6) % 3)
    assert (
        cli("corrupt", "own.npz", "own-c", "--corruptions", "fog,snow", "--severity", "3,5", "--quiet").exit_code == 0
    )
    record = record_of("run", "source", "own-c/", "--model", "net.py:build", "--severity", 3, *QUICK)
    stored = {name: np.load(here / "own-c" / f"{name}.npy")[:6] for name in ("fog", "snow")}
    assert record["errors"] == pytest.approx(errors_of({k: (x, np.arange(6) % 3) for k, x in stored.items()}))
    assert record["spec"]["severity"] == 3 and record["spec"]["data"]["origin"] == "generated"
    assert record["spec"]["corruptions"] == ["fog", "snow"] and record["spec"]["data"]["name"] == "folder"
    named = record_of("run", "source", "folder", "--data", "own-c", "--model", "net.py:build", "--severity", 3, *QUICK)
    assert named["address"] == record["address"]
    assert "has the severities 3, 5" in said("run", "source", "own-c", "--model", "net.py:build", "--severity", 4)
    assert "snow" in said("run", "source", "own-c", "--model", "net.py:build", "--corruptions", "frost")


def test_a_run_reads_the_folders_that_corrupt_wrote_with_any_classes(here: Path) -> None:
    for number, name in enumerate(("cat", "dog", "emu")):
        picture(here / "own" / name / "1.png", number)
    words = ("--corruptions", "fog,contrast", "--severity", "2,5", "--format", "png", "--quiet")
    assert cli("corrupt", "own", "own-c", *words).exit_code == 0
    record = record_of("run", "source", "own-c", "--model", "net.py:build", "--severity", 2, *QUICK)

    def read(corruption: str) -> tuple[np.ndarray, np.ndarray]:
        files = [here / "own-c" / corruption / "2" / name / "1.png" for name in ("cat", "dog", "emu")]
        return np.stack([np.asarray(Image.open(file)) for file in files]), np.arange(3)

    assert record["errors"] == pytest.approx(errors_of({name: read(name) for name in ("fog", "contrast")}))
    assert record["spec"]["severity"] == 2 and record["spec"]["data"]["origin"] == "generated"
    # The same layout without the note of ctta corrupt.
    (here / "own-c" / "ctta-corrupt.json").unlink()
    other = record_of("run", "source", "own-c", "--model", "net.py:build", "--severity", 2, *QUICK)
    assert set(other["errors"]) == {"fog", "contrast"} and other["spec"]["data"]["origin"] == "unverified"
    picture(here / "own-c" / "fog" / "2" / "loose.png", 9)
    assert "loose.png is in no class folder" in said(
        "run", "source", "own-c", "--model", "net.py:build", "--severity", 2
    )


def test_a_run_reads_domains_of_class_folders_and_of_npz_files(here: Path) -> None:
    images = {}
    (here / "arrays").mkdir()
    for seed, domain in enumerate(("dusk", "noon")):
        x, y = pixels(seed, 3, 20, 18), np.arange(3)
        for number, name in enumerate("abc"):
            path = here / "folders" / domain / name / "0.png"
            path.parent.mkdir(parents=True)
            Image.fromarray(x[number]).save(path)
        np.savez(here / "arrays" / f"{domain}.npz", x=x, y=y)
        images[domain] = (x, y)
    expected = errors_of(images)
    for place in ("folders", "arrays"):
        record = record_of("run", "source", place, "--model", "net.py:build", *QUICK)
        assert record["errors"] == pytest.approx(expected) and list(record["errors"]) == ["dusk", "noon"]
        assert record["spec"]["severity"] is None
        back = record_of("run", "source", place, "--model", "net.py:build", "--corruptions", "noon,dusk", *QUICK)
        assert list(back["errors"]) == ["noon", "dusk"]
    alone = record_of("run", "source", "arrays/noon.npz", "--model", "net.py:build", *QUICK)
    assert alone["errors"] == pytest.approx({"noon": expected["noon"]})


def test_own_data_is_called_by_its_folder_and_a_run_says_which_label_each_class_folder_has(here: Path) -> None:
    for name in "bca":
        for domain in ("dusk", "noon"):
            picture(here / "birds" / domain / name / "0.png", ord(name))
    words = ("run", "source", "birds", "--model", "net.py:build", "--batch-size", "4")
    assert "labels: 0 a, 1 b, 2 c. If the model counts them otherwise, list its classes in classes.txt" in said_by(
        words
    )
    (here / "birds" / "classes.txt").write_text("c\na\nb\n")
    assert "labels: 0 c, 1 a, 2 b." in said_by(words)
    record = record_of(*words)
    assert (record["data_title"], record["class_names"]) == ("birds", ["c", "a", "b"])
    assert cli("report", "runs", "-o", "page.html").exit_code == 0
    page = (here / "page.html").read_text()
    assert "birds (unverified)" in page and "folder (unverified)" not in page and "c, a, b" in page
    assert "unverified: no published digest to compare with" in page


def said_by(words: Sequence[str]) -> str:
    result = cli(*words)
    assert result.exit_code == 0, result.output
    return result.stderr


def test_stored_order_is_the_order_of_the_files_and_a_fact_of_the_run(here: Path) -> None:
    labels = np.array([2, 2, 0, 1, 0, 1, 1])
    np.savez(here / "walk.npz", x=pixels(0, 7, 16, 16), y=labels)
    record = record_of("run", "source", "walk.npz", "--model", "net.py:build", "--order", "stored", *QUICK)
    usual = record_of("run", "source", "walk.npz", "--model", "net.py:build", *QUICK)
    assert record["spec"]["protocol"] == {"name": "continual", "order": "stored"}
    assert usual["spec"]["protocol"] == {"name": "continual"} and record["address"] != usual["address"]
    assert record["order"].startswith("as stored") and usual["order"].startswith("shuffled")
    job = make_job("source", "folder", "net.py:build", data=here / "walk.npz", batch_size=4, order="stored")
    assert torch.cat([batch.y for batch in open_stream(job.work)[0]]).tolist() == labels.tolist()
    compared = cli("compare", "runs")
    assert compared.exit_code == 1 and "differ in protocol" in compared.stderr
    for protocol in ("mixed", "correlated"):
        words = ("--protocol", protocol, "--order", "stored")
        assert "orders the images itself" in said("run", "source", "walk.npz", "--model", "net.py:build", *words)


def test_images_of_many_sizes_are_resized_with_side(here: Path) -> None:
    for number, name in enumerate("abc"):
        picture(here / "mixed" / "day" / name / "0.png", number, 20 + number, 30)
    assert "--side" in said("run", "source", "mixed", "--model", "net.py:build")
    record = record_of("run", "source", "mixed", "--model", "net.py:rigid", "--side", 16, *QUICK)
    assert record["spec"]["data"]["side"] == 16 and record["images"] == 3
    np.savez(here / "own.npz", x=pixels(0, 2, 16, 16), y=np.arange(2))
    assert "holds arrays" in said("run", "source", "own.npz", "--model", "net.py:rigid", "--side", 16)
    assert "one size already" in said("run", "source", "digits", "--side", 16)


def test_images_and_classes_that_do_not_fit_the_model_are_refused_before_the_run(here: Path) -> None:
    np.savez(here / "large.npz", x=pixels(0, 4, 20, 20), y=np.arange(4) % 3)
    assert "rigid cannot take the images of folder, 3 x 20 x 20" in said(
        "run", "bn", "large.npz", "--model", "net.py:rigid"
    )
    np.savez(here / "many.npz", x=pixels(0, 5, 16, 16), y=np.arange(5))
    assert "has 3 classes; folder has 5" in said("run", "bn", "many.npz", "--model", "net.py:build")
    assert "has 4 classes; folder has 5" in said("run", "source", "many.npz", "--model", "net.py:headless")
    for number, name in enumerate(("bee", "ant")):
        picture(here / "two" / "day" / name / "0.png", number)
    assert "has 3 classes; folder has 2. List all its classes" in said("run", "bn", "two", "--model", "net.py:build")
    (here / "two" / "classes.txt").write_text("bee\nelk\nant\n")
    job = make_job("source", "folder", "net.py:build", data=here / "two", batch_size=2, order="stored")
    assert [batch.y.tolist() for batch in open_stream(job.work)[0]] == [[2, 0]]
    assert record_of("run", "source", "two", "--model", "net.py:build", *QUICK)["images"] == 2
    (here / "two" / "classes.txt").write_text("bee\nelk\n")
    assert "'ant' is missing" in said("run", "source", "two", "--model", "net.py:build")
    (here / "two" / "classes.txt").write_text("bee\nant\nbee\n")
    assert "lists a class twice: 'bee'" in said("run", "source", "two", "--model", "net.py:build")


def test_a_path_without_images_is_explained(here: Path) -> None:
    (here / "hollow").mkdir()
    assert "hollow is empty. It must hold what ctta corrupt writes" in said(
        "run", "bn", "hollow", "--model", "net.py:build"
    )
    for name in ("fog", "labels"):
        np.save(here / "hollow" / f"{name}.npy", np.zeros(3, np.uint8))
    found = said("run", "bn", "hollow", "--model", "net.py:build")
    assert "hollow holds fog.npy, labels.npy. It must" in found and "cifar10-c --data hollow" in found
    assert "There is no file or folder" in said("run", "bn", "./nowhere", "--model", "net.py:build")
    assert "There is no file or folder" in said("run", "bn", "nowhere.npz", "--model", "net.py:build")
    assert "Leave out --data" in said("run", "bn", "hollow", "--data", "hollow", "--model", "net.py:build")
    needed = "folder needs --model. Only digits, cifar10-c and cifar10.1 have a bundled model."
    assert needed in said("run", "bn", "hollow")


@pytest.mark.parametrize("named", [True, False], ids=["registered", "by file"])
def test_one_file_outside_the_package_adds_a_dataset_and_a_protocol(
    outside: Path, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, protocol = f"{outside}:mydata", f"{outside}:mine"
    if named:
        monkeypatch.syspath_prepend(str(outside.parent))
        module = importlib.import_module("far_away")
        try:
            data, protocol = register(module.mydata).name, register_protocol(module.mine).name
        finally:
            del sys.modules["far_away"]
    words = ("run", "bn", data, "--protocol", protocol, "--model", "net.py:build", "--quiet")
    record = record_of(*words)
    code = hashlib.sha256(outside.read_bytes()).hexdigest()
    assert record["spec"]["protocol"] == {"name": "mine", "code": code}
    assert record["spec"]["data"]["name"] == "mydata" and record["spec"]["batch_size"] == 3
    # Six images of each colour, twice.
    assert {name: count["images"] for name, count in record["counts"].items()} == {"blue": 12, "green": 12, "red": 12}
    assert list(record["errors"]) == ["blue", "green", "red"] and record["order"] == "back to front, seed 0"
    assert str(outside.parent) not in json.dumps(record)
    (tent,) = [record_of(*words[:1], "tent", *words[2:])]
    assert tent["settings"]["lr"] == 0.5
    shown = json.loads(cli("ls", "streams", "--json").stdout)
    (row,) = [row for row in shown if row["stream"] == "mydata"]
    assert row["from"] == ("far_away" if named else "far_away.py") and "three colours" in row["use"]
    (row,) = [row for row in json.loads(cli("ls", "protocols", "--json").stdout) if row["protocol"] == "mine"]
    assert row["from"] == ("far_away" if named else "far_away.py") and row["summary"] == "twice, back to front"
    compared = cli("compare", "runs")
    assert compared.exit_code == 0 and "lr=" not in compared.stdout
    assert cli("report", "runs", "--out", "page.html").exit_code == 0


def test_installed_packages_add_datasets_and_protocols(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = outside.parent / "site" / "far_out-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: far-out\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[ctta.datasets]\nmydata = far_away:mydata\nbroken = far_away:absent\n[ctta.protocols]\nmine = far_away:mine\n"
    )
    for registry in (DATASETS, PROTOCOLS):
        monkeypatch.setattr(registry, "_plugins", None)
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.syspath_prepend(str(outside.parent))
    try:
        rows = {row["stream"]: row for row in json.loads(cli("ls", "streams", "--json").stdout)}
        assert rows["mydata"]["from"] == rows["broken"]["from"] == "far-out 1.2"
        assert "PluginError" in rows["broken"]["use"]
        record = record_of("run", "bn", "mydata", "--protocol", "mine", "--model", "net.py:build", "--quiet")
        assert record["images"] == 36 and record["spec"]["data"]["name"] == "mydata"
    finally:
        sys.modules.pop("far_away", None)


def test_an_experiment_runs_on_data_that_the_paper_does_not_use(outside: Path) -> None:
    words = ("--methods", "source,bn", "--model", "net.py:build", "--quiet", "--json")
    result = cli("reproduce", "main", f"{outside}:mydata", *words)
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert [row["paper"] for row in shown["rows"]] == [None, None]
    assert list(shown["rows"][0]["domains"]) == ["red", "green", "blue"]
    assert shown["notes"][0] == "OTHER DATA: mydata, which the paper does not use." and len(shown["notes"]) == 2
    assert "needs --model" in said("reproduce", "main", f"{outside}:mydata")
    assert "imagenet-c-5k and imagenet-c-50k" in said("reproduce", "main", "imagenet-c")
    assert "Did you mean 'cifar10-c'" in said("reproduce", "main", "cifar10c")


def test_a_toml_file_names_own_data_and_protocols(outside: Path) -> None:
    (outside.parent / "run.toml").write_text(
        f'command = "run"\nmethod = "source"\nstream = "{outside}:mydata"\nprotocol = "{outside}:mine"\n'
        'model = "net.py:build"\norder = "stored"\njson = true\nquiet = true\n'
    )
    result = cli("do", "run.toml")
    assert result.exit_code == 0, result.output
    (record,) = json.loads(result.stdout)
    assert record["spec"]["protocol"]["order"] == "stored" and record["images"] == 36
    assert "far_away.py:mydata" in record["command"] and str(outside.parent) not in record["command"]


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("cifar10c", UnknownStream, "Did you mean 'cifar10-c'"),
        ("{file}:absent", UserCodeError, "has no 'absent'"),
        ("{file}:number", ParameterError, r"must be a ctta\.datasets\.Dataset; .* is int"),
        ("{file}:taken", ParameterError, "name of the built-in dataset 'digits'"),
    ],
)
def test_what_is_not_a_dataset_is_refused(outside: Path, name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        get_dataset(name.format(file=outside))


def test_what_is_not_a_protocol_is_refused(outside: Path) -> None:
    with pytest.raises(UnknownProtocol, match="Did you mean 'gradual'"):
        get_protocol("gradul")
    with pytest.raises(ParameterError, match=r"must be a ctta\.protocol\.Protocol"):
        get_protocol(f"{outside}:mydata")
    with pytest.raises(ParameterError, match="built-in protocol 'mixed'"):
        register_protocol(Protocol("mixed", lambda parts: None))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"name": "my data"}, "letters, digits"),
        ({"open": None}, "needs open or clean"),
        ({"classes": 0}, "classes .* at least 1"),
        ({"batch_size": 2.5}, "batch_size .* at least 1"),
    ],
)
def test_a_dataset_that_cannot_be_one_is_refused(facts: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        Dataset(**{"name": "mine", "open": lambda wanted: []} | facts)


def test_a_dataset_must_open_domains(outside: Path) -> None:
    for given in ([], ["red"]):
        register(Dataset("odd", lambda wanted, given=given: given))  # type: ignore[misc]
        with pytest.raises(BadData, match=r"must open a list of at least one ctta\.streams\.Domain"):
            open_stream(make_job("source", "odd", "net.py:build").work)


def test_a_stream_is_a_name_a_target_or_a_path(here: Path) -> None:
    (here / "digits").mkdir()
    (here / "own").mkdir()
    assert locate("digits", None) == ("digits", None)
    assert locate("./digits", None) == ("folder", Path("digits"))
    assert locate("own", None) == ("folder", Path("own"))
    assert locate("own.py:data", Path("own")) == ("own.py:data", Path("own"))
    with pytest.raises(MissingData, match="no file or folder"):
        locate("other/", None)
    with pytest.raises(UnknownStream, match="is not a known stream"):
        locate("a" * 300, None)  # longer than the name of a file may be


def test_names_and_numbers_that_are_written_without_torch_are_those_of_the_code() -> None:
    assert tuple(FUNCTIONS) == CORRUPTIONS + HELD_OUT
    gradual = get_protocol("gradual")
    assert gradual.visits == len(GRADUAL) and gradual.severities == tuple(sorted(set(GRADUAL)))
    assert f"a Dirichlet of {CONCENTRATION}, seed 7" in order_text({"name": "correlated"}, 7)


def test_the_protocol_of_a_record_that_is_not_known_here_is_read_all_the_same() -> None:
    assert order_text({"name": "from elsewhere"}, 2).startswith("shuffled within a domain with seed 2")


def test_a_path_that_does_not_exist_is_said_to_be_missing_with_one_of_similar_name(here: Path) -> None:
    for name in ("photo", "notes"):
        (here / name).mkdir()
    np.savez(here / "evening.npz", x=pixels(0, 2, 16, 16), y=[0, 1])
    for command in (("run", "bn"), ("reproduce", "main")):
        words = said(*command, "photos", "--model", "net.py:build")
        assert "'photos' is not a known stream." in words
        assert f"There is no file or folder {here / 'photos'}. Did you mean the path photo?" in words
    assert "Did you mean the path evening.npz?" in said("run", "bn", "evenings.npz", "--model", "net.py:build")
    assert "the path" not in said("run", "bn", "elsewhere", "--model", "net.py:build")


def test_a_folder_of_classes_without_domains_is_recognised(here: Path) -> None:
    for number, name in enumerate("abc"):
        picture(here / "photos" / name / "0.png", number, 16, 16)
    words = said("run", "source", "photos", "--model", "net.py:build")
    assert f"{here / 'photos'} looks like class/*: the images are directly in a/." in words
    assert "Move its class folders into a folder named after their domain, such as photos/domain/a/." in words
