"""The commands under published tables: few lines that repeat every run."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from ctta.bench.folder import read_records
from ctta.bench.record import Record
from docgen.run_commands import commands_of
from run_folders import record_of, steps_of

RECORDS = read_records(Path(__file__).resolve().parent.parent / "docs" / "results")
OUT = "--quiet --out runs"


def run(method: str, command: str, seed: int = 0, source_data: str | None = None) -> Record:
    made = Record.from_json(record_of(method, steps_of((4, 2, 1)), seed=seed, source_data=source_data))
    return replace(made, command=command)


def test_runs_that_differ_in_method_and_seed_share_a_line() -> None:
    found = commands_of(
        [
            run("tent", f"ctta run tent cifar10-c --images 40 --model m {OUT}"),
            run("tent", f"ctta run tent cifar10-c --model m --images 40 --seed 2 {OUT}", 2),
            run("bn", "ctta run bn cifar10-c --images 40 --seed 0..2 --out runs --model m --quiet"),
            run("bn", "ctta run bn cifar10-c --images 40 --seed 0..2 --out runs --model m --quiet", 2),
        ]
    )
    assert found == [
        f"for method in tent bn; do ctta run $method cifar10-c --model m --images 40 --seed 0,2 {OUT}; done"
    ]


def test_runs_with_other_seeds_or_settings_have_lines_of_their_own() -> None:
    found = commands_of(
        [
            run("tent", f"ctta run tent cifar10-c --seed 1..3 {OUT}", 1),
            run("tent", f"ctta run tent cifar10-c --seed 1..3 {OUT}", 2),
            run("bn", f"ctta run bn cifar10-c --seed 2 {OUT}", 2),
            run("bn", f"ctta run bn cifar10-c --set statistics=auto {OUT}"),
            run("free", f"ctta run controls.py:Free cifar10-c --set statistics=auto {OUT}"),
        ]
    )
    assert found == [
        f"ctta run tent cifar10-c --seed 1..2 {OUT}",
        f"ctta run bn cifar10-c --seed 2 {OUT}",
        "for method in bn benchmarks/controls.py:Free; "
        f"do ctta run $method cifar10-c --set statistics=auto {OUT}; done",
    ]


def test_an_experiment_names_its_methods_once_and_its_source_data_where_they_are_used() -> None:
    given = "ctta reproduce main cifar10-c --data d --source-data s"
    found = commands_of(
        [
            run("bn", f"{given} --methods bn,tent --workers 2 {OUT}"),
            run("tent", f"{given} --methods tent --seed 1 {OUT}", 1),
            run("tent", f"{given} --methods bn,tent {OUT}"),
            run("bn", f"{given} --methods bn --seed 1 {OUT}", 1),
            run("rmt", f"{given} --methods rmt {OUT}", source_data="5c"),
            run("dmse", f"ctta reproduce prototypes cifar10-c --source-data s {OUT}"),
        ]
    )
    assert found == [
        f"ctta reproduce main cifar10-c --data d --methods bn,tent --seed 0..1 {OUT}",
        f"ctta reproduce main cifar10-c --data d --source-data s --methods rmt {OUT}",
        f"ctta reproduce prototypes cifar10-c --source-data s {OUT}",
    ]


def expanded(command: str) -> list[tuple[str, int, frozenset[str]]]:
    """Every run of a line, as method, seed and the rest of its words."""
    loop = re.fullmatch(r"for method in (.*); do (.*); done", command)
    names = loop.group(1).split() if loop else [""]
    found = []
    for name in names:
        words = shlex.split((loop.group(2) if loop else command).replace("$method", name))
        seeds = words[words.index("--seed") + 1] if "--seed" in words else "0"
        first, _, last = seeds.partition("..")
        numbers = list(range(int(first), int(last) + 1)) if last else [int(seed) for seed in seeds.split(",")]
        rest = frozenset(words) - {"--seed", seeds}
        found += [(Path(words[2]).name, seed, rest - {words[2]}) for seed in numbers]
    return found


@pytest.mark.parametrize("protocol", sorted({record.spec.protocol_name for record in RECORDS}))
def test_the_lines_repeat_exactly_the_published_runs(protocol: str) -> None:
    records = [r for r in RECORDS if r.spec.protocol_name == protocol and r.command.startswith("ctta run")]
    asked = set()
    for record in records:
        words = re.sub(r" --(seed|workers) \S+", "", record.command).split()
        asked.add((Path(words[2]).name, record.spec.seed, frozenset(words) - {words[2], "--source-data"}))
    found = {(m, s, rest - {"--source-data"}) for line in commands_of(records) for m, s, rest in expanded(line)}
    assert found == asked
