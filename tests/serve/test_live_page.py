"""The live page in a headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from serve.engine import ask, images, same

pytestmark = pytest.mark.serve
api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("needs Chromium, as Debian's package chromium installs it", allow_module_level=True)

from ctta.serve.page import FILES, content  # noqa: E402
from ctta.serve.tokens import Right, Tokens  # noqa: E402
from serve.http_server import HOST, Running, running  # noqa: E402

WAIT_MS = 120_000
#: A valid but awkward name of a stream.
NAME = '<b id="bold">door</b> 1/2'
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for all tests."""
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, server: Running, streams: Any = None, **options: Any) -> Iterator[Any]:
    """Open the page in its own tab, with other streams if given. It loads nothing from other hosts."""
    address = f"http://{HOST}:{server.port}/"
    context = browser.new_context(**options)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    if streams is not None:
        page.route("**/ctta/streams", lambda route: route.fulfill(json={"model": "tiny", "streams": streams}))
    page.goto(address)
    try:
        yield page
    finally:
        context.close()
    assert errors == []
    assert [url for url in asked if not url.startswith((address, "blob:"))] == []


def expect(found: Any) -> Any:
    """Playwright's assertions, which wait."""
    return api.expect(found)


@pytest.fixture(autouse=True, scope="module")
def _patient() -> None:
    api.expect.set_options(timeout=WAIT_MS)


def test_a_stream_appears_is_watched_and_operated(browser: Any) -> None:
    with running() as server, opened(browser, server) as page:
        service = server.service
        expect(page.locator("#nothing")).to_contain_text("A stream appears with its first request")
        ask(service, images(64), NAME, id="first")
        row = page.locator("#list button")
        expect(row).to_contain_text(NAME)
        expect(page.locator("#name")).to_have_text(NAME)
        assert page.locator("#bold").count() == 0
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("#model")).to_have_text("tiny")

        ask(service, images(64, seed=1), NAME)
        expect(page.locator("#facts")).to_contain_text("Answered128")
        service.labels(NAME, {"first": [0] * 64})
        error = service.stream(NAME).error
        assert error is not None
        expect(page.locator("#charts")).to_contain_text(f"{error:.1f} %" if error < 100 else "100 %")
        agreement = service.stream(NAME).agreement
        assert agreement is not None
        expect(page.locator("svg[aria-label^=Agreement]")).to_have_attribute(
            "aria-label", f"Agreement {agreement:.2f}" if agreement < 1 else "Agreement 1"
        )

        page.get_by_role("radio", name="frozen").check()
        expect(page.locator("#message")).to_have_text("Mode frozen: done.")
        assert service.stream(NAME).mode == "frozen"
        expect(row).to_contain_text("frozen")
        expect(page.locator("#events")).to_contain_text("mode set to frozen")

        page.get_by_role("button", name="Snapshot and pin").click()
        expect(page.locator("#snapshots")).to_contain_text("good, pinned")
        before = service.stream(NAME)
        first = before.snapshots[0].name
        page.get_by_role("button", name=f"Roll back to {first}").click()
        expect(page.locator("#question")).to_contain_text(f"to snapshot {first}")
        page.locator("#yes").click()
        expect(page.locator("#message")).to_have_text("Roll back: done.")
        assert service.stream(NAME).resets == before.resets + 1
        expect(page.locator("#events")).to_contain_text(f"rolled back to snapshot {first}")

        pinned = before.snapshots[-1].name
        page.get_by_role("button", name=f"Unpin {pinned}").click()
        expect(page.locator("#message")).to_have_text("Unpin: done.")
        page.get_by_role("button", name=f"Pin {first}", exact=True).click()
        expect(page.get_by_role("button", name=f"Unpin {first}")).to_be_visible()
        assert [one.name for one in service.stream(NAME).snapshots if one.pinned] == [first]

        page.get_by_role("button", name="Reset").click()
        page.get_by_role("button", name="Cancel").click()
        assert service.stream(NAME).resets == before.resets + 1

        with page.expect_download() as download:
            page.get_by_role("button", name="Download state").click()
        assert same(Path(download.value.path()).read_bytes(), service.state(NAME))

        data = service.state(NAME)
        service.reset(NAME)
        page.locator("#upload").set_input_files({"name": "door.safetensors", "mimeType": "", "buffer": data})
        expect(page.locator("#question")).to_have_text(f"Replace what {NAME} has learnt with door.safetensors?")
        page.locator("#yes").click()
        expect(page.locator("#message")).to_have_text("Upload state: done.")
        assert same(service.state(NAME), data)
        page.locator("#upload").set_input_files({"name": "junk", "mimeType": "", "buffer": b"junk"})
        page.locator("#yes").click()
        expect(page.locator("#message")).to_contain_text("The state must be a whole checkpoint file")

        page.get_by_role("button", name="Remove stream").click()
        expect(page.locator("#question")).to_contain_text("deletes its snapshots, its audit and its recorded images")
        page.locator("#yes").click()
        expect(page.locator("#nothing")).to_be_visible()
        assert service.streams() == []


