"""The generated regions of docs/methods/README.md."""

from __future__ import annotations

import ast
import re

from ctta.adapter import Adapter
from ctta.method_table import AFTER_NOTE, after_mark
from ctta.options import AnswerOptions, StateOptions
from ctta.registry import methods
from docgen.docstrings import parse
from docgen.errors import DocsError
from docgen.markdown import code, prose, table
from docgen.method_page import Page, keyword_only
from docgen.source import source_of

_CITED = re.compile(r'[^";]+"[^"]+"(?:, [^.;]*?\d{4})?')
_ORDER = [
    *("source", "bn", "bnema", "dua", "lame", "t3a", "tent", "rpl", "shot", "eata", "rdumb", "asr", "sar", "deyo"),
    *("memo", "cotta", "petal", "rmt", "obao", "santa", "dmse", "rotta", "petta", "note", "roid", "cmf", "palm", "law"),
]


def render(what: str) -> str:
    """Return the content of a region.

    Args:
        what: "index", one row per method, or "shared", the options that methods share.
    """
    if what == "index":
        return index()
    if what == "shared":
        return shared()
    raise DocsError(f"there is no generated region {what!r}")


def index() -> str:
    """Return a table with one row per method."""
    header = ["method", "paper", "in a sentence", "trains", "passes", "source-free", "smallest batch"]
    rows = []
    for name, cls in ordered_methods().items():
        page = Page(name, cls)
        summary, *rest = map(prose, parse(ast.get_docstring(page.source.tree)).paragraphs)
        cited = "; ".join(found.strip() for found in _CITED.findall(rest[0])) if rest else "none"
        sentence = re.sub(rf"^{cls.__name__}[^:]*: |^BN-adapt: ", "", summary)
        facts = [page.trains, page.passes, page.source_free, page.smallest_batch]
        rows.append(
            [f"[{cls.__name__}]({name}.md){after_mark(name)}", cited, sentence[:1].upper() + sentence[1:], *facts]
        )
    return f"{table(header, rows)}\n\n{AFTER_NOTE}"


def shared() -> str:
    """Return a table of the options of every adapter, as Adapter declares and describes them."""
    node = source_of("ctta.adapter").function("Adapter.__init__")
    texts = parse(Adapter.__doc__).arguments
    rows = [
        (
            f"`{argument.arg}`",
            code(argument.annotation),
            code(default),
            _takers(argument.arg),
            prose(texts[argument.arg]),
        )
        for argument, default in keyword_only(node)
    ]
    return table(["option", "type", "default", "taken by", "meaning"], rows)


def _takers(option: str) -> str:
    if option in AnswerOptions.__annotations__:
        without = [cls.__name__ for cls in ordered_methods().values() if option not in cls.arguments()]
        return "every method" + (f" except {', '.join(without)}" if without else "")
    if option in StateOptions.__annotations__:
        return "methods that keep a state"
    learners = [cls for cls in ordered_methods().values() if cls.learns]
    without = [cls.__name__ for cls in learners if option not in cls.arguments()]
    return "methods that learn by gradients" + (f", except {', '.join(without)}" if without else "")


def ordered_methods() -> dict[str, type[Adapter]]:
    """Return the methods of the package, simplest first; one that is not in the list comes last."""
    known = {name: cls for name, cls in methods().items() if cls.__module__.startswith("ctta.methods.")}
    return {name: known[name] for name in sorted(known, key=lambda n: (_ORDER.index(n) if n in _ORDER else 99, n))}
