"""ctta ls: lists of everything available by name."""

from __future__ import annotations

import json

from cli.command import ctta
from ctta.corruptions import CORRUPTIONS
from ctta.registry import methods
from ctta.version import __version__


def test_ls_names_every_method_and_corruption() -> None:
    assert [row["method"] for row in json.loads(ctta("ls", "methods", "--json").stdout)] == list(methods())
    streams = {row["stream"] for row in json.loads(ctta("ls", "streams", "--json").stdout)}
    assert streams >= {"digits", *CORRUPTIONS}
    for what in ("methods", "streams", "models"):
        result = ctta("ls", what)
        assert result.exit_code == 0
        assert result.stdout
    assert ctta("ls", "planets").exit_code == 2


def test_the_version_is_printed() -> None:
    assert ctta("--version").stdout == f"ctta {__version__}\n"
