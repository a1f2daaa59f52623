"""The script of the page in a browser: it sorts and filters the tables, and says which of them scroll."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ctta.report import write_report
from run_folders import make_run, record_of, steps_of, write_run

WIDE = tuple(f"weather_{number}" for number in range(20))

pytestmark = pytest.mark.docs


@pytest.fixture
def page(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A page with a table of three rows and three domains, and one with a row and twenty domains."""
    monkeypatch.setattr("ctta.report.sections.drawings", lambda group, prefix: [])
    for method, wrong in {"source": (9, 5, 6), "tent": (4, 2, 3), "dmse": (3, 4, 1)}.items():
        make_run(tmp_path / "runs", method, wrong)
    steps = steps_of((1,) * len(WIDE), WIDE)
    write_run(tmp_path / "runs", record_of("bn", steps, corruptions=list(WIDE)), steps)
    write_report([tmp_path / "runs"], tmp_path / "page.html")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto((tmp_path / "page.html").as_uri())
    return page


def table(page: Any, method: str) -> Any:
    return page.locator("section.group", has=page.get_by_role("rowheader", name=method))


def hint(page: Any, method: str) -> Any:
    return table(page, method).get_by_text("Scroll sideways for more columns")


def test_a_table_says_that_it_scrolls_only_while_it_is_wider_than_the_page(page: Any) -> None:
    for width, shown in ((1280, (False, True)), (300, (True, True)), (1280, (False, True))):
        page.set_viewport_size({"width": width, "height": 800})
        for method, wanted in zip(("tent", "bn"), shown, strict=True):
            hint(page, method).wait_for(state="visible" if wanted else "hidden", timeout=10_000)


def test_sorting_by_difference_puts_the_reference_row_where_zero_belongs(page: Any) -> None:
    head = table(page, "tent").get_by_role("columnheader", name="difference")
    orders = []
    for _ in range(3):
        head.get_by_role("button").click()
        rows = table(page, "tent").get_by_role("rowheader").all_inner_texts()
        orders.append((head.get_attribute("aria-sort"), [row.strip() for row in rows]))
    assert orders == [
        ("ascending", ["dmse", "tent", "source"]),
        ("descending", ["source", "tent", "dmse"]),
        (None, ["source", "dmse", "tent"]),
    ]


def test_every_header_shows_that_it_can_be_clicked(page: Any) -> None:
    marks = page.eval_on_selector_all("thead th button", "all => all.map(b => getComputedStyle(b, '::after').content)")
    assert len(marks) == len(page.locator("thead th").all()) and set(marks) == {'"↕"'}


def test_the_filter_hides_groups_with_their_links_and_runs(page: Any) -> None:
    search = page.get_by_role("searchbox")
    links, headings = page.locator("nav li:visible"), page.locator("h2:visible, h3:visible")
    assert (links.count(), headings.filter(has_text="cifar10-c").count()) == (3, 4)
    search.fill("tent")
    assert (links.count(), headings.filter(has_text="cifar10-c").count()) == (2, 2)
    assert links.first.inner_text() == table(page, "tent").locator("h2").inner_text()
    assert links.last.inner_text().startswith("Runs")
    search.fill("nothing like this")
    assert (links.count(), headings.filter(has_text="cifar10-c").count()) == (1, 0)
    assert page.get_by_role("status").inner_text().strip() == "No run has such a name."
    search.fill("")
    assert links.count() == 3 and page.get_by_role("status").inner_text() == ""
