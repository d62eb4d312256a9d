"""The connection itself: greeting, authentication, liveness, errors."""

# ruff: noqa: RUF012  # msgspec copies an empty list or dict that is a default
from __future__ import annotations

from flymq.wire.native.messages.fields import I32, U32, Message


class Done(Message):
    """The answer of an operation that has nothing to say but that it is done."""


class ErrorAnswer(Message):
    """A request failed as a whole. `id` is the request's, 0 when it could not be read."""

    code: str
    message: str = ""
    hint: str = ""
    retriable: bool = False


class Hello(Message):
    """Who speaks. Not required, and allowed before authentication."""

    client: str = ""
    version: str = ""
    client_id: str = ""


class HelloAnswer(Message):
    """Who answers, and what can be asked. `authentication` names the mechanisms when one is required first."""

    server: str
    version: str
    cluster_id: str = ""
    broker: I32 = -1
    opcodes: list[U32] = []
    payload_bytes_max: U32 = 0
    authentication: list[str] = []


class Authenticate(Message):
    """Prove who speaks. PLAIN sends the password as it is: use TLS."""

    mechanism: str = "PLAIN"
    username: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Authenticate(mechanism={self.mechanism!r}, username={self.username!r}, password=...)"


class AuthenticateAnswer(Message):
    """As whom the connection acts from now on."""

    principal: str


class Ping(Message):
    """Is somebody there?"""
