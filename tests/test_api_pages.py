"""The API pages name every public name; mkdocstrings fills in its docstring when the site is built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import pytest

import ctta
from docgen.coverage import public

PAGES = sorted((Path(__file__).parents[1] / "docs" / "api").glob("*.md"))
#: A directive of mkdocstrings: the name, and its options on indented lines.
DIRECTIVE = re.compile(r"^::: (\S+)\n((?: +.*\n)*)", re.MULTILINE)


def shown() -> Iterator[object]:
    for name, options in (found for page in PAGES for found in DIRECTIVE.findall(page.read_text(encoding="utf-8"))):
        value = resolve_name(name)
        yield value
        if isinstance(value, ModuleType):
            chosen = re.search(r"members: \[(.*)\]", options)
            names = chosen[1].split(", ") if chosen else getattr(value, "__all__", None) or dict(public(value))
            yield from (getattr(value, member) for member in names)


@pytest.fixture(scope="module")
def entries() -> list[object]:
    return list(shown())


@pytest.mark.parametrize("name", sorted(set(ctta.__all__) - {"__version__"}))
def test_a_public_name_is_on_an_api_page(name: str, entries: list[object]) -> None:
    assert any(entry is getattr(ctta, name) for entry in entries)
