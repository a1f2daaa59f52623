"""The parts that need no torch; `make pythons` runs this file with other Python versions, without torch."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import ctta
from ctta import errors
from ctta._system.digests import md5_of, sha256_of
from ctta._system.files import foreign, write_atomically
from ctta.cli import app
from ctta.cli.toml_file import UnknownCommand, read_lines

# Dependencies in pyproject.toml that may be missing here.
INSTALLED = {
    *("torch", "numpy", "safetensors", "PIL", "sklearn", "matplotlib", "jinja2", "tensorboard", "ray"),
    *("starlette", "uvicorn", "prometheus_client", "grpc", "google"),
}


def test_every_module_imports_or_misses_an_installed_package() -> None:
    names = [module.name for module in pkgutil.walk_packages(ctta.__path__, "ctta.", onerror=lambda name: None)]
    assert len(names) > 20
    for name in names:
        try:
            importlib.import_module(name)
        except errors.MissingExtra as error:
            assert "pip install 'ctta[" in str(error), name
        except ModuleNotFoundError as error:
            assert error.name is not None and error.name.partition(".")[0] in INSTALLED, name


def test_every_error_is_a_ctta_error_and_says_what_it_is() -> None:
    found = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if cls.__module__ == errors.__name__]
    assert len(found) > 20
    assert all(issubclass(cls, errors.CttaError) and cls.__doc__ for cls in found)


def test_a_file_is_replaced_as_a_whole_and_known_by_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "a"
    for content in (b"first", b"second"):
        write_atomically(path, content)
        assert path.read_bytes() == content and [p.name for p in path.parent.iterdir()] == ["a"]
        assert sha256_of(path) == hashlib.sha256(content).hexdigest()
        assert md5_of(path) == hashlib.md5(content).hexdigest()


def test_a_file_is_written_although_another_writer_s_temporary_file_vanishes(tmp_path: Path) -> None:
    # A link to nothing is listed and then not found, as a file that is renamed in between.
    (tmp_path / ".a.0123456789abcdef.tmp").symlink_to(tmp_path / "renamed")
    write_atomically(tmp_path / "a", b"content")
    assert (tmp_path / "a").read_bytes() == b"content"


def test_a_file_name_may_look_like_a_pattern(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a**[b]", b"content")
    assert (tmp_path / "a**[b]").read_bytes() == b"content"


def test_an_html_page_in_place_of_data_is_recognised() -> None:
    assert foreign(b"\n<!DOCTYPE html><html>") == "an HTML page" and foreign(b"\x93NUMPY") is None


def test_every_command_helps() -> None:
    outside = CliRunner().invoke(app, ["--help"])
    assert outside.exit_code == 0 and "Continual test-time adaptation" in outside.output
    commands = ("demo", "ls", "run", "reproduce", "compare", "report", "do", "doctor", "corrupt", "fetch", "train")
    for command in commands:
        assert command in outside.output
        inside = CliRunner().invoke(app, [command, "--help"])
        assert inside.exit_code == 0 and "Usage" in inside.output, command


def test_a_command_is_read_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('command = "run"\nmethod = "tent"\nstream = "digits"\nimages = 20\n')
    [line] = read_lines(file, get_command(app))
    assert line.path == ("run",) and {"tent", "digits", "--images", "20"} <= set(line.arguments)
    file.write_text('command = "rum"\n')
    with pytest.raises(UnknownCommand, match="run"):
        read_lines(file, get_command(app))
