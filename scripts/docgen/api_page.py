"""The API reference: every public name with its signature and its docstring."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module

import ctta
from docgen.coverage import methods_of, public
from docgen.docstrings import Docstring, parse
from docgen.markdown import fenced, prose, table
from docgen.source import Source, source_of

#: Submodules on the page, after the names of the package itself.
MODULES = (
    "adapter",
    "freeze",
    "classifier",
    "registry",
    "options",
    "statistics",
    "functional",
    "norms",
    "teacher",
    "prototypes",
    "projection",
    "two_views",
    "augment",
    "doctor",
    "datasets.dataset",
    "datasets.catalog",
    "protocol",
    "streams.protocols",
    "streams.stream",
    "errors",
)

_INTRODUCTION = """# API

Every public name of `ctta`, from its docstrings; after a change run `python scripts/api_docs.py`. The methods and
their equations are explained in [methods](methods/README.md)."""


def page() -> str:
    """Return the page."""
    parts = [_INTRODUCTION, "## ctta", prose(parse(ctta.__doc__).summary, docs=".")]
    shown = set()
    for name in sorted(ctta.__all__, key=str.lower):
        value = getattr(ctta, name)
        if hasattr(value, "__qualname__") and value.__qualname__ not in shown:
            shown.add(value.__qualname__)
            parts += _entry(value)
    for name in MODULES:
        module = import_module(f"ctta.{name}")
        own = [value for _, value in public(module) if value not in [getattr(ctta, n) for n in ctta.__all__]]
        parts += [f"## ctta.{name}", *_text(parse(module.__doc__), first=True)]
        parts += [_tree(str(module.__doc__))] if name == "errors" else []
        parts += [part for value in own for part in _entry(value)]
    return "\n\n".join(parts) + "\n"


def _tree(docstring: str) -> str:
    """Show the tree of exceptions as written."""
    return "```\n" + docstring.partition("\n\n")[2].strip() + "\n```"


def _entry(value: object) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"### {value.__name__}"
        if not issubclass(value, ctta.CttaError):
            yield fenced(_class_signature(value))
        yield from _text(parse(value.__doc__))
        for name, function in methods_of(value):
            source = source_of(function.__module__)  # a private base class may define it
            yield f"#### {value.__name__}.{name}"
            yield fenced(_signature(source, source.function(function.__qualname__)))
            yield from _text(parse(function.__doc__))
    elif inspect.isfunction(value):
        source = source_of(value.__module__)
        yield f"### {value.__name__}"
        yield fenced(_signature(source, source.function(value.__name__)))
        yield from _text(parse(value.__doc__))


def _text(docstring: Docstring, *, first: bool = False) -> Iterator[str]:
    for paragraph in docstring.paragraphs[:1] if first else docstring.paragraphs:
        yield prose(paragraph, docs=".")
    for section, title in (("Args", "argument"), ("Attributes", "attribute")):
        if rows := [(f"`{name}`", prose(text, docs=".")) for name, text in docstring.entries.get(section, {}).items()]:
            yield table([title, "meaning"], rows)
    for section in ("Returns", "Yields"):
        if section in docstring.texts:
            yield f"{section}: {prose(' '.join(docstring.texts[section].split()), docs='.')}"
    if raised := docstring.entries.get("Raises"):
        yield "Raises: " + " ".join(f"`{name}`: {prose(text, docs='.')}" for name, text in raised.items())
    if "Example" in docstring.texts:
        yield fenced(docstring.texts["Example"])


def _class_signature(cls: type) -> str:
    source = source_of(cls.__module__)
    body = next(node for node in source.tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__).body
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return _signature(source, node).replace("__init__", cls.__name__).removesuffix(" -> None")
    fields = [ast.unparse(node) for node in body if isinstance(node, ast.AnnAssign)] if "__init__" in vars(cls) else []
    return f"{cls.__name__}({', '.join(fields)})"


def _signature(source: Source, node: ast.FunctionDef) -> str:
    """Return a signature as written, without ``def`` and ``self``."""
    lines = source.lines[node.lineno - 1 : node.body[0].lineno - 1]
    text = inspect.cleandoc("\n".join(re.sub(r"\s+# .*", "", line) for line in lines))
    text = text.removeprefix("def ").rstrip().removesuffix(":")
    return re.sub(r"\((\s*)(?:self|cls)(?:,\s*|(?=\)))", r"(\1", text, count=1)
