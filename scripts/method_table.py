"""Write the facts about the built-in methods, from the files in src/ctta/methods.

src/ctta/methods/__init__.py exports them, and src/ctta/data/methods.json has their facts. A method file exports its
public adapters, or what its own ``__all__`` names.

python scripts/method_table.py            write the files
python scripts/method_table.py --check    write nothing; exit 1 if a file is out of date
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import ctta.methods
from ctta._system.files import write_atomically
from ctta.adapter import Adapter
from ctta.method_table import PATH, facts_of

EXPORTS = Path(ctta.methods.__file__)


def exported() -> dict[str, list[str]]:
    """Return the names that each module of a method exports."""
    found = {}
    for name in sorted(module.name for module in iter_modules(ctta.methods.__path__)):
        if name.startswith("_"):
            continue
        module = import_module(f"ctta.methods.{name}")
        own = [key for key, value in vars(module).items() if _is_method(value) and value.__module__ == module.__name__]
        found[module.__name__] = sorted(getattr(module, "__all__", own), key=_order)
    return found


def table() -> str:
    """Return the content that methods.json should have."""
    values = [getattr(import_module(module), name) for module, names in exported().items() for name in names]
    classes = {cls.__name__.lower(): cls for cls in values if _is_method(cls)}
    rows = [asdict(facts_of(name, classes[name])) for name in sorted(classes)]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def exports() -> str:
    """Return the content that methods/__init__.py should have."""
    imports = [f"from {module} import {', '.join(names)}" for module, names in exported().items()]
    names = sorted((name for names in exported().values() for name in names), key=_order)
    return "\n".join(
        [
            '"""The methods, one file per paper."""',
            "",
            "# Written by scripts/method_table.py.",
            *imports,
            "",
            "__all__ = [",
            *(f'    "{name}",' for name in names),
            "]",
            "",
        ]
    )


def main(arguments: list[str]) -> int:
    """Write or check the files."""
    wanted = {EXPORTS: exports(), PATH: table()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        return 1 if stale else 0
    for path in stale:
        write_atomically(path, wanted[path].encode())
    return 0


def _is_method(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Adapter) and value is not Adapter


def _order(name: str) -> tuple[int, str]:
    """Sort names as ruff does: constants, then classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
