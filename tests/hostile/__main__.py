"""Run the long form of every script in this folder: modules that have `LONG`, a count, and `main(count, seed)`.

A script prints what it found and raises AssertionError where something happened that must never happen.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType


def names() -> list[str]:
    """The modules of this folder that are not tests of short forms."""
    return [path.stem for path in sorted(Path(__file__).parent.glob("[!_]*.py")) if not path.stem.startswith("test_")]


def scripts(chosen: list[str]) -> dict[str, ModuleType]:
    """Import the modules that were chosen, or all, and return those that are scripts."""
    modules = {name: importlib.import_module(f"hostile.{name}") for name in chosen or names()}
    return {name: module for name, module in modules.items() if hasattr(module, "LONG") and hasattr(module, "main")}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hostile", description="Run the long forms of the hostile tests.")
    parser.add_argument("names", nargs="*", help="scripts; default: all")
    parser.add_argument("--count", type=int, help="default: the long count of each script")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(names()):
        parser.error(f"no such script: {', '.join(sorted(unknown))}")
    failed = []
    for name, script in scripts(asked.names).items():
        begin = time.monotonic()
        try:
            script.main(asked.count or script.LONG, asked.seed)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        print(f"{name}: {'FAILED' if name in failed else 'passed'} in {time.monotonic() - begin:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
