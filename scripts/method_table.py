"""Write src/ctta/data/methods.json, the facts of the built-in methods, from their classes.

python scripts/method_table.py            write the file
python scripts/method_table.py --check    write nothing; exit 1 if the file is out of date
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import ctta.methods
from ctta._system.files import write_atomically
from ctta.adapter import Adapter
from ctta.method_table import PATH, facts_of


def table() -> str:
    """Return the content the file should have."""
    exported = [getattr(ctta.methods, name) for name in ctta.methods.__all__]
    classes = {cls.__name__.lower(): cls for cls in exported if isinstance(cls, type) and issubclass(cls, Adapter)}
    rows = [asdict(facts_of(name, classes[name])) for name in sorted(classes)]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write or check the file."""
    fresh = PATH.exists() and PATH.read_text(encoding="utf-8") == table()
    if not fresh and "--check" not in arguments:
        write_atomically(PATH, table().encode())
        return 0
    return 0 if fresh else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
