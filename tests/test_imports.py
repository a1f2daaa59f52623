"""Importing is fast because heavy modules are loaded on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ctta


def loaded_after(program: str) -> set[str]:
    code = f"{program}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_import_ctta_loads_neither_torch_nor_anything_else_that_is_installed() -> None:
    assert not loaded_after("import ctta") & {"torch", "numpy", "PIL", "safetensors", "typer", "rich", "sklearn"}


def test_a_method_loads_torch_and_no_other_heavy_package() -> None:
    before, after = loaded_after("import torch"), loaded_after("import ctta; ctta.DMSE")
    heavy = {
        "sklearn",
        "scipy",
        "matplotlib",
        "PIL",
        "ray",
        "tensorboard",
        "mlflow",
        "wandb",
        "torchvision",
        "timm",
        "transformers",
        "typer",
    }
    assert "torch" in after
    assert not (after - before) & heavy


def test_the_digits_are_read_without_loading_the_package_that_they_come_with() -> None:
    pytest.importorskip("sklearn")
    assert not loaded_after("from ctta.datasets.digits import digits; digits()") & {"sklearn", "scipy"}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--help"], 0, "Continual test-time adaptation"),
        (["run", "--help"], 0, "--device"),
        (["ls", "methods"], 0, "dmse"),
        (["ls", "models"], 0, "digits_resnet8"),
        (["rnu"], 2, "Did you mean 'run'?"),
        (["run", "dsme", "digits"], 1, "UnknownMethod: 'dsme' is not a known method. Did you mean 'dmse'?"),
        (["run", "tent", "digits", "--model", "digits_resnet9"], 1, "Did you mean 'digits_resnet8'?"),
        (["demo", "--methods", "dsme"], 1, "Did you mean 'dmse'?"),
        (["ls", "streams"], 0, "digits"),
        (["ls", "protocols"], 0, "gradual"),
        (["run", "bn", "digit"], 1, "UnknownStream: 'digit' is not a known stream. Did you mean 'digits'?"),
        (["run", "bn", "./nowhere"], 1, "There is no file or folder"),
        (["run", "bn", "digits", "--protocol", "mxed"], 1, "Did you mean 'mixed'?"),
        (["reproduce", "main", "digit"], 1, "Did you mean 'digits'?"),
        (["reproduce", "main", "digits", "--methods", "dsme"], 1, "Did you mean 'dmse'?"),
    ],
)
def test_help_lists_and_typing_errors_do_not_import_torch(words: list[str], code: int, said: str) -> None:
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from ctta.cli import app\n"
        f"result = CliRunner().invoke(app, {words!r})\n"
        f"assert result.exit_code == {code} and {said!r} in result.output, result.output\n"
        "sys.exit(sum(name in sys.modules for name in ('torch', 'numpy', 'sklearn', 'matplotlib', 'PIL', 'ray')))"
    )
    child = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr


def test_a_reader_that_has_seen_enough_ends_the_command_quietly() -> None:
    # The pipe is closed before the command writes to it.
    program = "import os; r, w = os.pipe(); os.close(r); os.dup2(w, 1); from ctta.cli import main; main()"
    words = [sys.executable, "-c", program, "ls", "methods"]
    ended = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_the_package_runs_as_a_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "ctta", "--version"], check=True, capture_output=True, text=True)
    assert shown.stdout == f"ctta {ctta.__version__}\n"
