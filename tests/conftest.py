"""What every test has around it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of its own for the session: tests neither use nor fill the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTTA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
