"""The extra `serve` holds everything that `ctta serve --demo` imports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytest.importorskip("starlette")

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.serve

CHILD = """
import json, sys

class Missing:
    def __init__(self, names):
        self.names = set(names)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing(json.load(sys.stdin)))
from ctta.cli.served import load_source
from ctta.serve import front, http, server
from ctta.serve.demo import DriftingClient

load_source("dmse", "digits_resnet8", None, [], "cpu", "digits")
DriftingClient("127.0.0.1", 1)
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_with(texts: list[str]) -> set[str]:
    """The distributions that pip installs for some requirements."""
    found: set[str] = set()
    left = [Requirement(text) for text in texts]
    while left:
        wanted = left.pop()
        applies = wanted.marker is None or any(wanted.marker.evaluate({"extra": e}) for e in ("", *wanted.extras))
        if not applies or normal(wanted.name) in found:
            continue
        found.add(normal(wanted.name))
        try:
            left += [Requirement(text) for text in requires(wanted.name) or () if "extra ==" not in text]
        except PackageNotFoundError:
            continue
    return found


def test_the_demo_imports_nothing_beyond_the_extra_serve() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    allowed = installed_with([*project["dependencies"], *project["optional-dependencies"]["serve"]]) | {"ctta"}
    foreign = [
        module
        for module, owners in packages_distributions().items()
        if not {normal(owner) for owner in owners} & allowed
    ]
    assert "pytest" in foreign and not {"ctta", "torch", "starlette"} & set(foreign)
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps(foreign),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
