"""Command lines as TOML files: the same words as typed, the same records, mistakes reported before anything runs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from ctta.cli import app
from ctta.cli.toml_file import line_of
from ctta.errors import ParameterError

GROUP = get_command(app)


def do(tmp_path: Path, text: str, *options: str) -> Result:
    file = tmp_path / "runs.toml"
    file.write_text(text)
    return CliRunner().invoke(app, ["do", str(file), *options])


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('command = "demo"', "ctta demo"),
        (
            'command = "run"\nmethod = "dmse"\nstream = "cifar10-c"\ndata = "cifar10_test.npz"\n'
            'set = { alpha_min = 0.98, teacher_reset = false, loss = "ce" }\nseed = "0..4"',
            "ctta run dmse cifar10-c --data cifar10_test.npz --set alpha_min=0.98 --set teacher_reset=False "
            "--set loss=ce --seed 0..4",
        ),
        (
            'command = "run"\nstream = "digits"\nbatch_size = 50\nsave-every = 2.5\nlearn = false\nquiet = false\n'
            'json = true\nmethod = "bn"',
            "ctta run bn digits --batch-size 50 --save-every 2.5 --no-learn --json",
        ),
        ('command = "run"\nmethod = "bn"\nstream = "digits"\nlearn = true', "ctta run bn digits --learn"),
        (
            'command = "compare"\nfolders = ["runs/a", "runs/b c"]\nformat = "csv"\nforce = true',
            "ctta compare runs/a 'runs/b c' --format csv --force",
        ),
        ('command = "compare"\nfolders = "runs"', "ctta compare runs"),
        (
            'command = "corrupt"\nin = "day"\nout = "-C"\ncorruption = ["fog", "snow"]\nseverity = [1, 5]\nseed = -1',
            "ctta corrupt --corruption fog --corruption snow --severity 1 --severity 5 --seed=-1 -- day -C",
        ),
        (
            'command = "train digits"\nout = "m.safetensors"\npasses = 2',
            "ctta train digits --out m.safetensors --passes 2",
        ),
        (
            '[[do]]\ncommand = "ls"\nwhat = "methods"\n[[do]]\ncommand = "doctor"\ntarget = "net.py:build"',
            "ctta ls methods\nctta doctor net.py:build",
        ),
    ],
)
def test_a_file_is_its_plain_command_line(tmp_path: Path, text: str, plain: str) -> None:
    result = do(tmp_path, text, "--dry-run")
    assert result.exit_code == 0, result.output
    assert result.stdout == plain + "\n"


def leaves(group: Any, path: tuple[str, ...] = ()) -> list[tuple[str, Any]]:
    found = []
    for name, command in group.commands.items():
        below = hasattr(command, "commands")
        found += leaves(command, (*path, name)) if below else [(" ".join((*path, name)), command)]
    return [(name, command) for name, command in found if name != "do"]


@pytest.mark.parametrize(("name", "command"), leaves(GROUP))
def test_every_option_of_every_command_has_a_key(name: str, command: Any) -> None:
    table: dict[str, Any] = {"command": name}
    for parameter in command.params:
        if parameter.param_type_name == "option":
            table[parameter.opts[0].removeprefix("--")] = True if parameter.is_flag else "value of " + parameter.name
        else:
            table[(parameter.metavar or parameter.name).lower()] = "value of " + parameter.name
    assert len(table) == 1 + len(command.params)
    words = line_of(table, GROUP, "here").arguments
    for parameter in command.params:
        if parameter.param_type_name == "argument" or not parameter.is_flag:
            assert words.count("value of " + parameter.name) == 1
        if parameter.param_type_name == "option":
            assert words.count(parameter.opts[0]) == 1


def test_a_run_from_a_file_is_recorded_as_its_plain_command_line(tmp_path: Path) -> None:
    plain = f"ctta run bn digits --images 20 --batch-size 10 --set alpha=0.5 --out {tmp_path / 'runs'} --json --quiet"
    result = do(
        tmp_path,
        'command = "run"\nmethod = "bn"\nstream = "digits"\nimages = 20\nbatch_size = 10\nset = { alpha = 0.5 }\n'
        f'out = "{tmp_path / "runs"}"\njson = true\nquiet = true',
    )
    assert result.exit_code == 0, result.output
    (record,) = json.loads(result.stdout)
    assert record["command"] == plain
    assert record["settings"]["alpha"] == 0.5
    (again,) = json.loads(CliRunner().invoke(app, shlex.split(plain)[1:]).stdout)
    assert again == record


def test_a_typed_run_is_recorded_as_typed(tmp_path: Path) -> None:
    words = ["run", "source", "digits", "--images", "2", "--out", str(tmp_path / "a b"), "--json", "--quiet"]
    (record,) = json.loads(CliRunner().invoke(app, words).stdout)
    assert shlex.split(record["command"]) == ["ctta", *words]


def test_several_commands_are_run_in_turn_and_named_on_stderr(tmp_path: Path) -> None:
    result = do(
        tmp_path, '[[do]]\ncommand = "ls"\nwhat = "models"\njson = true\n[[do]]\ncommand = "ls"\nwhat = "methods"'
    )
    assert result.exit_code == 0, result.output
    assert result.stderr == "ctta ls models --json\nctta ls methods\n"
    models, end = json.JSONDecoder().raw_decode(result.stdout)
    assert models[0]["model"] and "dmse" in result.stdout[end:]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("command = run", 1, "BadData: {file} is not TOML: Invalid value (at line 1, column 11)."),
        ("", 1, '{file} names no command. Add a line such as command = "run".'),
        ("command = 3", 1, "{file} names no command"),
        ('command = "rn"', 1, "UnknownCommand: 'rn' is not a known command. Did you mean 'run'?"),
        ('command = "do"\nfile = "runs.toml"', 1, "UnknownCommand: 'do' is not a known command."),
        ('command = "train"', 1, "'train' is a group of commands: train digits, train cifar10, train pacs"),
        ('command = "run dmse"', 1, "'dmse' follows the command in 'run dmse'. Write arguments as separate keys."),
        (
            'command = "run"\nmethod = "bn"\nstream = "digits"\nbatchsize = 3',
            1,
            "UnknownKey: 'batchsize' is not a known argument or option. Did you mean 'batch-size'?",
        ),
        ('command = "run"\nmethod = "bn"', 1, "ParameterError: {file}: ctta run needs 'stream'."),
        ('command = "run"', 1, "ctta run needs 'method' and 'stream'."),
        ('command = "train digits"', 1, "ctta train digits needs 'out'."),
        ('command = "run"\nmethod = "bn"\nstream = "digits"\nseed = [0, 1]', 1, "'seed' takes one value"),
        (
            'command = "run"\nmethod = "bn"\nstream = "digits"\nseed = true',
            1,
            "'seed' needs a value. Got true.",
        ),
        ('command = "run"\nmethod = "bn"\nstream = "digits"\nquiet = 1', 1, "'quiet' must be true or false. Got 1"),
        ('command = "run"\nmethod = "bn"\nstream = "digits"\nseed = 2024-05-01', 1, "Got 2024-05-01."),
        ('command = "run"\nmethod = "bn"\nstream = "digits"\nsave_every = 1\nsave-every = 2', 1, "'save-every' twice"),
        ('command = "run"\nmethod = "bn"\nstream = "digits"\nseverity = 6', 2, "--severity"),
        ('command = "demo"\n[[do]]\ncommand = "demo"', 1, "either one command or [[do]] tables, and nothing else"),
        ('[[do]]\ncommand = "run"\nmethod = "bn"', 1, "{file}, [[do]] 1: ctta run needs 'stream'."),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, code: int, said: str) -> None:
    result = do(tmp_path, text)
    assert result.exit_code == code
    assert said.replace("{file}", str(tmp_path / "runs.toml")) in result.stderr
    assert result.stdout == ""


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    missing = CliRunner().invoke(app, ["do", str(tmp_path / "no.toml")])
    assert missing.exit_code == 1 and missing.stderr == f"MissingData: {tmp_path / 'no.toml'} does not exist.\n"
    (tmp_path / "no.toml").write_bytes(b"\xff\xfe\x00")
    foreign = CliRunner().invoke(app, ["do", str(tmp_path / "no.toml")])
    assert foreign.exit_code == 1 and "no.toml is not TOML" in foreign.stderr


@pytest.mark.parametrize("last", ['command = "run"\nmethod = "bn"', 'command = "ls"\nwhat = "planets"'])
def test_a_mistake_in_the_last_command_is_told_before_the_first_runs(tmp_path: Path, last: str) -> None:
    result = do(tmp_path, f'[[do]]\ncommand = "ls"\nwhat = "methods"\n[[do]]\n{last}')
    assert result.exit_code != 0
    assert result.stdout == ""


def test_a_command_that_fails_ends_the_file(tmp_path: Path) -> None:
    result = do(
        tmp_path, f'[[do]]\ncommand = "compare"\nfolders = "{tmp_path}"\n[[do]]\ncommand = "ls"\nwhat = "methods"'
    )
    assert result.exit_code == 1
    assert result.stdout == "" and "BadData: There is no complete run record" in result.stderr


def test_a_place_left_out_is_not_taken_by_the_next_argument() -> None:
    def argument(name: str, *, required: bool) -> SimpleNamespace:
        what = {"param_type_name": "argument", "metavar": None, "nargs": 1, "multiple": False}
        return SimpleNamespace(name=name, required=required, **what)

    copy = [argument("source", required=True), argument("through", required=False), argument("to", required=False)]
    group = SimpleNamespace(commands={"copy": SimpleNamespace(params=copy)})
    assert line_of({"command": "copy", "source": "a", "through": "b"}, group, "here").arguments == ("a", "b")
    with pytest.raises(ParameterError, match="copy needs 'through'"):
        line_of({"command": "copy", "source": "a", "to": "c"}, group, "here")
