"""Hooks for what the documentation site does differently from GitHub; mkdocs calls them while it builds.

A page of docs/ links to sources, tests and run records by relative paths, which work on GitHub. They are not part of
the site, so such a link becomes the address of the file in the repository. A path that does not exist stays as it is,
and fails the strict build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomllib

from docgen.equations import draw_equations

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_CELL = re.compile(r"<t[dh].*?</t[dh]>", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\n]*)\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the address of the repository, and the pages of the methods, so that a new one need not be listed by hand.

    Args:
        config: The configuration of the site.
    """
    config.extra["repository"] = repository()
    link = {"icon": "fontawesome/brands/github", "link": repository(), "name": "ctta on GitHub"}
    config.extra["social"] = [link]
    (methods,) = (entry["Methods"] for entry in config.nav or [] if "Methods" in entry)
    for path in sorted(Path(config.docs_dir, "methods").glob("*.md")):
        if path.name != "README.md":
            title = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            methods.append({title[1] if title else path.stem: f"methods/{path.name}"})
    return config


def repository() -> str:
    """The address of the repository, which pyproject.toml names."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(content["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"])


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave the site to the repository.

    Args:
        markdown: The text of the page.
        page: The page.
        config: The configuration of the site.
        files: The files of the site.
    """
    folder = Path(config.docs_dir, page.file.src_uri).parent
    return _LINK.sub(lambda link: _rewritten(link, folder, config, files), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Draw the equations of a page, and show a bar in code inside a table as GitHub does: without its backslash.

    Args:
        html: The content of the page.
    """
    return draw_equations(_CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html))


def _rewritten(link: re.Match[str], folder: Path, config: MkDocsConfig, files: Files) -> str:
    target = (folder / link["path"]).resolve()
    docs = Path(config.docs_dir)
    found = files.get_file_from_path(target.relative_to(docs).as_posix()) if target.is_relative_to(docs) else None
    on_site = found is not None and found.inclusion.is_included()
    if on_site or not target.exists() or not target.is_relative_to(ROOT):
        return link[0]
    kind = "tree" if target.is_dir() else "blob"
    address = f"{config.extra['repository']}/{kind}/main/{target.relative_to(ROOT).as_posix()}"
    return f"[{link['text']}]({address}{link['anchor'] or ''})"
