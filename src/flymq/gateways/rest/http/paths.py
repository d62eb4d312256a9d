"""Names in paths. Groups and transactional ids may contain any character, so a name is percent-encoded.

The server decodes the whole path, after which a slash in a name could not be told from a separator. Here everything is
decoded except the slash and the percent sign, so that the remaining encoding is unambiguous:

    /api/v1/groups/a%2Fb%20c     as received
    /api/v1/groups/a%2Fb c       for the router
    a/b c                        for the handler
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

_KEPT = re.compile(rb"%(?=2[Ff5])")


def keep_slashes(app: ASGIApp) -> ASGIApp:
    """Wrap the application: slashes in names stay encoded in its paths."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if b"%" in raw:
            scope["path"] = unquote(_KEPT.sub(b"%25", raw))
        await app(scope, receive, send)

    return serve


def names_in(scope: Scope) -> dict[str, Any]:
    """Return the decoded names in the path."""
    found: dict[str, Any] = scope.get("path_params", {})
    if "%" not in scope["path"]:
        return found
    return {name: unquote(value) if isinstance(value, str) else value for name, value in found.items()}
