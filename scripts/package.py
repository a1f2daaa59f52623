"""Build the package, check its metadata, and try the wheel in a fresh environment outside the source tree.

python scripts/package.py [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Tests of the installed package that take seconds: equations, vectors, commands and the public surface.
FAST_TESTS = (
    "test_conformance.py",
    "test_conformance_more_a.py",
    "test_conformance_more_b.py",
    "test_functional.py",
    "test_imports.py",
    "test_light_commands.py",
    "cli/test_run_command.py",
    "streams/test_digits.py",
)


def main() -> None:
    """Build, check and try the package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="Folder for the built files; by default they are deleted.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ctta-package-") as made:
        folder = Path(made)
        built = asked.keep or folder / "dist"
        run(sys.executable, "-m", "build", "--outdir", str(built), str(ROOT))
        files = sorted(map(str, built.glob("ctta-*")))
        run(sys.executable, "-m", "twine", "check", "--strict", *files)
        (source,) = (file for file in files if file.endswith(".tar.gz"))
        check_contents(source)
        (wheel,) = (file for file in files if file.endswith(".whl"))
        try_out(wheel, folder)


def check_contents(source: str) -> None:
    """Check that a source package has everything that builds a wheel, and no record, vector or cache.

    Args:
        source: The source package.
    """
    with tarfile.open(source) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    needed = {"src/ctta/__init__.py", "src/ctta/data/methods.json", "pyproject.toml", "hatch_build.py", "LICENSE"}
    # Build back ends always add the .gitignore that they read.
    unwanted = {name for name in names if name.startswith((".", "tests", "docs/results/")) and name != ".gitignore"}
    unwanted |= {name for name in names if name.endswith((".npz", ".jsonl", ".gz", ".pyc"))}
    if needed - names or unwanted:
        sys.exit(f"{Path(source).name} lacks {sorted(needed - names)} and must not have {sorted(unwanted)[:10]}")


def try_out(wheel: str, folder: Path) -> None:
    """Install a wheel into a fresh environment, and run the demo and the fast tests there, away from the sources.

    Args:
        wheel: The wheel.
        folder: An empty folder outside the tree.
    """
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    constraints = str(ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", "--quiet", "-c", constraints, f"{wheel}[test]")
    shutil.copytree(ROOT / "tests", folder / "tests")
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = tests\nfilterwarnings = error\n")
    demo = [python, "-m", "ctta", "demo", "--methods", "source,bn,dmse", "--images", "100", "--quiet"]
    run(*demo, cwd=folder)
    run(python, "-m", "pytest", "-q", *(f"tests/{name}" for name in FAST_TESTS), cwd=folder)


def run(*command: str, cwd: Path | None = None) -> None:
    """Run a command; if it fails, this script fails too.

    Args:
        command: The program and its arguments.
        cwd: Where to run it.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, check=True, cwd=cwd, env=environment | {"OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
