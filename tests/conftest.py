"""Fixtures for every test."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from ctta._system.processor import WITHOUT_AMX, bf16_crashes


def pytest_configure(config: pytest.Config) -> None:
    """Keep oneDNN from AMX where the processor announces it and traps its instructions, as in some virtual machines.

    Workers of pytest-xdist and child processes inherit the setting.
    """
    if not hasattr(config, "workerinput") and bf16_crashes():
        os.environ.update([WITHOUT_AMX])
        bf16_crashes.cache_clear()


def pytest_collection_finish() -> None:
    """Leave the modules and tests that exist now out of garbage collection: they stay, and there are many of them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a separate cache for the session: tests neither read nor fill the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTTA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for the tests of a file that look at pages on disk."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs Chromium, as Debian's package chromium installs it")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
