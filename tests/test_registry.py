"""Names of methods: built in, registered, from plug-ins, and from the user's own files."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch import Tensor, nn
from typer.testing import CliRunner

import ctta
from ctta.cli import app
from ctta.errors import ParameterError, PluginError, UnknownMethod, UserCodeError
from ctta.method_table import PATH, built_in
from ctta.registry import METHODS, Registry, methods
from reference import net

ROOT = Path(__file__).resolve().parent.parent

METHOD = """
import ctta
from ctta.norms import norm_affine

class Halved(ctta.Tent):
    \"\"\"Tent with half of its logits.\"\"\"

class Tent(ctta.Adapter):
    pass

number = 3
"""


@pytest.fixture
def method_file(tmp_path: Path) -> Path:
    path = tmp_path / "own_methods.py"
    path.write_text(METHOD)
    return path


def install(folder: Path, *lines: str, module: str = METHOD, group: str = "ctta.methods") -> None:
    """Create a distribution with entry points, as pip would install it in a folder."""
    info = folder / "far_out-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: far-out\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n" + "\n".join(lines) + "\n")
    (folder / "far_out_methods.py").write_text(module)


def in_child(folder: Path, program: str) -> str:
    paths = os.pathsep.join([str(folder), *sys.path])
    child = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout


def test_the_table_of_methods_is_fresh() -> None:
    spec = importlib.util.spec_from_file_location("method_table_script", ROOT / "scripts" / "method_table.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.table() == PATH.read_text(encoding="utf-8"), "run: python scripts/method_table.py"
    assert script.exports() == script.EXPORTS.read_text(encoding="utf-8"), "run: python scripts/method_table.py"


def test_every_built_in_method_is_a_name_of_the_package() -> None:
    assert {
        getattr(ctta, cls.__name__) for cls in methods().values() if cls.__module__.startswith("ctta.methods.")
    } == {cls for name, cls in methods().items() if name in built_in()}
    assert {cls.__name__ for name, cls in methods().items() if name in built_in()} <= set(ctta.__all__)


def test_ls_shows_of_a_method_what_its_class_says() -> None:
    rows = {row["method"]: row for row in json.loads(CliRunner().invoke(app, ["ls", "methods", "--json"]).stdout)}
    for name, cls in ((name, cls) for name, cls in methods().items() if name in built_in()):
        assert rows[name]["learns"] == (cls.trains if cls.learns else "nothing")
        assert rows[name]["passes"] == "{} forward, {} backward".format(*cls.passes)
        assert rows[name]["summary"] in " ".join(str(cls.__doc__).split())
        assert rows[name]["from"] == "built in"


def test_method_is_an_alias_of_get_method_and_case_does_not_matter() -> None:
    assert ctta.method is ctta.get_method
    assert ctta.get_method("DMSE") is ctta.get_method("dmse") is ctta.DMSE
    with pytest.raises(UnknownMethod, match="Did you mean 'tent'"):
        ctta.get_method("tnet")


def test_every_method_is_listed_once() -> None:
    names = ctta.list_methods()
    assert len(names) == len(set(names)) and set(names) >= set(built_in())


def test_a_class_of_ones_own_file_is_a_method_and_its_checkpoint_can_be_loaded(
    method_file: Path, tmp_path: Path
) -> None:
    cls = ctta.get_method(f"{method_file}:Halved")
    assert cls.__name__ == "Halved" and ctta.get_method(f"{method_file}:Halved") is cls
    source = ctta.Classifier(net())
    cls(source).save(tmp_path / "state.ctta")
    assert type(ctta.Adapter.load(tmp_path / "state.ctta", source)) is cls
    entry = METHODS.find("halved")
    assert entry is not None and entry.origin == "own_methods.py"


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        ("{file}:Absent", UserCodeError, "has no 'Absent'"),
        ("{file}:number", ParameterError, "must be a subclass of ctta.Adapter.* is 3"),
        ("{file}:Tent", ParameterError, "has the name of a built-in method"),
        ("{file}", UserCodeError, "names no object"),
        ("absent.py:Mine", UserCodeError, "no Python file"),
        ("ctta:Adapter", ParameterError, "must be a subclass"),
    ],
)
def test_what_is_not_a_method_is_refused_by_name(
    method_file: Path, target: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ctta.get_method(target.format(file=method_file))


def test_registering_cannot_replace_a_built_in_method() -> None:
    with pytest.raises(ParameterError, match="name of a built-in method"):

        @ctta.register
        class DMSE(ctta.Adapter):
            pass


def test_a_registered_method_is_found_and_named_after_its_module() -> None:
    @ctta.register
    class OnlyHere(ctta.Adapter):
        def __init__(self, model: nn.Module) -> None:
            super().__init__(model)
            self.begin(())

        def adapt(self, x: Tensor) -> ctta.Step:
            return ctta.Step(self.student(x))

    try:
        assert ctta.get_method("onlyhere") is OnlyHere
        entry = METHODS.find("onlyhere")
        assert entry is not None and entry.origin == __name__
    finally:
        METHODS._own.pop("onlyhere")


def test_a_plug_in_is_listed_with_its_distribution_and_imported_only_when_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "halved = far_out_methods:Halved", "gone = far_out_methods:Gone")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry: Registry[object] = Registry(UnknownMethod, "ctta.methods", lambda value, _: value)
    assert registry.names() == ["halved", "gone"] and "far_out_methods" not in sys.modules
    entry = registry.find("HALVED")
    assert entry is not None and entry.origin == "far-out 1.2"
    assert getattr(registry.get("halved"), "__name__", "") == "Halved"
    with pytest.raises(PluginError, match=r"the method 'gone' of far-out 1\.2 raised AttributeError"):
        registry.get("gone")
    with pytest.raises(UnknownMethod, match="Did you mean 'halved'"):
        registry.get("halve")


def test_ls_shows_a_broken_plug_in_with_its_error(tmp_path: Path) -> None:
    install(tmp_path, "halved = far_out_methods:Halved", "gone = far_out_methods:Gone", "tent = far_out_methods:Tent")
    program = "import sys\nfrom ctta.cli import main\nsys.argv = ['ctta', 'ls', 'methods', '--json']\nmain()"
    rows = {row["method"]: row for row in json.loads(in_child(tmp_path, program))}
    assert rows["halved"]["from"] == "far-out 1.2" and rows["halved"]["summary"] == "Tent with half of its logits."
    assert rows["gone"]["from"] == "far-out 1.2" and "AttributeError" in rows["gone"]["summary"]
    assert rows["tent"]["from"] == "built in"
