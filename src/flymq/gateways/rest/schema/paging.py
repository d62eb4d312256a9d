"""Pagination. A page token is opaque to clients; it contains the last name of the page."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Sequence
from typing import TypeVar

from flymq.gateways.rest.schema.shapes import Page
from flymq.model.errors import InvalidRequest

T = TypeVar("T")


def take_page(items: Sequence[T], name: Callable[[T], str], page: Page) -> tuple[Sequence[T], str | None]:
    """Return one page of `items`, which are sorted by name, and the token of the next page."""
    if page.page_token:
        seen = _parse_token(page.page_token)
        items = [item for item in items if name(item) > seen]
    taken = items[: page.limit]
    return taken, _encode_token(name(taken[-1])) if len(items) > len(taken) else None


def _encode_token(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode()


def _parse_token(token: str) -> str:
    try:
        return b64decode(token, altchars=b"-_", validate=True).decode()
    except (NotBase64, ValueError):
        raise InvalidRequest(
            "the page token is invalid", hint="Use `next_page_token` of the previous page unchanged."
        ) from None
