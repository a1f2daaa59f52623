"""Fill the generated parts of docs/methods from the code.

python scripts/method_docs.py            write the pages
python scripts/method_docs.py --check    write nothing; name the stale pages and exit 1 if there are any

A page is written by hand except for its marked regions, ``<!-- generated: KIND -->`` to ``<!-- end -->``. Kinds:

title                 heading, summary and citation, from the module's docstring
about                 the class's docstring
facts                 what it trains, its passes, whether it is source-free, its smallest batch
arguments             the method's own arguments, from the signature and the docstring, then the shared options
recipes               the constructor arguments published per benchmark
lines Eq. 3           every statement or function tagged with that equation
code NAME             a function or method; "functional:entropy" is in another module of the package
code NAME: a | b      of a function, the statements from the first that contains a to the first that contains b
choices [MODULE ...]  every "Paper silent" and "Differs from" of the method's file, and of further modules
index, shared         of README.md: one row per method; the options that methods share
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from docgen import method_index
from docgen.errors import DocsError
from docgen.method_index import ordered_methods
from docgen.method_page import INDEX, Page
from docgen.source import ROOT

DOCS = ROOT / "docs" / "methods"

#: Pages about a part that several methods share, and the method whose modules their regions are filled from.
SHARED = {"come": "tent"}

_REGION = re.compile(r"<!-- generated: (?P<what>.+?) -->\n.*?<!-- end -->", re.DOTALL)


def fresh(path: Path) -> str:
    """Return the text that a page should have: the handwritten part, with its regions filled.

    Args:
        path: The page.
    """
    known = ordered_methods()
    if path.stem == INDEX:
        render = method_index.render
    elif (name := SHARED.get(path.stem, path.stem)) in known:
        render = Page(name, known[name]).render
    else:
        raise DocsError(f"{path.name} is named after no method")

    def fill(match: re.Match[str]) -> str:
        return f"<!-- generated: {match['what']} -->\n{render(match['what'])}\n<!-- end -->"

    try:
        return _REGION.sub(fill, path.read_text(encoding="utf-8"))
    except DocsError as error:
        raise DocsError(f"{path.name}: {error}") from error


def by_hand(text: str) -> str:
    """Return the part of a page that is written by hand.

    Args:
        text: The page.
    """
    return _REGION.sub("", text)


def stale(folder: Path) -> list[str]:
    """Return the pages of a folder that are missing or differ from what the code says.

    Args:
        folder: The folder.
    """
    pages = {path.name: path for path in sorted(folder.glob("*.md"))}
    missing = [f"{name}.md" for name in [*ordered_methods(), INDEX] if f"{name}.md" not in pages]
    return missing + [name for name, path in pages.items() if path.read_text(encoding="utf-8") != fresh(path)]


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or with --check only name the stale ones.

    Args:
        arguments: The command line; by default that of the process.
    """
    parser = argparse.ArgumentParser(description="Fill the generated parts of docs/methods from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and name the stale pages")
    check = parser.parse_args(arguments).check
    try:
        names = stale(DOCS)
        for name in names:
            if not check and (path := DOCS / name).exists():
                path.write_text(fresh(path), encoding="utf-8")
            sys.stdout.write(f"{'stale' if check or not (DOCS / name).exists() else 'written'}: {name}\n")
    except DocsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return int(bool(names)) if check else int(any(not (DOCS / name).exists() for name in names))


if __name__ == "__main__":
    sys.exit(main())
