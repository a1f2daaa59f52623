"""ctta ls: lists of everything available by name."""

from __future__ import annotations

import json

from cli.command import ctta
from ctta.corruptions import CORRUPTIONS
from ctta.registry import methods
from ctta.version import __version__

PROTOCOLS = {
    *("continual", "gradual", "mixed", "correlated", "recurring", "recurring-correlated", "random-order"),
    *("clean", "then-clean", "then-clean-resting", "cdc", "mixed-correlated", "ccc"),
    *("reset-at-shift", "episodic", "wild-single", "wild-mixed", "wild-sorted"),
}


def test_ls_names_every_method_corruption_and_protocol() -> None:
    assert [row["method"] for row in json.loads(ctta("ls", "methods", "--json").stdout)] == list(methods())
    streams = {row["stream"] for row in json.loads(ctta("ls", "streams", "--json").stdout)}
    assert streams >= {"digits", *CORRUPTIONS}
    protocols = {row["protocol"]: row for row in json.loads(ctta("ls", "protocols", "--json").stdout)}
    assert set(protocols) == PROTOCOLS and all(row["summary"].strip() for row in protocols.values())
    for what in ("methods", "streams", "models", "protocols"):
        result = ctta("ls", what)
        assert result.exit_code == 0
        assert result.stdout
    assert ctta("ls", "planets").exit_code == 2


def test_the_version_is_printed() -> None:
    assert ctta("--version").stdout == f"ctta {__version__}\n"
