"""The commands that repeat published runs: one line for all runs that differ only in their method and seed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from ctta.bench.record import Record

#: The order of options in a command; others come before --methods.
_ORDER = (
    *("--data", "--source-data", "--side", "--model", "--weights", "--images", "--corruptions", "--severity"),
    *("--protocol", "--option", "--times", "--batch-size", "--norm", "--set"),
)
_LAST = ("--methods", "--seed", "--quiet", "--out")
#: Options that change nothing in the record, or that are added again for all runs of a line.
_LEFT_OUT = ("--methods", "--seed", "--workers")


class _Line(NamedTuple):
    """What the runs of one command have in common."""

    words: tuple[str, ...]
    options: tuple[tuple[str, ...], ...]


class _Run(NamedTuple):
    """How one run was started.

    The method is None if the experiment names it, and the seed if the command uses it without being told.
    """

    line: _Line
    method: str | None
    seed: int | None


def commands_of(records: Iterable[Record]) -> list[str]:
    """Return the commands that repeat some runs.

    Args:
        records: The records of the runs.
    """
    seeds: dict[_Line, dict[str | None, list[int | None]]] = {}
    for line, method, seed in map(_run_of, records):
        found = seeds.setdefault(line, {}).setdefault(method, [])
        if seed not in found:
            found.append(seed)
    commands = []
    for line, methods in seeds.items():
        told = _told(methods.values())
        together: dict[tuple[int, ...], list[str | None]] = {}
        for method, found in methods.items():
            together.setdefault(tuple(sorted(seed or 0 for seed in found)) if told else (), []).append(method)
        commands += [_command(line, names, which) for which, names in together.items()]
    return commands


def _told(seeds: Iterable[Sequence[int | None]]) -> bool:
    """Whether a command must name its seeds."""
    return any(seed is not None for found in seeds for seed in found)


def _run_of(record: Record) -> _Run:
    tokens = shlex.split(record.command)
    first = next(i for i, token in enumerate(tokens) if token.startswith("--"))
    words, options = tokens[:first], _options(tokens[first:])
    given = {option[0]: option[1:] for option in options}
    seed = record.spec.seed if "--seed" in given else None
    method: str | None = record.spec.method if "--methods" in given else None
    if words[1] == "run":
        method = _from_here(words.pop(2))
        seed = seed or None
    # Of an experiment, other runs than this one may need the source data.
    unused = () if method is None or record.spec.source_data is not None else ("--source-data",)
    kept = [option for option in options if option[0] not in (*_LEFT_OUT, *unused)]
    return _Run(_Line(tuple(words), tuple(sorted(kept, key=_place))), method, seed)


def _from_here(method: str) -> str:
    """The name of a method; one in a file of benchmarks/ as it is called from the root of the repository."""
    file, colon, name = method.partition(":")
    return f"benchmarks/{PurePosixPath(file).name}:{name}" if colon else method


def _options(tokens: Sequence[str]) -> list[tuple[str, ...]]:
    """Split a command line into options, each with its values."""
    options: list[list[str]] = []
    for token in tokens:
        if token.startswith("--"):
            options.append([token])
        else:
            options[-1].append(token)
    return [tuple(option) for option in options]


def _place(option: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    names = (*_ORDER, "", *_LAST)
    return names.index(option[0] if option[0] in names else ""), option


def _command(line: _Line, methods: Sequence[str | None], seeds: Sequence[int]) -> str:
    names = [name for name in methods if name is not None]
    words, options = [*line.words], [*line.options]
    if seeds:
        options.append(("--seed", _listed(seeds)))
    if words[1] == "run":
        words.insert(2, "$method" if len(names) > 1 else names[0])
    elif names:
        options.append(("--methods", ",".join(names)))
    command = " ".join([*words, *(token for option in sorted(options, key=_place) for token in option)])
    loops = words[1] == "run" and len(names) > 1
    return f"for method in {' '.join(names)}; do {command}; done" if loops else command


def _listed(seeds: Sequence[int]) -> str:
    consecutive = len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]}..{seeds[-1]}" if consecutive else ",".join(map(str, seeds))
