"""Importing is fast because what is heavy comes on first use."""

from __future__ import annotations

import subprocess
import sys


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
        "torchvision",
        "timm",
        "transformers",
        "typer",
    }
    assert "torch" in after
    assert not (after - before) & heavy


def test_the_command_line_helps_without_torch() -> None:
    program = """
import sys
from ctta.cli import main
sys.argv = ["ctta", "--help"]
try:
    main()
except SystemExit:
    pass
print()
"""
    assert not loaded_after(program) & {"torch", "numpy", "sklearn", "matplotlib", "PIL", "ray"}
