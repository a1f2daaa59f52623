"""The user's own code may print, raise or exit; each of these is reported by name."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from torch import Tensor, nn
from typer.testing import CliRunner

import ctta
from ctta._system.imports import load_module, load_object, user_code
from ctta.cli import app
from ctta.doctor import examine
from ctta.errors import UserCodeError
from ctta.nets import by_name

GOOD = """
from __future__ import annotations
import os
import sys
from dataclasses import dataclass
from torch import nn
print("printed while importing")
os.system("echo printed by a child process")

@dataclass
class Sizes:
    hidden: int = 4

class Loud(nn.Sequential):
    def forward(self, x):
        print("printed by the forward pass")
        return super().forward(x)

def build():
    print("printed by the factory")
    sys.__stdout__.write("written to the first stdout")
    h = Sizes().hidden
    return Loud(nn.Conv2d(3, h, 3), nn.BatchNorm2d(h), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(h, 7))
"""


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys\nsys.exit(0)", r"called sys.exit\(0\) \(mine.py, line 2\)"),
        ("raise SystemExit", r"called sys.exit\(None\)"),
        ("\n\n1 / 0", r"raised ZeroDivisionError: division by zero \(mine.py, line 3\)"),
        ("import no_such_dependency", "raised ModuleNotFoundError: No module named 'no_such_dependency'"),
        ("def broken(:", "raised SyntaxError"),
        ("class Stop(BaseException): pass\nraise Stop", "raised Stop: no message"),
        ("class Bad(Exception):\n  def __str__(self): return 1\nraise Bad", "a message that cannot be printed"),
        ("def __getattr__(name): raise RuntimeError('lazy ' + name)", "raised RuntimeError: lazy net"),
    ],
)
def test_what_a_bad_module_did_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserCodeError, match=words):
        load_object(f"{written(tmp_path, text)}:net")


@pytest.mark.parametrize("target", ["", ":net", ".net:x", "mine", "json:", "a b:c", "json:dumps.no", "\0.py:x", "é:x"])
def test_a_target_that_leads_nowhere_is_a_named_error(target: str) -> None:
    with pytest.raises(UserCodeError):
        load_object(target)


def test_a_file_that_is_not_text_is_a_named_error(tmp_path: Path) -> None:
    path = tmp_path / "binary.py"
    path.write_bytes(b"\x00\xff\xfe")
    with pytest.raises(UserCodeError, match=r"binary\.py raised"):
        load_object(f"{path}:x")


def test_a_file_is_run_once_until_it_changes(tmp_path: Path) -> None:
    path = written(tmp_path, "value = [1]")
    first = load_object(f"{path}:value")
    assert load_object(f"{path}:value") is first
    written(tmp_path, "value = [1, 2]")
    assert load_object(f"{path}:value") == [1, 2]


def test_a_file_named_as_a_module_in_use_does_not_replace_it(tmp_path: Path) -> None:
    assert load_object(f"{written(tmp_path, 'dumps = 3', 'json.py')}:dumps") == 3
    assert sys.modules["json"] is json


def test_a_file_named_as_a_module_not_imported_yet_does_not_replace_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("installed", "own"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, f"value = {folder!r}", "not_imported_yet.py")
    monkeypatch.syspath_prepend(tmp_path / "installed")
    assert load_object(f"{tmp_path / 'own' / 'not_imported_yet.py'}:value") == "own"
    assert importlib.import_module("not_imported_yet").value == "installed"


def test_a_file_in_a_folder_that_is_searched_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = load_module(str(written(tmp_path, "", "found_by_its_name.py")))
    assert importlib.import_module("found_by_its_name") is module


def test_a_failed_import_leaves_nothing_behind(tmp_path: Path) -> None:
    path = written(tmp_path, "1 / 0", "fails_at_once.py")
    before = list(sys.path)
    with pytest.raises(UserCodeError):
        load_module(str(path))
    assert "fails_at_once" not in sys.modules and sys.path == before


def test_a_function_imports_the_neighbours_of_its_file_when_it_builds_a_model(tmp_path: Path) -> None:
    written(tmp_path, "size = 5", "late_neighbour.py")
    build = "def build():\n    from torch import nn\n    from late_neighbour import size\n    return nn.Linear(size, 2)"
    model = by_name.own_model(f"{written(tmp_path, build)}:build")
    assert isinstance(model, nn.Linear) and model.in_features == 5
    assert str(tmp_path) not in sys.path


def test_a_file_imports_its_neighbours(tmp_path: Path) -> None:
    written(tmp_path, "size = 5", "neighbour_of_mine.py")
    assert load_object(f"{written(tmp_path, 'from neighbour_of_mine import size')}:size") == 5


def test_ctrl_c_is_not_an_error_of_the_user_code() -> None:
    with pytest.raises(KeyboardInterrupt), user_code("Waiting"):
        raise KeyboardInterrupt


def test_doctor_keeps_what_a_model_prints_out_of_its_json(tmp_path: Path) -> None:
    target = f"{written(tmp_path, GOOD)}:build"
    command = [
        sys.executable,
        "-c",
        "from ctta.cli import main; main()",
        "doctor",
        target,
        "--json",
        "--image-size",
        "8",
        "--method",
        "bn",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_classes"] == 7
    for words in ("while importing", "by a child", "by the forward pass", "by the factory", "to the first stdout"):
        assert words in done.stderr


def test_exiting_inside_a_model_file_is_not_success(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", f"{written(tmp_path, 'import sys; sys.exit(0)')}:build", "--json"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("UserCodeError: Importing mine.py called sys.exit(0)")


def test_a_forward_pass_that_exits_is_reported_for_the_method() -> None:
    class Exits(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            sys.exit(0)

    reports = {
        report.name: report for report in examine(Exits(3, 3), image_size=8, among={"source": ctta.Source}).methods
    }
    assert str(reports["source"].refusal).startswith("SystemExit")


MISBEHAVES = """
import atexit, sys, threading
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.BatchNorm2d(3), nn.Linear(3, 10)
    def forward(self, x):
        return self.fc(self.norm(x).mean((2, 3)))

