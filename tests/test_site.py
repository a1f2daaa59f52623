"""The documentation site: links, equations, and nothing loaded from other hosts."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import check_site
import ctta
import site_hooks
from ctta.protocol.built_in import BUILT_IN
from docgen.equations import draw_equations
from docgen.errors import DocsError

DOCS = Path(__file__).parents[1] / "docs"


PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("api/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_code_on_a_page_can_be_parsed_and_names_what_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for code in blocks:
        ast.parse("\n".join(line[4:] for line in code.splitlines() if line[:4] == ">>> ") or code)
    inline = re.findall(r"`(ctta\.[\w.]+)[`(]", text)
    for name in set(re.findall(r"\bctta((?:\.[A-Za-z_]\w*)+)\b", "\n".join([*blocks, *inline]))):
        reached: Any = ctta
        for part in name.strip(".").split("."):
            if not hasattr(reached, part):
                importlib.import_module(f"{reached.__name__}.{part}")
            reached = getattr(reached, part)


def test_the_page_about_benchmarks_names_every_protocol() -> None:
    page = (DOCS / "benchmark-your-method.md").read_text(encoding="utf-8")
    assert [protocol.name for protocol in BUILT_IN if f"`{protocol.name}`" not in page] == []


def written(folder: Path, page: str) -> Path:
    (folder / "search").mkdir()
    (folder / "search" / "search_index.js").write_text("var __index = {}")
    (folder / "index.html").write_text(page)
    return folder


@pytest.mark.parametrize(
    "part",
    [
        '<script src="https://unpkg.com/iframe-worker/shim"></script>',
        '<link rel="stylesheet" href="//fonts.googleapis.com/css?family=Roboto">',
        '<link rel="preconnect" href="https://fonts.gstatic.com" crossorigin>',
        '<img src="http://example.org/a.png">',
        "<style>@font-face { src: url('https://example.org/a.woff2') }</style>",
        '<p style="background: url(https://example.org/a.png)">',
        '<a data-md-component="source" href="https://github.com/a/b">stars</a>',
        '<pre class="mermaid"><code>graph LR</code></pre>',
    ],
)
def test_a_page_that_needs_another_host_fails(tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_site.main([str(written(tmp_path, f"<p>text</p>{part}"))]) == 1
    assert "index.html: <" in capsys.readouterr().out


def test_local_files_and_links_to_other_sites_pass(tmp_path: Path) -> None:
    page = '<link rel="stylesheet" href="a.css"><script src="a.js"></script><a href="https://example.org">there</a>'
    assert check_site.main([str(written(tmp_path, page + '<link rel="canonical" href="https://example.org">'))]) == 0


def test_a_style_sheet_that_imports_another_host_fails_and_so_does_an_empty_site(tmp_path: Path) -> None:
    assert check_site.main([str(tmp_path)]) == 1
    (written(tmp_path, "") / "a.css").write_text("@import 'https://example.org/b.css';")
    assert list(check_site.loaded_from_elsewhere(tmp_path)) == ["a.css: loads https://example.org/b.css"]


def rewritten(link: str) -> str:
    files = SimpleNamespace(get_file_from_path=lambda path: None)
    config = SimpleNamespace(docs_dir=str(DOCS), extra={"repository": "https://host/repo"})
    page = SimpleNamespace(file=SimpleNamespace(src_uri="methods/tent.md"))
    return site_hooks.on_page_markdown(link, page=page, config=config, files=files)  # type: ignore[arg-type]


def test_a_link_to_a_source_file_leads_to_the_repository_and_a_broken_one_stays_broken() -> None:
    assert rewritten("see [tent.py](../../src/ctta/methods/tent.py)!") == (
        "see [tent.py](https://host/repo/blob/main/src/ctta/methods/tent.py)!"
    )
    assert rewritten("[records](../results)") == "[records](https://host/repo/tree/main/docs/results)"
    assert rewritten("[gone](../../src/ctta/gone.py)") == "[gone](../../src/ctta/gone.py)"
    assert rewritten("[there](https://example.org/a)") == "[there](https://example.org/a)"
    assert rewritten("![figure](../demo.png)") == "![figure](../demo.png)"


def test_an_equation_becomes_a_drawing_that_can_be_read_aloud() -> None:
    page = draw_equations(r'<p>with <span class="arithmatex">\(i \ge s\)</span></p>')
    assert re.search(r'<svg [^>]*aria-label="i \\ge s"[^>]*><path d="M[^"]+Z"/></svg>', page)
    assert "arithmatex" not in page
    display = '<div class="arithmatex">\\[\n\\frac{a}{b} &lt; 1\n\\]</div>'
    assert 'aria-label="\\frac{a}{b} &lt; 1"' in draw_equations(display)
    assert draw_equations(display).startswith('<div class="math-display">')


def test_an_equation_that_cannot_be_drawn_is_named() -> None:
    with pytest.raises(DocsError, match="unheard"):
        draw_equations(r'<span class="arithmatex">\(\unheard{x}\)</span>')
