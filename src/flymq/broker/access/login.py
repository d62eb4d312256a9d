"""Who may connect: the users of a broker, and the dialogue in which a client proves to be one of them.

A login is a dialogue, as SASL has it: the client sends a message, and gets a challenge to answer or is who it says.

    login = access.begin("PLAIN", host)
    step = await login.step(message)      # step.principal is set once the client has proven it
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from flymq.broker.access.passwords import SALT_BYTES, PasswordHash
from flymq.host.tasks import Threads
from flymq.model.errors import AuthenticationFailed

logger = logging.getLogger(__name__)

PLAIN = "PLAIN"

_NOBODY = PasswordHash(log_n=14, r=8, p=1, salt=bytes(SALT_BYTES), digest=bytes(32))
"""What is checked for a name that nobody has: the time of an answer must not tell which names exist."""


@dataclass(frozen=True, slots=True)
class LoginStep:
    """The broker's answer to one message of a login."""

    principal: str | None
    """Who the client is; None while there is another step to take."""
    challenge: bytes = b""
    """What the client is sent: the next challenge, or the last word of the mechanism."""


class Login(Protocol):
    """One login, of one mechanism."""

    async def step(self, message: bytes) -> LoginStep:
        """Take the client's next message; raise `AuthenticationFailed` when it is not who it says."""


@dataclass(frozen=True, slots=True)
class Access:
    """The users of a broker."""

    threads: Threads
    """Where passwords are checked, which takes long on purpose."""
    is_required: bool = False
    users: Mapping[str, PasswordHash] = field(default_factory=dict)

    @property
    def mechanisms(self) -> list[str]:
        """The mechanisms a client can choose from."""
        return [PLAIN]

    def begin(self, mechanism: str, host: str) -> Login:
        """Begin a login from this host."""
        if mechanism != PLAIN:
            raise AuthenticationFailed(f"the mechanism {mechanism!r} is not offered", hint=f"Use {PLAIN}.")
        return PlainLogin(self, host)

    async def check(self, username: str, password: str, host: str) -> None:
        """Raise unless this is the user's password. A failure is logged, for those who watch for guessing."""
        known = self.users.get(username)
        matches = await self.threads.run(lambda: (known or _NOBODY).matches(password))
        if known is None:
            # Not even the name is logged: people type passwords in the wrong place.
            logger.warning("login from %s failed: there is no such user", host)
        elif not matches:
            logger.warning("login from %s failed: wrong password for %r", host, username)
        if known is None or not matches:
            raise AuthenticationFailed("unknown user or wrong password")


@dataclass(slots=True)
class PlainLogin:
    """SASL PLAIN: one message with name and password, `[authorization id] NUL name NUL password`."""

    access: Access
    host: str

    async def step(self, message: bytes) -> LoginStep:
        parts = message.decode(errors="replace").split("\0")
        username, password = (parts[1], parts[2]) if len(parts) == 3 else ("", "")
        await self.access.check(username, password, self.host)
        return LoginStep(username)


def plain_message(username: str, password: str) -> bytes:
    """Return the message of a PLAIN login, for protocols that carry name and password in fields of their own."""
    return f"\0{username}\0{password}".encode()
