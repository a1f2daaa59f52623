"""ctta serve and ctta replay refuse impossible options before they load anything large."""

from __future__ import annotations

import inspect
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ctta.cli import app
from ctta.cli.options import parse_duration
from ctta.cli.serve import parse_address, read_names, serve
from ctta.errors import BadData, NotAllowed, ParameterError
from ctta.serve.origin import check, is_loopback
from ctta.serve.types import Limits


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize(
    ("text", "seconds"), [("20ms", 0.02), ("1.5s", 1.5), ("10m", 600.0), ("2h", 7200.0), ("0", 0.0), (".5 s", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, "--wait") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "20", "fast", "-1s", "1 day", "1e3s", "nan", "1.s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ParameterError, match="--wait takes a duration such as 20ms"):
        parse_duration(text, "--wait")


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:8000", ("127.0.0.1", 8000)), ("[::1]:0", ("::1", 0)), ("localhost:80", ("localhost", 80))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["8000", ":8000", "host:", "::1:8000", "host:http", "host:99999", "host:²"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ParameterError):
        parse_address(text)


def test_the_limits_of_the_command_are_those_of_the_service() -> None:
    given = {name: parameter.default for name, parameter in inspect.signature(serve).parameters.items()}
    given |= {name: parse_duration(given[name], name) for name in ("wait", "idle")}
    limits = asdict(Limits())
    del limits["remembered"]
    assert {name: given[name] for name in limits} == limits


DIGITS = ("--model", "digits_resnet8", "--state", "state")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("serve",), "needs --model and --state, or --demo"),
        (("serve", "--demo", "--model", "digits_resnet8"), "--demo has its own model"),
        (("serve", "--demo", "--recipe", "cifar10-c"), "and --recipe."),
        (("serve", "tnet", *DIGITS), "Did you mean 'tent'?"),
        (("serve", "tent", "--model", "digit_resnet8", "--state", "s"), "Did you mean 'digits_resnet8'?"),
        (("serve", "tent", *DIGITS, "--wait", "20"), "--wait takes a duration"),
        (("serve", "tent", *DIGITS, "--wait", "1m"), "at most 10s"),
        (("serve", "tent", *DIGITS, "--listen", "0.0.0.0:8000"), "Give a --token-file"),
        (("serve", "tent", *DIGITS, "--listen", "nowhere"), "--listen takes HOST:PORT"),
        (("replay", "state/streams/a", "record"), "ctta replay needs --model"),
        (("replay", "state", "record", "--model", "digits_resnet8"), "STATE/streams/NAME"),
    ],
)
def test_wrong_usage_is_one_line(words: tuple[str, ...], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("missing", ["prometheus_client", "starlette", "uvicorn"])
def test_a_missing_extra_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("ctta.serve.", missing))]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("prometheus_client", "starlette", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    result = run("serve", "--demo")
    assert result.exit_code == 1
    assert "pip install 'ctta[serve]'" in result.stderr


@pytest.mark.parametrize("words", [("serve",), ("replay",), ("run",), ("train", "digits"), ()])
def test_the_help_shows_no_type_for_flags(words: tuple[str, ...]) -> None:
    said = run(*words, "--help").stdout
    assert "--help" in said
    assert "<bool>" not in said and "BOOLEAN" not in said


def test_class_names_are_as_many_as_the_classes(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("cat\ndog\n\n", encoding="utf-8")
    assert read_names(file, 2) == ("cat", "dog")
    assert read_names(None, 2) is None
    with pytest.raises(BadData, match="3 classes; it has 2"):
        read_names(file, 3)


def test_class_names_that_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_bytes("Käfer\n".encode("latin-1"))
    with pytest.raises(BadData, match=r"names\.txt is not UTF-8 text"):
        read_names(file, 1)


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:80", "box:8000"])
def test_a_service_without_tokens_answers_to_its_own_names(host: str) -> None:
    check(host, None, frozenset({"box"}))
    check(host, f"http://{host}", frozenset({"box"}))


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("evil.example", None),
        (None, None),
        ("[", None),
        ("localhost:80", "http://evil.example"),
        ("localhost:80", "http://["),
    ],
)
def test_and_to_no_others(host: str | None, origin: str | None) -> None:
    with pytest.raises(NotAllowed):
        check(host, origin, frozenset({"box"}))


def test_what_is_this_machine_only() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))
