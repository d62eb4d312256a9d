"""Who may connect: the users, and the check of a password that every protocol's login ends in."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from flymq.broker.access.passwords import SALT_BYTES, PasswordHash
from flymq.host.tasks import Threads

logger = logging.getLogger(__name__)

_NOBODY = PasswordHash(log_n=14, r=8, p=1, salt=bytes(SALT_BYTES), digest=bytes(32))
"""What is checked for a name that nobody has: the time of an answer must not tell which names exist."""


@dataclass(frozen=True, slots=True)
class Access:
    """The users of a broker."""

    threads: Threads
    """Where passwords are checked, which takes long on purpose."""
    is_required: bool = False
    users: Mapping[str, PasswordHash] = field(default_factory=dict)

    async def login(self, username: str, password: str, host: str) -> bool:
        """Tell whether this is the user's password. A failure is logged, for those who watch for guessing."""
        known = self.users.get(username)
        matches = await self.threads.run(lambda: (known or _NOBODY).matches(password))
        if known is None:
            # Not even the name is logged: people type passwords in the wrong place.
            logger.warning("a login from %s failed: there is no such user", host)
        elif not matches:
            logger.warning("a login from %s failed: wrong password for %r", host, username)
        return known is not None and matches
