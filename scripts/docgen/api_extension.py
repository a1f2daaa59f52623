"""Griffe extension that prepares the package for the API pages of the site: links, examples and overrides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe
from pymdownx.slugs import slugify

from docgen.source import ROOT

_EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
_PAGE = re.compile(r"\bdocs/([\w-]+\.md)\b")
#: A name in single backticks that may have an entry of its own: that of a class, or a dotted one.
_NAME = re.compile(r"(?<!`)`((?=[A-Z]|\w+\.)[\w.]+)`(?!`)")
_slug = slugify(case="lower")  # as in mkdocs.yml


class ApiExtension(griffe.Extension):
    """Changes what griffe has read; mkdocstrings renders the result."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change every object of the package.

        Args:
            pkg: The package.
        """
        if "methods" in pkg.members:
            pkg["methods"].docstring = None  # the page of the methods begins with an introduction of its own
        for found in list(_objects(pkg)):
            if isinstance(found, griffe.Class):
                _choose_members(found)
            if isinstance(found, griffe.Function):
                _remove_empty_defaults(found)
            if found.docstring is not None:
                found.docstring.value = _markdown(found.docstring.value, found)


def _objects(top: griffe.Object) -> Iterator[griffe.Object]:
    yield top
    for member in top.members.values():
        if isinstance(member, griffe.Object):
            yield from _objects(member)


def _choose_members(cls: griffe.Class) -> None:
    """Leave out what a public base class documents, and take in what only private base classes define."""
    bases = cls.mro()
    above = {name for base in bases if not _is_private(base) for name in base.all_members}
    for name in above & set(cls.members):
        if not name.startswith("_"):
            cls.del_member(name)
    for base in filter(_is_private, bases):
        for name in [name for name in base.members if name not in above | set(cls.members)]:
            cls.set_member(name, griffe.Alias(name, base.members[name], parent=cls))


def _is_private(cls: griffe.Class) -> bool:
    return any(part.startswith("_") for part in cls.path.split("."))


def _remove_empty_defaults(function: griffe.Function) -> None:
    """Remove the defaults () and {} that griffe gives to *args and **kwargs."""
    for parameter in function.parameters:
        if parameter.kind in (griffe.ParameterKind.var_positional, griffe.ParameterKind.var_keyword):
            parameter.default = None


def _markdown(docstring: str, owner: griffe.Object) -> str:
    text = _EXAMPLE.sub("Examples:", docstring)  # the name by which griffe knows the section
    text = _PAGE.sub(lambda page: f"[{page[1]}][{_first_heading(page[1])}]", text)
    return _NAME.sub(lambda name: _link(name[1], owner), text)


def _first_heading(page: str) -> str:
    first = (ROOT / "docs" / page).read_text(encoding="utf-8").partition("\n")[0]
    return str(_slug(first.removeprefix("# "), "-"))


def _link(name: str, owner: griffe.Object) -> str:
    """Link a name to its entry, if a page has one."""
    first, dot, rest = name.partition(".")
    try:
        path = name if first == "ctta" else owner.resolve(first) + dot + rest
    except griffe.NameResolutionError:
        path = f"ctta.{name}"
    return f'<autoref optional identifier="{path}"><code>{name}</code></autoref>'