class Copied(Net):
    def __deepcopy__(self, memo): sys.exit(0)
class Moved(Net):
    def to(self, *args, **kwargs): sys.exit(0)
class Listed(Net):
    def parameters(self, recurse=True): raise RuntimeError("no parameters")
class Run(Net):
    def forward(self, x): sys.exit(0)
class Evil(BaseException):
    def __str__(self): raise ValueError
class Raises(Net):
    def forward(self, x): raise Evil
copied = Copied()

def chat():
    threading.main_thread().join()
    print("printed by a thread")

def loud():
    atexit.register(print, "printed at exit")
    threading.Thread(target=chat).start()
    return Net()
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("copied", "UserCodeError: Copying .* called sys.exit(0) (mine.py, line 13)"),
        ("Moved", "UserCodeError: Examining .* called sys.exit(0) (mine.py, line 15)"),
        ("Listed", "UserCodeError: Examining .* raised RuntimeError: no parameters (mine.py, line 17)"),
    ],
)
def test_code_that_runs_when_a_model_is_copied_moved_or_read_is_named(tmp_path: Path, name: str, words: str) -> None:
    target = f"{written(tmp_path, MISBEHAVES)}:{name}"
    done = CliRunner().invoke(app, ["doctor", target, "--json"])
    assert (done.exit_code, done.stdout) == (1, "")
    start, end = words.split(".*")
    assert done.stderr.startswith(start) and end in done.stderr


@pytest.mark.parametrize(
    ("name", "words"), [("Run", "SystemExit: 0"), ("Raises", "Evil: a message that cannot be printed")]
)
def test_a_model_that_no_method_can_run_is_reported_and_is_not_success(tmp_path: Path, name: str, words: str) -> None:
    target = f"{written(tmp_path, MISBEHAVES)}:{name}"
    done = CliRunner().invoke(app, ["doctor", target, "--image-size", "8", "--method", "tent,bn", "--json"])
    assert done.exit_code == 1
    assert [report["refusal"] for report in json.loads(done.stdout)["methods"]] == [words, words]


def test_a_run_that_its_model_ends_is_named_and_is_not_success(tmp_path: Path) -> None:
    command = ["run", "tent", "digits", "--model", f"{written(tmp_path, MISBEHAVES)}:Run", "--json", "--quiet"]
    done = CliRunner().invoke(app, [*command, "--images", "16", "--out", str(tmp_path / "runs")])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "The run of tent with seed 0 called sys.exit(0) (mine.py, line 19)" in done.stderr


def test_what_threads_and_functions_at_exit_print_stays_out_of_the_json(tmp_path: Path) -> None:
    target = f"{written(tmp_path, MISBEHAVES)}:loud"
    main = [sys.executable, "-c", "from ctta.cli import main; main()"]
    command = [*main, "doctor", target, "--json", "--method", "bn"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"] == "Net"
    assert "printed at exit" in done.stderr and "printed by a thread" in done.stderr
