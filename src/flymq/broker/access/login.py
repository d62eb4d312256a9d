"""Authentication of clients against the users of a broker.

A login is a SASL exchange: the client sends a message, and gets a challenge to answer or is authenticated.

    login = access.begin("PLAIN", host)
    step = await login.step(message)      # step.principal is set once the client is authenticated
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from flymq.broker.access.checking import PasswordChecks
from flymq.broker.access.passwords import SALT_BYTES, PasswordHash
from flymq.model.errors import AuthenticationFailed, PlaintextLogin

logger = logging.getLogger(__name__)

PLAIN = "PLAIN"

_NOBODY = PasswordHash(log_n=14, r=8, p=1, salt=bytes(SALT_BYTES), digest=bytes(32))
"""Checked for unknown users: the response time must not reveal which users exist."""


@dataclass(frozen=True, slots=True)
class LoginStep:
    """The broker's answer to one message of a login."""

    principal: str | None
    """The authenticated user; None while another step follows."""
    challenge: bytes = b""
    """The next challenge, or the final message of the mechanism."""


class Login(Protocol):
    """One login with one mechanism."""

    async def step(self, message: bytes) -> LoginStep:
        """Process the next message of the client; raise `AuthenticationFailed` if the credentials are wrong."""


@dataclass(frozen=True, slots=True)
class Access:
    """The users of a broker."""

    checks: PasswordChecks
    """How passwords are checked, which is slow on purpose."""
    is_required: bool = False
    users: Mapping[str, PasswordHash] = field(default_factory=dict)
    plain_without_tls: bool = False
    """Whether a password may be sent on a connection that is not encrypted."""

    @property
    def mechanisms(self) -> list[str]:
        """The supported mechanisms."""
        return [PLAIN]

    def begin(self, mechanism: str, host: str, *, is_encrypted: bool = False) -> Login:
        """Start a login from this host. On a connection without TLS its first step is refused, if so configured."""
        if mechanism != PLAIN:
            raise AuthenticationFailed(f"the mechanism {mechanism!r} is not supported", hint=f"Use {PLAIN}.")
        return PlainLogin(self, host, is_encrypted)

    def check_encrypted(self, host: str, *, is_encrypted: bool) -> None:
        """Raise `PlaintextLogin` if a password must not be sent here, before it is looked at."""
        if not is_encrypted and not self.plain_without_tls:
            logger.warning("login from %s refused: the connection has no TLS", host)
            raise PlaintextLogin(
                "the broker accepts passwords only inside TLS, and this connection has none (auth.plain_without_tls)"
            )

    async def check(self, username: str, password: str, host: str) -> None:
        """Raise an error unless this is the user's password. A failure is logged, so that guessing can be detected."""
        known = self.users.get(username)
        matches = await self.checks.matches(known or _NOBODY, username, password, host)
        if known is None:
            # Not even the name is logged: people type passwords in the wrong place.
            logger.warning("login from %s failed: unknown user", host)
        elif not matches:
            logger.warning("login from %s failed: wrong password for %r", host, username)
        if known is None or not matches:
            raise AuthenticationFailed("unknown user or wrong password")


@dataclass(slots=True)
class PlainLogin:
    """SASL PLAIN: one message with name and password, `[authorization id] NUL name NUL password`."""

    access: Access
    host: str
    is_encrypted: bool = False

    async def step(self, message: bytes) -> LoginStep:
        self.access.check_encrypted(self.host, is_encrypted=self.is_encrypted)
        parts = message.decode(errors="replace").split("\0")
        authorization, username, password = parts if len(parts) == 3 else ("", "", "")
        await self.access.check(username, password, self.host)
        if authorization not in ("", username):  # after the password: the answer must not tell which names exist
            raise AuthenticationFailed("a user cannot log in as somebody else")
        return LoginStep(username)


def plain_message(username: str, password: str) -> bytes:
    """Return the message of a PLAIN login, for protocols with separate fields for name and password."""
    return f"\0{username}\0{password}".encode()
