"""Fill the tables of docs/statistics.md from the measurements below docs/results/statistics.

python scripts/statistics_tables.py            write the page
python scripts/statistics_tables.py --check    write nothing; exit 1 if the page is stale

``python -m benchmarks.choice_of_statistics --json FILE`` makes a measurement. A region of the page ends with
``<!-- end -->``. ``<!-- choice: FILE -->`` is a table of every kind of stream, ``<!-- choices: FILE ... -->`` sums up
several measurements, and ``<!-- unadapted: NETWORK ... -->`` compares Trio with the unadapted networks on clean and on
hardly corrupted images, from the files NETWORK_trio and NETWORK_bn.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from ctta._system.files import write_atomically
from docgen.markdown import table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "statistics.md"
MEASURED = PAGE.parent / "results" / "statistics"
FIXED = ("source", "share:0.2", "share:0.4", "share:0.7", "batch")
REGION = re.compile(r"(<!-- (choices?|unadapted): ([^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL)

#: The error of each choice of statistics, by the kind of stream.
Errors = Mapping[str, Mapping[str, float]]


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is stale")
    check = parser.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    if (fresh := filled(text)) == text:
        return 0
    if check:
        print("docs/statistics.md is stale: run python scripts/statistics_tables.py")  # noqa: T201
        return 1
    write_atomically(PAGE, fresh.encode())
    return 0


def filled(text: str) -> str:
    """Return the page with its tables filled in."""

    def region(found: re.Match[str]) -> str:
        begin, kind, names, end = found.groups()
        if kind == "unadapted":
            made = unadapted({name: (read(f"{name}_bn"), read(f"{name}_trio")) for name in names.split()})
        else:
            errors = {name: read(name) for name in names.split()}
            made = summary(errors) if kind == "choices" else by_stream(*errors.values())
        return begin + made + "\n" + end

    return REGION.sub(region, text)


def read(name: str) -> Errors:
    """Read the errors of a measurement."""
    errors: Errors = json.loads((MEASURED / f"{name}.json").read_bytes())["errors"]
    return errors


def by_stream(errors: Errors) -> str:
    """Return a table with a row for every kind of stream."""
    choices = list(next(iter(errors.values())))
    body = [
        [kind, *(f"{row[choice]:.1f}" for choice in choices), f"{behind('auto', row):+.1f}"]
        for kind, row in errors.items()
    ]
    return table(["stream", *choices, "auto - best fixed"], body)


def summary(measurements: Mapping[str, Errors]) -> str:
    """Return a table with the mean error of every choice and, in brackets, how far it is at most behind the best."""
    measured = [next(iter(errors.values())) for errors in measurements.values()]
    choices = list(dict.fromkeys([*FIXED, *(choice for row in measured for choice in row if choice != "auto"), "auto"]))
    body = []
    for name, errors in measurements.items():
        rows = list(errors.values())
        near = sum(round(behind("auto", row), 6) <= 0.5 for row in rows)
        shown = [_mean_and_worst(choice, rows) for choice in choices]
        model, method = name.rsplit("_", 1)
        body.append([f"`{model}`", method, *shown, f"{near} of {len(rows)}"])
    return table(["network", "method", *choices, "`auto` within 0.5"], body)


def unadapted(networks: Mapping[str, tuple[Errors, Errors]]) -> str:
    """Return a table of the errors of unadapted networks and those of Trio, where the source is good.

    Args:
        networks: The errors without learning and those of Trio, by the name of the network.
    """
    good = [kind for kind in next(iter(networks.values()))[0] if kind.startswith(("clean", "severity 1"))]
    body = []
    for kind in good:
        pairs = [(plain[kind]["source"], trio[kind]["auto"]) for plain, trio in networks.values()]
        body.append([kind, *(f"{source:.1f}, {trio:.1f} ({trio - source:+.1f})" for source, trio in pairs)])
    return table(["stream", *(f"`{name}`" for name in networks)], body)


def _mean_and_worst(choice: str, rows: Sequence[Mapping[str, float]]) -> str:
    """The mean error of a choice and how far it is at most behind the best fixed one, if it was measured."""
    if choice not in rows[0]:
        return "–"
    return f"{mean(row[choice] for row in rows):.1f} ({max(behind(choice, row) for row in rows):.1f})"


def behind(choice: str, row: Mapping[str, float]) -> float:
    """Return the error of a choice minus that of the best fixed one."""
    return row[choice] - min(row[fixed] for fixed in FIXED)


if __name__ == "__main__":
    sys.exit(main())
