"""The live page: plain HTML, CSS and JavaScript, all served by the service itself."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from types import MappingProxyType

#: The files of the page and their media types. ``index.html`` is served at ``/``, the others at ``/page/NAME``.
FILES = MappingProxyType(
    {
        "index.html": "text/html; charset=utf-8",
        "style.css": "text/css; charset=utf-8",
        "icon.svg": "image/svg+xml",
        "page.js": "text/javascript; charset=utf-8",
        "api.js": "text/javascript; charset=utf-8",
        "series.js": "text/javascript; charset=utf-8",
        "chart.js": "text/javascript; charset=utf-8",
        "stream.js": "text/javascript; charset=utf-8",
        "list.js": "text/javascript; charset=utf-8",
    }
)
#: Headers for every file: the page may load from and connect to this service only, and must not be framed.
HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
)


@cache
def content(name: str) -> bytes:
    """Return a file of the page.

    Args:
        name: A key of `FILES`.
    """
    return files(__package__).joinpath(name).read_bytes()
