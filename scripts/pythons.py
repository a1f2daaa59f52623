"""Check the package with other Python versions, for which torch may not be available: `make pythons`.

python scripts/pythons.py 3.10 3.13

For each version: every file compiles, mypy accepts the types, and the tests that do not need torch pass in a separate
virtual environment (.venv-3.10, ...). For a version that is not installed, only the types are checked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).parent.parent
TESTS = "tests/without_torch"
TOOLS = ["pytest", "pytest-timeout"]


def main(versions: list[str]) -> int:
    """Check every version, and return the number of versions that failed."""
    failed = [version for version in versions if not all(check(version))]
    for version in failed:
        print(f"Python {version}: FAILED")  # noqa: T201
    return len(failed)


def check(version: str) -> list[bool]:
    """Return, for each check, whether it passed."""
    say(version, "types")
    # The packages of this environment may use types that an older Python lacks: mypy then sees Any.
    types = [
        "-m",
        "mypy",
        "--strict",
        "--no-warn-return-any",
        "--no-warn-unused-ignores",
        "--python-version",
        version,
        "src",
    ]
    passed = [run(sys.executable, *types)]
    python = find(version)
    if python is None:
        say(version, "not installed; only the types were checked")
        return passed
    say(version, f"compiling with {python}")
    with_cache = {"PYTHONPYCACHEPREFIX": str(ROOT / f".venv-{version}" / "compiled")}
    folders = ["src", "tests", "examples", "benchmarks"]
    passed.append(run(python, "-W", "error", "-m", "compileall", "-q", "-f", *folders, **with_cache))
    say(version, "tests that do not need torch")
    inside = environment(version, python)
    passed.append(run(inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS, PYTHONPATH=str(ROOT / "src")))
    return passed


def find(version: str) -> str | None:
    """Find an interpreter of a version, on the path or installed by pyenv."""
    candidates = [shutil.which(f"python{version}")]
    if pyenv := shutil.which("pyenv"):
        root = Path(subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip())
        candidates += [str(path) for path in sorted(root.glob(f"versions/{version}.*/bin/python{version}"))]
    for candidate in candidates:
        # pyenv's shim exists, but fails, if the version is not active.
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def environment(version: str, python: str) -> str:
    """Create a virtual environment with every dependency except torch, and return its interpreter."""
    folder = ROOT / f".venv-{version}"
    inside = folder / "bin" / "python"
    if not inside.exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [line for line in project["dependencies"] if re.match(r"[\w-]+", line)[0] != "torch"]  # type: ignore[index]
    subprocess.run([inside, "-m", "pip", "install", "--quiet", *needed, *TOOLS], check=True)
    return str(inside)


def run(*command: str, **variables: str) -> bool:
    """Run a command from the root of the project, and return whether it succeeded."""
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False).returncode == 0


def say(version: str, what: str) -> None:
    """Print what is checked next."""
    print(f"Python {version}: {what}", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["3.10", "3.13"]))
