"""Keep pages of other sites from using a browser to reach a service without tokens."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from ctta.errors import NotAllowed

_LOCAL = frozenset({"localhost"})


def check(host: str | None, origin: str | None, hosts: frozenset[str]) -> None:
    """Refuse a request that a page of another site sent.

    Args:
        host: The ``Host`` header: the name under which the client reached the server.
        origin: The ``Origin`` header, which browsers send: the site of the page.
        hosts: Names of the server besides those of this machine; empty accepts every name, for a server behind a proxy.

    Raises:
        NotAllowed: If the page comes from another site, or from a site whose name was made to point here.
    """
    name = _name(f"//{host or ''}")
    if hosts and not (name in hosts or name in _LOCAL or is_loopback(name)):
        raise NotAllowed(
            f"The service is not known as {name!r}. Use the address that it listens on, or a token file for others."
        )
    if origin is not None and _site(origin) != (host or ""):
        raise NotAllowed(f"Pages of {origin!r} may not use a service without tokens. Start it with a token file.")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine only.

    Args:
        host: A name or an address.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _LOCAL


def _site(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
