"""Commands that only read records import neither torch nor matplotlib."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ctta.method_table import built_in
from ctta.registry import methods
from run_folders import make_run

PROGRAM = """
import sys
from ctta.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print()
print(*{name.partition(".")[0] for name in sys.modules})
"""


@pytest.mark.parametrize("command", [["compare"], ["compare", "--format", "latex"], ["report", "--out", "page.html"]])
def test_records_are_read_without_torch(command: list[str], tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "tent")
    make_run(tmp_path / "runs", "dmse", seed=1)
    shown = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command, "runs"], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    loaded = set(shown.stdout.splitlines()[-1].split())
    assert "ctta" in loaded and not loaded & {"torch", "numpy", "matplotlib", "sklearn", "PIL"}


def test_the_table_of_methods_holds_the_recipes_of_their_classes() -> None:
    classes = {name: cls for name, cls in methods().items() if cls.__module__.startswith("ctta.methods")}
    assert {name: facts.recipes for name, facts in built_in().items()} == {n: c.recipes for n, c in classes.items()}
