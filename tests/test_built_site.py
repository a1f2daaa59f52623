"""The built site in a browser, opened from its folder: `make docs` builds it and runs these tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ctta

SITE = Path(__file__).parents[1] / "site"

pytestmark = pytest.mark.docs


def test_search_works_from_a_folder_and_asks_no_other_host(browser: Any) -> None:
    page, asked = browser.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((SITE / "index.html").as_uri() + "?q=recompute")
    page.wait_for_selector(".md-search-result__item", state="attached", timeout=120_000)
    assert any("speed.html" in link.get_attribute("href") for link in page.locator(".md-search-result__link").all())
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "about", "blob"}


def test_no_page_is_wider_than_a_phone(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    widths = {}
    for path in sorted(SITE.rglob("*.html")):
        page.goto(path.as_uri())
        widths[path.name] = page.evaluate("document.documentElement.scrollWidth")
    assert len(widths) > 40
    assert {name: width for name, width in widths.items() if width > 390} == {}


def test_a_table_says_that_it_scrolls_only_while_it_is_wider_than_the_page(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto((SITE / "speed.html").as_uri())
    hints = page.locator(".table-hint:visible")
    hints.first.wait_for(timeout=10_000)
    assert "Scroll sideways for more columns" in hints.first.inner_text()
    page.goto((SITE / "index.html").as_uri())
    page.locator(".table-hint").first.wait_for(state="attached", timeout=10_000)
    assert hints.count() == 0


def test_the_api_shows_a_method_with_its_arguments_and_an_example(browser: Any) -> None:
    page = browser.new_page()
    page.goto((SITE / "api" / "methods.html").as_uri())
    assert "one file per paper" not in page.locator("article").inner_text()
    trio = page.locator(".doc-class", has=page.locator('[id="ctta.methods.Trio"]'))
    text = trio.inner_text()
    assert "teacher_views: int = 1" in text and "How many versions of each image the teacher looks at" in text
    assert ">>> model = ctta.Trio(bn_cnn())" in text
    assert trio.get_by_role("link", name="Classifier").first.get_attribute("href") == "adapters.html#ctta.Classifier"
    assert [heading.get_attribute("id") for heading in trio.locator("h3").all()] == [
        f"ctta.methods.Trio.{name}" for name in ("student_passes", "look", "augment", "recalibrate")
    ]


def test_the_api_shows_the_methods_of_private_base_classes_and_the_tree_of_errors(browser: Any) -> None:
    page = browser.new_page()
    page.goto((SITE / "api" / "adapters.html").as_uri())
    names = [heading.get_attribute("id") for heading in page.locator("h3").all()]
    assert {"ctta.Adapter.step", "ctta.Adapter.descend", "ctta.Adapter.reset"} <= set(names)
    page.goto((SITE / "api" / "errors.html").as_uri())
    assert "├── ModelError\n│   ├── NotAModule" in page.locator("pre").first.inner_text()


def test_every_public_name_has_a_heading_on_an_api_page() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (SITE / "api").glob("*.html"))
    headings = {anchor.rpartition(".")[2] for anchor in re.findall(r'<h[23] id="(ctta\.[^"]+)"', pages)}
    assert set(ctta.__all__) - headings == {"__version__", "method"}  # method is another name of get_method
