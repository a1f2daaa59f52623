"""Read command lines from TOML: one table per command, with arguments and options as keys."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctta.errors import BadData, MissingData, ParameterError, UnknownCommand, UnknownKey

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Line:
    """A command line.

    Args:
        command: The command, of click or of typer's copy of click.
        path: Its name, such as ("train", "digits").
        arguments: What follows the name on the command line.
    """

    command: Any
    path: tuple[str, ...]
    arguments: tuple[str, ...]


def read_lines(file: Path, group: Any) -> list[Line]:
    """Read the command lines of a file: one with a top-level ``command``, or several in ``[[do]]`` tables.

    Args:
        file: The TOML file.
        group: The command group of the program.

    Raises:
        MissingData: If the file does not exist.
        BadData, ParameterError, UnknownCommand, UnknownKey: If it holds anything but valid command lines.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingData(f"{file.absolute()} does not exist.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadData(f"{file} is not TOML: {error}.") from error
    if "do" not in content:
        return [line_of(content, group, str(file))]
    tables = content.pop("do")
    if content or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadData(f"{file} must hold either one command or [[do]] tables, and nothing else.")
    return [line_of(table, group, f"{file}, [[do]] {number}") for number, table in enumerate(tables, start=1)]


def line_of(table: Mapping[str, object], group: Any, where: str) -> Line:
    """Convert a table to a command line.

    Args:
        table: The table, with the key ``command``.
        group: The command group of the program.
        where: The position of the table, for errors.
    """
    command, path = _command(table.get("command"), group, where)
    known = _parameters(command)
    given = _given(table, known, where)
    positional = [name for name, parameter in known.items() if parameter.param_type_name == "argument"]
    # Every positional argument before a given one is needed: click would shift the values otherwise.
    last = max((i + 1 for i, name in enumerate(positional) if name in given), default=0)
    needed = positional[:last] + [name for name, parameter in known.items() if parameter.required]
    if missing := [name for name in dict.fromkeys(needed) if name not in given]:
        raise ParameterError(f"{where}: ctta {' '.join(path)} needs {' and '.join(map(repr, missing))}.")

    words = [word for name in positional if name in given for word in _values(known[name], name, given[name], where)]
    options = [
        word
        for name, value in given.items()
        if name not in positional
        for word in _option(known[name], name, value, where)
    ]
    dashed = any(word.startswith("-") for word in words)
    return Line(command, path, (*options, "--", *words) if dashed else (*words, *options))


def _given(table: Mapping[str, object], known: Mapping[str, Any], where: str) -> dict[str, object]:
    """Return the values of a table by the names of the command's parameters."""
    given: dict[str, object] = {}
    for key, value in table.items():
        name = key.replace("_", "-")
        if name == "command":
            continue
        if name not in known:
            raise UnknownKey(key, known)
        if name in given:
            raise BadData(f"{where} gives {name!r} twice.")
        given[name] = value
    return given


def _command(words: object, group: Any, where: str) -> tuple[Any, tuple[str, ...]]:
    if not isinstance(words, str) or not words.split():
        raise BadData(f'{where} names no command. Add a line such as command = "run".')
    path = tuple(words.split())
    for word in path:
        if not (known := _commands(group)):
            raise BadData(f"{where}: {word!r} follows the command in {words!r}. Write arguments as separate keys.")
        if word not in known:
            raise UnknownCommand(word, known)
        group = known[word]
    if known := _commands(group):
        raise BadData(f"{where}: {words!r} is a group of commands: {', '.join(f'{words} {k}' for k in known)}.")
    return group, path


def _commands(group: Any) -> dict[str, Any]:
    """Return the commands of a group except `do`, or none if it is a single command."""
    return {name: command for name, command in getattr(group, "commands", {}).items() if name != "do"}


def _parameters(command: Any) -> dict[str, Any]:
    """Return arguments and options by the names that --help shows."""
    named = {}
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            named[(parameter.metavar or parameter.name).lower().replace("_", "-")] = parameter
        else:
            named |= {word[2:]: parameter for word in parameter.opts if word.startswith("--")}
    return named


def _option(option: Any, name: str, value: object, where: str) -> list[str]:
    if option.is_flag:
        if not isinstance(value, bool):
            raise ParameterError(f"{where}: {name!r} must be true or false. Got {value!r}.")
        return [f"--{name}"] if value else list(option.secondary_opts[:1])
    words: list[str] = []
    for text in _values(option, name, value, where):
        words += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    return words


def _values(parameter: Any, name: str, value: object, where: str) -> list[str]:
    if isinstance(value, bool):
        raise ParameterError(f"{where}: {name!r} needs a value. Got {str(value).lower()}.")
    if not isinstance(value, (list, dict)):
        return [_text(value, name, where)]
    if parameter.nargs == 1 and not parameter.multiple:
        raise ParameterError(f"{where}: {name!r} takes one value, as on the command line. Got {value!r}.")
    if isinstance(value, dict):
        return [f"{key}={_text(item, name, where)}" for key, item in value.items()]
    return [_text(item, name, where) for item in value]


def _text(value: object, name: str, where: str) -> str:
    """Format a value for the command line, where --set parses Python literals."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float, list)):
        return repr(value)
    raise ParameterError(f"{where}: {name!r} takes text, numbers, true or false. Got {value}.")