def test_tokens_are_asked_for_and_refusals_shown(browser: Any) -> None:
    tokens = Tokens({"a" * 16: Right.ASK, "o" * 16: Right.ADMIN})
    with running(tokens=tokens) as server, opened(browser, server) as page:
        service = server.service
        ask(service, images(8), "cam")
        expect(page.locator("#banner")).to_contain_text("A valid token is needed (401)")

        def use(token: str) -> None:
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Use").click()

        use("wrong")
        expect(page.locator("#message")).to_be_visible()
        expect(page.locator("#banner")).to_contain_text("(401)")
        use("a" * 16)
        expect(page.locator("#list")).to_contain_text("cam")
        expect(page.locator("#banner")).to_be_hidden()
        page.get_by_role("button", name="Snapshot", exact=True).click()
        expect(page.locator("#message")).to_contain_text("does not have the right to do that (403)")
        assert service.stream("cam").snapshots == ()
        use("o" * 16)
        page.get_by_role("button", name="Snapshot", exact=True).click()
        expect(page.locator("#message")).to_have_text("Snapshot: done.")
        assert len(service.stream("cam").snapshots) == 1
        assert page.evaluate("localStorage.length") == 0


def test_a_lost_connection_is_said_and_found_again(browser: Any) -> None:
    with running() as server, opened(browser, server) as page:
        service = server.service
        ask(service, images(8), "cam")
        expect(page.locator("#list")).to_contain_text("cam")
        page.route("**/ctta/**", lambda route: route.abort())
        expect(page.locator("#banner")).to_contain_text("No connection since")
        expect(page.locator("#connection")).to_have_text("connection lost")
        expect(page.locator("#detail")).to_be_visible()
        page.unroute("**/ctta/**")
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("#banner")).to_be_hidden()


def test_hundreds_of_streams_are_found_by_filter_at_phone_width(browser: Any) -> None:
    with running() as server:
        ask(server.service, images(8), "cam")
        one = asdict(server.service.stream("cam"))
        many = [one | {"name": f"cam-{i:03d}", "guard": "cooldown" if i == 7 else "ok"} for i in range(300)]
        with opened(browser, server, many, viewport={"width": 390, "height": 844}) as page:
            expect(page.locator("#list li")).to_have_count(200)
            expect(page.locator("#more")).to_have_text("and 100 more; filter to see them")
            expect(page.locator("#summary")).to_contain_text("300 streams")
            expect(page.locator("#summary")).to_contain_text("1 not ok")
            page.locator("#filter").fill("cam-299")
            expect(page.locator("#list li")).to_have_count(1)
            page.locator("#filter").fill("COOLDOWN")
            expect(page.locator("#list")).to_have_text("cam-007adaptcooldown– agree")
            page.locator("#list button").press("Enter")
            expect(page.locator("#name")).to_have_text("cam-007")
            assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_every_file_of_the_page_is_listed_and_names_no_other_host() -> None:
    folder = Path(str(files("ctta.serve.page")))
    assert {path.name for path in folder.iterdir() if path.suffix not in (".py", "") and path.is_file()} == set(FILES)
    for name in FILES:
        text = content(name).decode().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text and "innerHTML" not in text, name
