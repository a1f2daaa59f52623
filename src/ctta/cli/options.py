"""Options shared by several commands, and parsers of their values."""

from __future__ import annotations

import ast
import itertools
import math
import re
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ctta._checks.numbers import LARGEST_SIDE
from ctta.cli.ray_option import HELP as RAY
from ctta.errors import ParameterError
from ctta.track import Target, parse_target

OWN = "or your own as package.module:name or file.py:name"

Model = Annotated[
    str | None,
    typer.Option(
        help=f"Source model: a name from ctta ls models, timm:NAME, torchvision:NAME, hf:FOLDER, {OWN}; file.py alone "
        "if it has only one.",
        show_default="the bundled model, or the paper's",
    ),
]
Weights = Annotated[Path | None, typer.Option(help="Weights file of the model; bundled models need none.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder of the published files, or an npz of clean images, which are corrupted on the fly."),
]
ImageList = Annotated[
    Path | None,
    typer.Option(help="ImageNet-C only: a text file that lists the images to use, one synset/file per line."),
]
Clean = Annotated[
    Path | None,
    typer.Option(help="Clean images (npz) for protocols that use them; defaults to --data if that is an npz."),
]
SourceData = Annotated[
    Path | None,
    typer.Option(
        help="Labelled source images (npz): prototypes for rmt, santa, dmse, obao and trio, Fisher weights for eata, "
        "feature statistics for petta, a posterior of the weights for petal."
    ),
]
Corruptions = Annotated[
    list[str] | None,
    typer.Option(
        "--corruptions",
        "--corruption",
        metavar="NAME,...",
        help="Use only these corruptions, or domains of your own data, in this order. May be repeated.",
        show_default="the fifteen of the paper, or all of your own data",
    ),
]
Side = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=LARGEST_SIDE,
        help="Resize the shorter side of your own image files, or of those of PACS, to this many pixels and crop the "
        "central square.",
        show_default="as they are; 224 for PACS",
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option("--methods", "--method", metavar="NAME,...", help="Use only these methods. May be repeated."),
]
Images = Annotated[int | None, typer.Option(min=1, help="Images per domain.", show_default="all")]
Workers = Annotated[int, typer.Option(min=1, help="Runs at the same time; above 1, each uses one torch thread.")]
Ray = Annotated[str | None, typer.Option("--ray", metavar="[ADDRESS]", help=RAY)]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SINK:DIR",
        help="Send the numbers of every step to tensorboard:DIR, mlflow:DIR or wandb:DIR (offline). May be repeated.",
    ),
]
Tensorboard = Annotated[Path | None, typer.Option(help="The same as --track tensorboard:DIR.")]
SaveEvery = Annotated[float, typer.Option(min=0.0, help="Seconds between checkpoints.")]
Device = Annotated[
    str | None,
    typer.Option(help="Where to compute: cpu, cuda, cuda:1 or mps.", show_default="the fastest available"),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress bar.")]


_MOST_SEEDS = 10_000
_MOST_RUNS = 10_000


def parse_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Split the values of a repeatable option into names.

    Args:
        given: One value or several, each with one name or several separated by commas.
    """
    texts = [given] if isinstance(given, str) else given
    return tuple(name for text in texts for part in text.split(",") if (name := part.strip()))


def parse_seeds(text: str) -> list[int]:
    """Parse seeds.

    Args:
        text: "3", "1,2,5" or "0..4".
    """
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            # One too many are enough to refuse; len() fails on a range of more than 2**63.
            seeds: Sequence[int] = range(first, min(last, first + _MOST_SEEDS) + 1)
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds:
        raise ParameterError(
            f"Seeds must be a number, numbers separated by commas, or a range such as 0..4. Got {text!r}."
        )
    if len(seeds) > _MOST_SEEDS:
        raise ParameterError(f"A command runs at most {_MOST_SEEDS} seeds. Got {text!r}.")
    return list(dict.fromkeys(seeds))


def parse_numbers(given: Sequence[str], option: str) -> tuple[int, ...]:
    """Parse the values of a repeatable option as integers.

    Args:
        given: The values, each with one number or several separated by commas.
        option: Name of the option, for errors.
    """
    try:
        return tuple(int(name) for name in parse_names(given))
    except ValueError:
        raise ParameterError(f"{option} takes integers separated by commas. Got {','.join(given)!r}.") from None


def parse_targets(track: Sequence[str] | None, tensorboard: Path | None = None) -> tuple[Target, ...]:
    """Parse the values of --track and --tensorboard.

    Args:
        track: The values of --track, if there are any.
        tensorboard: The value of --tensorboard, if there is one.
    """
    targets = [parse_target(text) for text in track or ()]
    if tensorboard is not None:
        targets.append(Target("tensorboard", tensorboard))
    return tuple(dict.fromkeys(targets))


def parse_settings(pairs: list[str], option: str = "--set") -> dict[str, object]:
    """Parse the values of --set into arguments of a method.

    Args:
        pairs: Texts of the form "name=value"; a value is a Python literal, true, false or none, or a plain word.
        option: Name of the option, for errors.
    """
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ParameterError(f"{option} takes name=value. Got {pair!r} instead.")
        settings[name.strip()] = _literal(value)
    return settings


def parse_sweeps(texts: Sequence[str], fixed: Collection[str]) -> list[dict[str, object]]:
    """Parse the values of --sweep into the arguments of every run: all combinations, the last sweep changing fastest.

    Args:
        texts: Texts of the form "name=value,value"; a comma inside brackets or quotes belongs to a value.
        fixed: Names of arguments that --set has given a value.
    """
    values: dict[str, list[object]] = {}
    for text in texts:
        name, equals, rest = (part.strip() for part in text.partition("="))
        parts = _split_at_commas(rest)
        if not equals or not name or not all(part.strip() for part in parts):
            raise ParameterError(f"--sweep takes name=value,value,... Got {text!r} instead.")
        if name in fixed or name in values:
            raise ParameterError(f"{name!r} is given a value more than once, by --sweep and by --set or --sweep.")
        values[name] = [_literal(part.strip()) for part in parts]
    count = math.prod(map(len, values.values()))
    if count > _MOST_RUNS:
        raise ParameterError(f"A command runs at most {_MOST_RUNS} combinations of --sweep. Got {count}.")
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


def _split_at_commas(text: str) -> list[str]:
    """Split at the commas that are not inside brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character in "([{") - (character in ")]}")
        if character == "," and not quote and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _literal(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a plain word may contain what looks like an invalid escape
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


#: As TOML and YAML write them.
_WORDS = {"true": True, "false": False, "none": None}
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str, option: str) -> float:
    """Parse a duration and return it in seconds.

    Args:
        text: A number with a unit, such as 20ms, 1.5s, 10m or 1h; or 0.
        option: Name of the option, for errors.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h)|0+", text.strip())
    if found is None:
        raise ParameterError(f"{option} takes a duration such as 20ms, 1.5s or 10m. Got {text!r}.")
    return float(found[1]) * _UNITS[found[2]] if found[1] else 0.0
