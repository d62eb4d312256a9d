"""Names in paths. Groups and transactional ids may be called anything, so a name comes percent-encoded.

The server decodes a path as a whole, and then a slash within a name looks like one between two names. Here everything
is decoded but the slash, and the percent sign, so that what is left of the encoding cannot be mistaken either:

    /api/v1/groups/a%2Fb%20c     as it came
    /api/v1/groups/a%2Fb c       as the routes see it
    a/b c                        as the handler sees it
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

_KEPT = re.compile(rb"%(?=2[Ff5])")


def keep_slashes(app: ASGIApp) -> ASGIApp:
    """Return the application, with the slashes of names still encoded in the paths it gets."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if b"%" in raw:
            scope["path"] = unquote(_KEPT.sub(b"%25", raw))
        await app(scope, receive, send)

    return serve


def names_in(scope: Scope) -> dict[str, Any]:
    """Return the names that the route found in the path."""
    found: dict[str, Any] = scope.get("path_params", {})
    if "%" not in scope["path"]:
        return found
    return {name: unquote(value) if isinstance(value, str) else value for name, value in found.items()}
