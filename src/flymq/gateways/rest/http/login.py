"""HTTP Basic authentication against the users of the broker.

A password hash is slow on purpose, about 50 ms, and HTTP sends the password with each request. So valid credentials are
cached for a while, as a keyed digest that is useless outside this process.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from binascii import Error as NotBase64
from collections import OrderedDict

from starlette.requests import Request

from flymq.broker.access.login import PLAIN, Access, plain_message
from flymq.host.clock import Clock
from flymq.model.errors import AuthenticationFailed, Unauthenticated

_REMEMBERED_MAX = 1_000
_REMEMBERED_S = 300.0


class Login:
    """Checks credentials."""

    def __init__(self, secret: bytes, clock: Clock) -> None:
        self._secret = secret
        self._clock = clock
        self._until_s: OrderedDict[bytes, float] = OrderedDict()

    async def principal(self, access: Access, request: Request) -> str:
        """Return the name of the user, or raise an error; empty if authentication is not required."""
        if not access.is_required:
            return ""
        host, is_encrypted = request.client.host if request.client else "", request.scope["scheme"] == "https"
        # Before a browser asks its user for a password.
        access.check_encrypted(host, is_encrypted=is_encrypted)
        username, password = _parse_basic(request.headers.get("authorization"))
        digest = hmac.digest(self._secret, f"{username}\0{password}".encode(), "sha256")
        now_s = self._clock.monotonic_s()
        if self._until_s.get(digest, 0.0) > now_s:
            return username
        login = access.begin(PLAIN, host, is_encrypted=is_encrypted)
        await login.step(plain_message(username, password))
        self._until_s[digest] = now_s + _REMEMBERED_S
        self._until_s.move_to_end(digest)
        if len(self._until_s) > _REMEMBERED_MAX:
            self._until_s.popitem(last=False)
        return username


def _parse_basic(authorization: str | None) -> tuple[str, str]:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        raise Unauthenticated(
            "the request has no credentials", hint="Send HTTP Basic credentials: curl -u USER:PASSWORD."
        )
    try:
        username, _, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (NotBase64, ValueError):
        raise AuthenticationFailed("the Authorization header is not `Basic` and base64 of USER:PASSWORD") from None
    return username, password
