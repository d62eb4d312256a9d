"""A session at a store in another process: kept alive in time, and aware of how long it is certainly valid.

    sent            acknowledged                  0.9 TTL                TTL: the store expires it, at the earliest
      |------------------|----------------------------|------------------|
      the clock starts here        is_valid           |   doubt

The store counts from a moment after the keepalive was sent, so the sender, which counts from before, is always the
first to doubt. A tenth is left for clocks that do not run equally fast.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from flymq.host.clock import Clock
from flymq.model.errors import MetadataError, SessionEnded

logger = logging.getLogger(__name__)

_KEEPALIVES_PER_TTL = 3
_CERTAIN = 0.9
_RETRY_S = 0.2


class KeptSession:
    """A `Session` that `run` keeps alive."""

    def __init__(
        self,
        clock: Clock,
        lease: int,
        ttl_s: float,
        opened_s: float,
        *,
        renew: Callable[[int], Awaitable[float]],
        revoke: Callable[[int], Awaitable[None]],
    ) -> None:
        """`opened_s` is the boot time before the session was requested. `renew` returns the new TTL, or raises
        SessionEnded."""
        self._clock = clock
        self._lease = lease
        self._ttl_s = ttl_s
        self._valid_until_s = opened_s + _CERTAIN * ttl_s
        self._renew = renew
        self._revoke = revoke
        self._ended = asyncio.Event()

    @property
    def lease(self) -> int:
        return self._lease

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def is_valid(self) -> bool:
        return not self.has_ended and self._clock.boottime_s() < self._valid_until_s

    async def wait_ended(self) -> None:
        await self._ended.wait()

    async def run(self) -> None:
        """Renew the lease until the session has ended."""
        pause_s = self._ttl_s / _KEEPALIVES_PER_TTL
        while not await self._ends_within(pause_s):
            sent_s = self._clock.boottime_s()
            try:
                ttl_s = await self._renew(self._lease)
            except SessionEnded:
                logger.warning("metadata: the session %x has expired", self._lease)
                self.mark_ended()
            except MetadataError as error:
                if pause_s != _RETRY_S:
                    logger.warning("metadata: cannot renew the session %x, retrying: %s", self._lease, error)
                pause_s = _RETRY_S
            else:
                self._valid_until_s = sent_s + _CERTAIN * ttl_s
                taken_s = self._clock.boottime_s() - sent_s
                pause_s = max(0.0, ttl_s / _KEEPALIVES_PER_TTL - taken_s)

    async def _ends_within(self, pause_s: float) -> bool:
        try:
            async with asyncio.timeout(pause_s):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End the session. If the store cannot be reached, it expires there."""
        if self.has_ended:
            return
        self.mark_ended()
        try:
            await self._revoke(self._lease)
        except SessionEnded:
            pass
        except MetadataError as error:
            logger.warning("metadata: the session %x has to expire: %s", self._lease, error)

    def mark_ended(self) -> None:
        self._ended.set()
