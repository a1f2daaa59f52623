"""The built site in a browser, opened from its folder: `make docs` builds it and runs these tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SITE = Path(__file__).parents[1] / "site"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.docs,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, as Debian's package chromium installs it"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


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
