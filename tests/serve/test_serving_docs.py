"""docs/serving.md is correct: its options, paths, metrics, rules and statuses exist."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

import ctta.errors
from ctta.cli import app
from ctta.guard import DEFAULT_RULES
from ctta.serve.types import Limits
from serve.engine import ask, classifier, images, serving

pytestmark = pytest.mark.serve
pytest.importorskip("prometheus_client", reason="needs the extra serve")
pytest.importorskip("starlette", reason="needs the extra serve")

from ctta.serve.front import Front  # noqa: E402
from ctta.serve.metrics import Metrics  # noqa: E402
from ctta.serve.openapi import openapi  # noqa: E402
from ctta.serve.protocol import ModelInfo  # noqa: E402
from ctta.serve.status import status_of  # noqa: E402
from ctta.serve.tokens import read_tokens  # noqa: E402

TEXT = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
#: Options of other commands that the page names.
FOREIGN = {"--stop-timeout", "--no-cache-dir", "--seconds"}


def block(language: str, start: str = "") -> str:
    """The block of code in a language that contains some text."""
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL) if start in text]
    assert len(found) == 1
    return str(found[0])


def options_of(command: str) -> set[str]:
    """The options of a command of ctta."""
    group: Any = typer.main.get_command(app)
    return {name for option in group.commands[command].params for name in option.opts if name.startswith("--")}


def test_every_option_exists() -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) - FOREIGN
    assert len(named) > 20
    assert named <= options_of("serve") | options_of("replay") | {"--help"}


def test_the_commands_of_the_unit_and_the_container_have_their_options() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(block("ini").replace("\\\n", " "))
    words = shlex.split(unit["Service"]["ExecStart"])
    lines = re.findall(r"^(?:ENTRYPOINT|CMD) \[(.*)\]", block("dockerfile"), re.MULTILINE)
    words += [word.strip(' "') for line in lines for word in line.split(",")]
    assert {word for word in words if word.startswith("--")} <= options_of("serve")


def test_every_metric_exists() -> None:
    named = set(re.findall(r"ctta_[a-z_]+", TEXT))
    with serving() as service:
        ask(service, images(8))
        metrics = Metrics(service.streams, 2, service.damaged)
        metrics.request("grpc", "OK")
        metrics.answered("cam", 0.1)
        known = set(re.findall(r"^# HELP (ctta_[a-z_]+) ", metrics.text().decode(), re.MULTILINE))
    assert len(named) > 12
    assert named <= known


def test_every_path_exists() -> None:
    table = TEXT.split("## Paths")[1].split("##")[0]
    named = {path for path in re.findall(r"`(?:[A-Z]+ )?(/[^`]*)`", table) if path not in ("/", "/openapi.json")}
    paths = openapi(ModelInfo("tiny", 10))["paths"]
    short = {"{stream}": "{s}", "{model}": "{m}", "{snapshot}": "{id}"}
    known = {re.sub(r"\{\w+\}", lambda name: short.get(name[0], name[0]), path) for path in paths}
    assert len(named) > 12
    assert named <= known


def test_the_rules_are_the_default_ones() -> None:
    shown = TEXT.split("acts when a rule fires:")[1].split("```")[1]
    assert [line.partition("#")[0].strip() for line in shown.strip().splitlines()] == [str(r) for r in DEFAULT_RULES]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("the request cannot be used", ctta.errors.ImageShape("")),
        ("more bytes, images or numbers", ctta.errors.RequestTooLarge("")),
        ("no token", ctta.errors.NoToken("")),
        ("the token does not have", ctta.errors.NotAllowed("")),
        ("no such model, stream or snapshot", ctta.errors.UnknownLane("a", ["b"])),
        ("the stream's mode does not", ctta.errors.WrongMode("")),
        ("a new stream beyond", ctta.errors.TooManyStreams("")),
        ("the stream's queue or the memory budget is full", ctta.errors.QueueFull("")),
        ("the service is closing", ctta.errors.ServiceClosing("")),
        ("the operation is in effect, but", ctta.errors.NotSaved("")),
        ("the stream's mode does not", ctta.errors.NoGoodSnapshot("")),
    ],
)
def test_errors_have_the_statuses_of_the_table(row: str, error: Exception) -> None:
    (line,) = [line for line in TEXT.splitlines() if line.startswith(f"| {row}")]
    _, _, http, grpc, _ = line.split("|")
    status = status_of(error)
    assert re.findall(r"\d{3}", http) == [str(status.http)]
    assert re.findall(r"`([A-Z_]+)`", grpc)[0] == status.grpc


def test_the_token_file_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(TEXT.split("A token file has")[1].split("```")[1])
    assert [read_tokens(file).right_of(f"Bearer {token}").name.lower() for token in ("2c9e0b7d51f84a63",)] == ["ask"]


def test_the_limits_of_the_proxy_let_the_largest_request_through() -> None:
    (size,) = re.findall(r"client_max_body_size (\d+)m", TEXT)
    with serving(limits=Limits()) as service:
        assert int(size) << 20 >= Front(service, classifier()).most_bytes
