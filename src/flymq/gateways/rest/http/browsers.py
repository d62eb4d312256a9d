"""Protection against cross-site requests of browsers (CSRF) and DNS rebinding.

a page of another origin writes         refused by its Origin header, unless `rest.cors_origins` lists it
a name that was rebound to 127.0.0.1    refused by its Host header: on loopback it is localhost, an address, or listed
a form or a body without a type         refused: a body says what it is, so that a browser asks for permission first
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from flymq.model.errors import ForeignHost, ForeignOrigin

_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
_LOCAL_NAMES = frozenset(("", "localhost"))


def check_browser(
    method: str, headers: Mapping[bytes, bytes], local_host: str, *, origins: tuple[str, ...], hosts: tuple[str, ...]
) -> None:
    """Raise an error if the request comes from a page that may not use the API."""
    host = headers.get(b"host", b"").decode("latin-1")
    if _is_loopback(local_host) and not _is_known(_name_of(host), hosts):
        raise ForeignHost(f"the Host header {host!r} is not a name of this broker")
    origin = headers.get(b"origin")
    if origin is not None and method not in _SAFE_METHODS:
        _check_origin(origin.decode("latin-1"), host, origins)


def _check_origin(origin: str, host: str, origins: tuple[str, ...]) -> None:
    if origin not in origins and "*" not in origins and urlsplit(origin).netloc.lower() != host.lower():
        raise ForeignOrigin(f"pages of the origin {origin} may not write here")


def _name_of(host: str) -> str:
    """Return the name in a Host header, without port and trailing dot."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return "?"


def _is_known(name: str, hosts: tuple[str, ...]) -> bool:
    return name in _LOCAL_NAMES or name.endswith(".localhost") or name in hosts or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
