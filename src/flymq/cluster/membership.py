"""This broker as a member of the cluster: it registers, and registers again when its session has ended."""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from flymq.cluster.brokers import Registration, encode, parse_registration, registration_key
from flymq.cluster.image import Image
from flymq.metadata.store import Delete, Get, MetadataStore, Put, Session, created_at, is_absent
from flymq.model.errors import BrokerIdInUse, IndeterminateResult, MetadataUnavailable, SessionEnded

logger = logging.getLogger(__name__)

_RETRY_S = 0.5


class Membership:
    """The registration of this broker. Its key is leased: when the broker is gone, so is the key."""

    def __init__(
        self, store: MetadataStore, image: Image, broker_id: int, registration: Registration, *, ttl_s: int = 8
    ) -> None:
        self._store = store
        self._image = image
        self._broker_id = broker_id
        self._registration = registration
        self._ttl_s = ttl_s
        self._session: Session | None = None
        self.epoch: int | None = None
        """Of the current registration."""

    @property
    def _key(self) -> str:
        return registration_key(self._broker_id)

    async def register(self) -> None:
        """Register, with a new session; raise BrokerIdInUse if another data directory has this broker id."""
        self._session = session = await self._store.session(self._ttl_s)
        while True:
            value = encode(self._registration)
            result = await self._store.txn(
                [is_absent(self._key)], [Put(self._key, value, session.lease)], failure=[Get(self._key)]
            )
            if result.succeeded:
                self.epoch = result.revision
                await self._image.until(result.revision)
                return
            found = result.found[0]
            if found is None:
                continue
            other = parse_registration(found.value)
            if other.directory != self._registration.directory:
                where = ", ".join(f"{listener.host}:{listener.port}" for listener in other.listeners)
                raise BrokerIdInUse(f"broker {self._broker_id} is registered at {where}, with another data directory")
            # It is our own from before a restart: the data directory is locked, so no other process has it.
            await self._store.txn([created_at(self._key, found.create_revision)], [Delete(self._key)])

    async def run(self) -> None:
        """Register again whenever the session has ended, until the broker stops."""
        while True:
            if self._session is not None:
                await self._session.wait_ended()
            self.epoch = None
            logger.warning("the session of this broker has ended; it registers again")
            # The process was there all the time, so nothing that it wrote is lost.
            self._registration = replace(self._registration, was_clean=True)
            try:
                await self.register()
            except (MetadataUnavailable, IndeterminateResult, SessionEnded, BrokerIdInUse) as error:
                logger.warning("registering again failed: %s", error.message)
                await asyncio.sleep(_RETRY_S)

    async def drain(self) -> None:
        """Ask the controller to let others lead: this broker is about to stop."""
        if self.epoch is None or self._session is None:
            return
        self._registration = replace(self._registration, is_draining=True)
        put = Put(self._key, encode(self._registration), self._session.lease)
        result = await self._store.txn([created_at(self._key, self.epoch)], [put])
        await self._image.until(result.revision)

    async def leave(self) -> None:
        """End the session: the registration is gone at once."""
        if self._session is not None:
            await self._session.close()
