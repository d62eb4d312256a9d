"""The sessions of clients in other processes: they end when nothing was heard for their TTL, whatever the reason.

A lost connection ends no session: its owner may connect again. A lease is chosen by its owner, at random, so that a
session of a former life of this process is never taken for a new one, and opening it may be repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from flymq.host.clock import Clock
from flymq.host.tasks import Tasks
from flymq.metadata.store import NO_LEASE, MetadataStore, Op, Put, Session
from flymq.model.errors import FlyMQError, MetadataRefused, SessionEnded

logger = logging.getLogger(__name__)

SESSIONS_MAX = 1024
TTL_S_MIN, TTL_S_MAX = 1, 3600
_NO_SESSION = -1
"""A lease that the store does not have: a txn that uses it raises SessionEnded."""
_RETRY_S = 1.0


@dataclass(slots=True)
class _Lease:
    session: Session
    ttl_s: int
    expires_s: float
    timer: asyncio.TimerHandle | None = None


class Leases:
    """All sessions that were opened by clients of one server."""

    def __init__(self, store: MetadataStore, clock: Clock, tasks: Tasks) -> None:
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._leases: dict[int, _Lease] = {}

    async def open(self, lease: int, ttl_s: int) -> int:
        """Open a session, and return its TTL."""
        ttl_s = min(max(ttl_s, TTL_S_MIN), TTL_S_MAX)
        if lease not in self._leases:
            if len(self._leases) >= SESSIONS_MAX:
                raise MetadataRefused(f"there are {SESSIONS_MAX} sessions already")
            session = await self._store.session(ttl_s)
            if lease in self._leases:  # it was asked for twice, after a lost connection
                await session.close()
            else:
                self._leases[lease] = _Lease(session, ttl_s, self._clock.monotonic_s() + ttl_s)
                self._check_in(ttl_s, lease)
        return self.renew(lease)

    def renew(self, lease: int) -> int:
        """Renew a lease, and return its TTL. No await: a paused server reads what has arrived before it expires any."""
        found = self._leases.get(lease)
        if found is None or found.session.has_ended:
            raise SessionEnded("the session has expired")
        found.expires_s = self._clock.monotonic_s() + found.ttl_s
        return found.ttl_s

    async def end(self, lease: int) -> None:
        if (found := self._leases.get(lease)) is None:
            raise SessionEnded("the session has expired")
        await found.session.close()
        if self._leases.pop(lease, None) is not None and found.timer is not None:
            found.timer.cancel()

    def close(self) -> None:
        """Expire nothing any more."""
        for found in self._leases.values():
            if found.timer is not None:
                found.timer.cancel()
        self._leases.clear()

    def with_leases_of_store(self, ops: Sequence[Op]) -> list[Op]:
        """Return the operations with the store's own leases for those of the clients."""
        return [self._translated(op) if isinstance(op, Put) and op.lease != NO_LEASE else op for op in ops]

    def _translated(self, put: Put) -> Put:
        found = self._leases.get(put.lease)
        return put._replace(lease=_NO_SESSION if found is None else found.session.lease)

    # --- expiry

    def _check_in(self, delay_s: float, lease: int) -> None:
        if (found := self._leases.get(lease)) is not None:
            found.timer = asyncio.get_running_loop().call_later(delay_s, self._check, lease)

    def _check(self, lease: int) -> None:
        if (found := self._leases.get(lease)) is None:
            return
        late_s = self._clock.monotonic_s() - found.expires_s
        if late_s > found.ttl_s / 3:
            # This process was paused itself, and could not hear anybody. Another third is enough for a keepalive.
            found.expires_s += late_s + found.ttl_s / 3
            late_s = -found.ttl_s / 3
        if late_s < 0:
            self._check_in(-late_s, lease)
        else:
            self._tasks.spawn(f"expire session {lease:x}", self._expire(lease))

    async def _expire(self, lease: int) -> None:
        logger.warning("metadata: the session %x has expired: its owner is silent", lease)
        try:
            await self.end(lease)
        except SessionEnded:
            pass
        except FlyMQError as error:  # a full disk, say
            logger.error("metadata: cannot end the session %x, retrying: %s", lease, error)
            self._check_in(_RETRY_S, lease)
