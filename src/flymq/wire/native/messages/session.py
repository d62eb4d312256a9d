"""The connection itself: handshake, authentication, ping, errors."""

# ruff: noqa: RUF012  # msgspec copies an empty list or dict that is a default
from __future__ import annotations

from flymq.wire.native.messages.fields import I32, U32, Message, Request


class Done(Message):
    """An empty response: the operation succeeded."""


class ErrorAnswer(Message):
    """A request failed as a whole. `id` is that of the request, 0 if it could not be read."""

    code: str
    message: str = ""
    hint: str = ""
    retriable: bool = False


class Hello(Request):
    """Handshake of the client. Optional, and allowed before authentication."""

    client: str = ""
    version: str = ""
    client_id: str = ""


class HelloAnswer(Message):
    """The broker and its operations. `authentication` lists the mechanisms if authentication is required."""

    server: str
    version: str
    cluster_id: str = ""
    broker: I32 = -1
    opcodes: list[U32] = []
    payload_bytes_max: U32 = 0
    authentication: list[str] = []


class Authenticate(Request):
    """Authenticate. PLAIN sends the password unencrypted: use TLS."""

    mechanism: str = "PLAIN"
    username: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Authenticate(mechanism={self.mechanism!r}, username={self.username!r}, password=...)"


class AuthenticateAnswer(Message):
    """The user that the connection is authenticated as."""

    principal: str


class Ping(Request):
    """Check that the broker is alive."""
