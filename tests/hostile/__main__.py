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


def scripts() -> dict[str, ModuleType]:
    names = [path.stem for path in sorted(Path(__file__).parent.glob("[!_]*.py")) if not path.stem.startswith("test_")]
    modules = {name: importlib.import_module(f"hostile.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "LONG") and hasattr(module, "main")}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hostile", description="Run the long forms of the hostile tests.")
    parser.add_argument("names", nargs="*", help="scripts; default: all")
    parser.add_argument("--count", type=int, help="default: the long count of each script")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    known, failed = scripts(), []
    for name in asked.names or known:
        begin = time.monotonic()
        try:
            known[name].main(asked.count or known[name].LONG, asked.seed)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        print(f"{name}: {'FAILED' if name in failed else 'passed'} in {time.monotonic() - begin:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
