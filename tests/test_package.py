"""The package's metadata: links of its page on PyPI, the address of the repository, and the citation."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import ctta
import site_hooks

ROOT = Path(__file__).parents[1]

pytest.importorskip("hatchling", reason="hatchling builds the package, and is not installed")


def test_relative_links_and_pictures_become_absolute_and_others_stay() -> None:
    import hatch_build  # noqa: PLC0415

    text = "![a](docs/a.svg) [b](docs/b.md#c) [d](#d) [e](https://e.org/x) ![f](https://f.org/f.png)"
    assert hatch_build.absolute_links(text, "https://host/o/r") == (
        "![a](https://host/o/r/raw/main/docs/a.svg) [b](https://host/o/r/blob/main/docs/b.md#c) [d](#d) "
        "[e](https://e.org/x) ![f](https://f.org/f.png)"
    )


def test_the_readme_on_pypi_has_no_relative_link() -> None:
    import hatch_build  # noqa: PLC0415

    text = hatch_build.absolute_links((ROOT / "README.md").read_text(encoding="utf-8"), "https://host/o/r")
    assert "https://host/o/r/raw/main/docs/" in text
    assert not [target for target in re.findall(r"\]\(([^)]+)\)", text) if not target.startswith(("https://", "#"))]


def test_no_file_but_the_citation_repeats_the_address_of_the_repository() -> None:
    name = "/".join(site_hooks.repository().split("/")[-2:])
    command = ["git", "grep", "--count", "--fixed-strings", name]
    found = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    if found.returncode > 1:
        pytest.skip("this is not a git repository")
    assert found.stdout.splitlines() == ["CITATION.cff:1", "pyproject.toml:1"]


def test_the_citation_names_this_repository_and_version() -> None:
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f'repository-code: "{site_hooks.repository()}"' in lines
    (version,) = (line for line in lines if line.startswith("version: "))
    assert version.split()[1] == ctta.__version__
