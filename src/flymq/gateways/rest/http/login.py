"""HTTP Basic authentication against the users of the broker, with each request."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64

from starlette.requests import Request

from flymq.broker.access.login import PLAIN, Access, plain_message
from flymq.model.errors import AuthenticationFailed, Unauthenticated


async def log_in(access: Access, request: Request) -> str:
    """Return the name of the user, or raise an error; empty if authentication is not required."""
    if not access.is_required:
        return ""
    host, is_encrypted = request.client.host if request.client else "", request.scope["scheme"] == "https"
    access.check_encrypted(host, is_encrypted=is_encrypted)  # before a browser asks its user for a password
    username, password = _parse_basic(request.headers.get("authorization"))
    login = access.begin(PLAIN, host, is_encrypted=is_encrypted)
    await login.step(plain_message(username, password))
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
