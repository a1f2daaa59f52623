"""Odd values for `ctta run --set name=value`: each one runs as asked, or is refused by a named error."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from ctta import errors
from ctta.cli import app
from ctta.cli.options import parse_settings
from ctta.registry import methods
from ctta.statistics import as_statistics

#: How many values the long form tries.
LONG = 1_000

VALUES = (
    *("", " ", "=", "==1", "0", "1", "2", "3", "-1", "-2", "+1", "0x10", "1_000", "007", "5" * 5_000, "9" * 400),
    *("0.0", "0.5", "1.0", "-0.5", "1e-300", "1e308", "-1e308", "1e999", "-1e999", "1e-6", ".5", "1.", "1j", "0.1+0.2"),
    *("nan", "NaN", "inf", "-inf", "Infinity", "float('nan')", "None", "none", "null", "True", "False", "true", "no"),
    *("'adam'", "adam", "sgd", "SGD", "mlp", "bf16", "fp16", "answer", "raise", "static", "sce", "patch", "occlusion"),
    *("[]", "[1]", "[1, 2, 3]", "(1,)", "()", "{}", "{'a': 1}", "{1, 2}", "{[]: 1}", "{[1]}", "[[[]]]", "[None]"),
    *("b'x'", "...", "lambda x: x", "__import__('os')", "print(1)", "x.y", "1 if True else 2", "f'{1}'", "'\\d'"),
    *("batch", "source", "prior", "prior:16", "prior:16.0", "prior:-1", "prior:nan", "prior:1e999", "prior:", ":16"),
    *(
        "share:0.4",
        "share:2",
        "share:1_0",
        "misfit",
        "misfit:0",
        "moving:0.05",
        "moving: .5",
        "moving:0.5:1",
        "PRIOR:1",
    ),
    *("(" * 3_000, "[" * 300 + "]" * 300, "-" * 10_000 + "1", "1+" * 5_000 + "1", "a" * 10_000),
    *(
        "é",
        "０.５",
        "１",
        "∞",
        "\u202e1",
        "𝟏",
        "\x00",
        "\ud800",
        "\n",
        "0.5\n",
        "\t1",
        "--lr",
        "-",
        "%s",
        "{0}",
        "\x1b[31m",
    ),
    *(str(2**31), str(2**32), str(2**63 - 1), str(2**63), str(-(2**63)), str(2**64), "1000000", "65536"),
)
NAMES = ("", " ", "seed", "model", "self", "lr ", " lr", "LR", "öptimizer", "x" * 5_000, "steps", "__class__", "--set")


@dataclass(frozen=True)
class Case:
    """One value for one argument of one method."""

    method: str
    pair: str


def cases(count: int, seed: int) -> list[Case]:
    """Draw values over all methods in turn, nine of ten for arguments that exist."""
    draw = random.Random(seed)
    known = sorted(methods().items())
    drawn = []
    for number in range(count):
        name, cls = known[number % len(known)]
        argument = draw.choice(sorted(cls.arguments())) if draw.random() < 0.9 else draw.choice(NAMES)
        kind = draw.random()
        if kind < 0.7:
            value = draw.choice(VALUES)
        elif kind < 0.85:
            value = repr(draw.uniform(-2, 2) * 10 ** draw.randint(-3, 3))
        else:
            value = str(draw.randint(-20, 200))
        drawn.append(Case(name, f"{argument}={value}"))
    return drawn


def outcome(case: Case, folder: Path) -> str:
    """Run a case through the command line: "accepted", the name of the error, or AssertionError for a violation."""
    command = ["run", case.method, "digits", "--set", case.pair, "--corruptions", "brightness"]
    command += ["--images", "6", "--batch-size", "3", "--out", str(folder), "--quiet", "--json"]
    result = CliRunner().invoke(app, command)
    shown = f"{case.method} --set {case.pair[:80]!r}"
    if result.exit_code == 0:
        ((name, value),) = parse_settings([case.pair]).items()
        used = json.loads(result.stdout)[0]["settings"][name]
        if name == "statistics":
            value = str(as_statistics(value))  # its short form: "prior:16.0" is recorded as "prior:16"
        assert used == value and (type(used) is type(value) or isinstance(used, float)), f"{shown} ran with {used!r}"
        return "accepted"
    unnamed = result.exception is not None and not isinstance(result.exception, SystemExit)
    assert not unnamed, f"{shown} ended in {type(result.exception).__name__}: {result.exception}"
    kind = result.stderr.partition(":")[0].strip()
    named = issubclass(getattr(errors, kind, Exception), errors.CttaError)
    assert named and result.stdout == "", f"{shown} printed {result.stdout[:200]!r} and {result.stderr[:200]!r}"
    return kind


def main(count: int, seed: int) -> None:
    """Try `count` values and print how they ended."""
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(count, seed):
            try:
                ends[outcome(case, Path(folder))] += 1
            except AssertionError as error:
                wrong.append(str(error))
    told = ", ".join(f"{number} {kind}" for kind, number in ends.most_common())
    sys.stdout.write(f"set_values: {count} values: {told}; {len(wrong)} wrong\n")
    if wrong:
        raise AssertionError("\n".join(wrong))


if __name__ == "__main__":
    main(LONG, seed=0)
