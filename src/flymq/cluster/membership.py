"""This broker as a member of the cluster: it registers, and registers again when its registration has ended.

A registration ends with its session, and when the controller has fenced it: the others took this broker for dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from uuid import UUID

from msgspec.structs import replace

from flymq.cluster.brokers import Kept, Registration, encode, parse_registration, registration_key
from flymq.cluster.image import Image
from flymq.cluster.plan import Roster, plan_partition
from flymq.host.time_slices import TimeSlice
from flymq.metadata.store import Delete, Get, MetadataStore, Put, Session, created_at, is_absent
from flymq.model.errors import BrokerIdInUse, MetadataError, StorageError

logger = logging.getLogger(__name__)

_RETRY_S = 0.5
_LOOK_S = 0.05
_PACE_S = 1.0
"""Between two registrations, if the first was fenced at once: perhaps nobody can connect to this broker."""


class Membership:
    """The registration of this broker. Its key is leased: when the broker is gone, so is the key."""

    def __init__(
        self, store: MetadataStore, image: Image, broker_id: int, registration: Registration, *, ttl_s: int = 6
    ) -> None:
        self._store = store
        self._image = image
        self._broker_id = broker_id
        self._registration = self._written = registration
        self._ttl_s = ttl_s
        self._session: Session | None = None
        self._something = asyncio.Event()
        self._was_live = False
        self._is_stopping = False
        self._registered_s = 0.0
        self.epoch: int | None = None
        """Of the current registration."""
        self.on_registered: Callable[[], None] = lambda: None
        """Called when the broker has a new epoch."""
        image.member_watchers.append(self._members_changed)

    @property
    def _key(self) -> str:
        return registration_key(self._broker_id)

    @property
    def is_valid(self) -> bool:
        """Whether the others certainly count on this broker. False is doubt: it may have been replaced unseen."""
        session = self._session
        return self.epoch is not None and session is not None and session.is_valid and not self._is_fenced

    @property
    def _is_fenced(self) -> bool:
        me = self._image.members.find(self._broker_id)
        return me is not None and me.epoch == self.epoch and me.is_fenced

    def _members_changed(self) -> None:
        me = self._image.members.find(self._broker_id)
        if me is not None and me.epoch == self.epoch:
            self._was_live = self._was_live or me.is_live
            if me.is_fenced:
                self._something.set()

    # --- register

    async def register(self) -> None:
        """Register, with a new session; raise BrokerIdInUse if another data directory has this broker id."""
        session = await self._store.session(self._ttl_s)
        try:
            revision = await self._create(session)
        except BaseException:
            await session.close()
            raise
        self._session, self.epoch = session, revision
        self._registered_s = asyncio.get_running_loop().time()
        self.on_registered()
        await self._image.until(revision)
        self._members_changed()

    async def _create(self, session: Session) -> int:
        while True:
            registration = self._registration
            put = Put(self._key, encode(registration), session.lease)
            result = await self._store.txn([is_absent(self._key)], [put], failure=[Get(self._key)])
            if result.succeeded:
                self._written = registration
                return result.revision
            found = result.found[0]
            if found is None:
                continue
            other = parse_registration(found.value)
            if other.directory != registration.directory:
                where = ", ".join(f"{listener.host}:{listener.port}" for listener in other.listeners)
                raise BrokerIdInUse(f"broker {self._broker_id} is registered at {where}, with another data directory")
            # It is our own from before a restart: the data directory is locked, so no other process has it.
            await self._store.txn([created_at(self._key, found.create_revision)], [Delete(self._key)])

    async def run(self) -> None:
        """Register again whenever the registration has ended, and keep it up to date, until the broker stops."""
        while True:
            try:
                await self._until_something()
                if self.epoch is not None and self._is_registered:
                    await self._update(self.epoch)
                elif self._is_stopping:
                    return  # its port is closed, so it was fenced: that is all right
                else:
                    await self._register_again()
            except (MetadataError, StorageError) as error:
                logger.warning("registering this broker failed: %s", error.message)
                await asyncio.sleep(_RETRY_S)

    @property
    def _is_registered(self) -> bool:
        return self._session is not None and not self._session.has_ended and not self._is_fenced

    async def _until_something(self) -> None:
        """Return when the registration has ended or is to be changed."""
        if (session := self._session) is None:
            return
        ended = asyncio.ensure_future(session.wait_ended())
        ended.add_done_callback(lambda _: self._something.set())
        try:
            while self._is_registered and self._written == self._registration:
                await self._something.wait()
                self._something.clear()
        finally:
            ended.cancel()

    async def _register_again(self) -> None:
        reason = "was fenced" if self._is_fenced else "has ended"
        logger.warning("the registration of this broker %s; it registers again", reason)
        session, self._session, self.epoch = self._session, None, None
        if session is not None:
            await session.close()
            await asyncio.sleep(max(0.0, self._registered_s + _PACE_S - asyncio.get_running_loop().time()))
        if self._was_live:
            # The process was there all the time, so nothing that it wrote since it was admitted is lost.
            self._registration = replace(self._registration, kept=Kept.EVERYTHING)
        await self.register()

    async def _update(self, epoch: int) -> None:
        assert self._session is not None
        registration = self._registration
        put = Put(self._key, encode(registration), self._session.lease)
        result = await self._store.txn([created_at(self._key, epoch)], [put])
        if result.succeeded:
            self._written = registration
        await self._image.until(result.revision)

    async def leave(self) -> None:
        """End the session: the registration is gone at once."""
        if self._session is not None:
            await self._session.close()

    # --- what the others should know

    def set_failed(self, partitions: Iterable[tuple[UUID, int]]) -> None:
        """Tell that the logs of these partitions, and of no others, have failed here: other replicas should lead."""
        failed: dict[str, list[int]] = {}
        for topic_id, number in sorted(partitions):
            failed.setdefault(str(topic_id), []).append(number)
        if failed != self._registration.failed:
            self._registration = replace(self._registration, failed=failed)
            self._something.set()

    async def drain(self, timeout_s: float = 10.0) -> bool:
        """Let others lead: this broker is about to stop. Return whether nothing is left that another could lead.

        It serves what it leads until then. After that it does not register again when its registration ends.
        """
        self._registration = replace(self._registration, is_draining=True)
        self._something.set()
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if self._is_drain_known and not await self._could_hand_over():
                        return True
                    await asyncio.sleep(_LOOK_S)  # not at every change: it is a look at all partitions
        except TimeoutError:
            return False
        finally:
            self._is_stopping = True

    @property
    def _is_drain_known(self) -> bool:
        me = self._image.members.find(self._broker_id)
        return me is not None and me.registration.is_draining

    async def _could_hand_over(self) -> bool:
        """Whether this broker leads a partition that another one can lead."""
        roster = Roster.of(self._image.members)
        slice_ = TimeSlice()
        for topic in self._image:
            for number, state in enumerate(topic.partitions):
                if state.leader == self._broker_id and plan_partition(topic, number, roster).leader != state.leader:
                    return True
                await slice_.yield_if_over()
        return False
