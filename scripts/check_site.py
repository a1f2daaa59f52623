"""Check that a built site loads nothing from another host, so that it works without a network.

python scripts/check_site.py [FOLDER]

Ordinary links to other sites are fine: they load nothing until a reader follows them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

#: Attributes by which an element loads something, apart from the href of a <link>.
_LOADS = {"src", "srcset", "data", "poster", "background"}
#: Links that describe the page and load nothing.
_ONLY_SAID = {"canonical", "alternate", "author", "license", "next", "prev", "help", "search"}
_ELSEWHERE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?\s*((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)
#: Parts of a page for which the theme's script contacts another host: GitHub's for a repository, unpkg's for a diagram.
_ASKING = {"data-md-component": {"source"}, "class": {"mermaid"}}


class _Page(HTMLParser):
    """Collects what a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check the attributes of an element."""
        given = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        loads = [value for name, value in given.items() if name in _LOADS]
        if tag == "link" and not set(given.get("rel", "").split()) <= _ONLY_SAID:
            loads.append(given.get("href", ""))
        if tag in {"use", "image"}:
            loads += [given.get("href", ""), given.get("xlink:href", "")]
        self.found += [f"<{tag}> loads {value}" for value in loads if _ELSEWHERE.match(value)]
        self.found += [f"<{tag}> loads {address}" for address in _IN_STYLE.findall(given.get("style", ""))]
        for name, words in _ASKING.items():
            if asking := words & set(given.get(name, "").split()):
                self.found.append(f'<{tag} {name}="{asking.pop()}"> lets the theme ask another host')

    def handle_data(self, data: str) -> None:
        """Check a style sheet inside the page."""
        if self._in_style:
            self.found += [f"<style> loads {address}" for address in _IN_STYLE.findall(data)]

    def handle_endtag(self, tag: str) -> None:
        """Leave a style sheet."""
        if tag == "style":
            self._in_style = False


def loaded_from_elsewhere(site: Path) -> Iterator[str]:
    """Name everything that the pages, style sheets and drawings of a site load from another host.

    Args:
        site: The folder of the site.
    """
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site)
        if path.suffix in {".html", ".svg"}:
            page = _Page()
            page.feed(path.read_text(encoding="utf-8"))
            yield from (f"{name}: {what}" for what in page.found)
        elif path.suffix == ".css":
            yield from (f"{name}: loads {address}" for address in _IN_STYLE.findall(path.read_text(encoding="utf-8")))


def main(arguments: list[str]) -> int:
    """Print what a site loads from elsewhere; a folder without pages is an error too.

    Args:
        arguments: The folder of the site, by default "site".
    """
    site = Path(arguments[0] if arguments else "site")
    wanted = ("index.html", "search/search_index.js")
    found = [f"{site / name} does not exist" for name in wanted if not (site / name).exists()]
    found += loaded_from_elsewhere(site)
    print("\n".join(found) or f"{site} loads nothing from other hosts")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
