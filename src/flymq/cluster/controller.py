"""The controller: one broker of the cluster, which decides who leads each partition.

The brokers compete for the key `ctl`; whoever has created it is the controller until its session ends. Every txn of
the controller compares the revision at which it was created: what a controller writes that was paused, and has been
replaced meanwhile, is refused by the store. No clock is involved.

What is to be done follows from the image alone (plan.py, term.py). So a new controller continues where the last one
stopped.

A broker that is killed resets its connections, and refuses new ones. Whoever notices suspects it: if nobody listens at
its address, the controller fences it. If it was the controller itself, the others remove its key and compete, and the
new controller, which suspects everybody once, fences it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from flymq.cluster.brokers import CONTROLLER_KEY, ClusterBroker
from flymq.cluster.image import Image, TopicChange
from flymq.cluster.members import ControllerSeat
from flymq.cluster.plan import StateChange
from flymq.cluster.term import Term
from flymq.host.tasks import Tasks
from flymq.metadata.store import Delete, MetadataStore, Put, Session, created_at, is_absent
from flymq.model.errors import MetadataError, StorageError

logger = logging.getLogger(__name__)

_RETRY_S = 0.5
_PROBE_S_MAX = 1.0
_PROBE_AFTER_S = (0.0, 0.1, 0.4)
"""A process that is being killed may close its connections before its port."""

Probe = Callable[[ClusterBroker], Awaitable[bool]]
"""Connects to a broker; returns False if the connection is refused, and only then."""


class Controller:
    """Takes part in the election of the controller, and does its work when elected."""

    def __init__(
        self,
        store: MetadataStore,
        image: Image,
        broker_id: int,
        *,
        probe: Probe | None = None,
        ttl_s: int = 4,
        preferred_every_s: float = 60.0,
    ) -> None:
        """Without `probe`, a broker is dead when its lease has ended."""
        self._store = store
        self._image = image
        self._broker_id = broker_id
        self._probe = probe
        self._ttl_s = ttl_s
        self._preferred_every_s = preferred_every_s
        self._changed = asyncio.Event()
        self._abandoned_seat: int | None = None
        self._probing: set[tuple[int, int]] = set()
        self._probes = Tasks(self._probe_failed)
        self._term: Term | None = None
        self.unclean_elections = 0
        """Leaders elected here that may lack committed records."""
        image.member_watchers.append(self._members_changed)
        image.watchers.append(self._topic_changed)

    @property
    def epoch(self) -> int | None:
        """Set while this broker is the controller."""
        return None if self._term is None else self._term.epoch

    def _members_changed(self) -> None:
        self._changed.set()
        if self._term is not None:
            self._term.members_changed()

    def _topic_changed(self, change: TopicChange) -> None:
        if self._term is not None:
            self._term.topic_changed(change.name)

    # --- the seat

    async def run(self) -> None:
        """Compete, and govern when elected, for ever."""
        try:
            while True:
                try:
                    await self._until_vacant()
                    session = await self._store.session(self._ttl_s)
                    try:
                        await self._compete(session)
                    finally:
                        self._term = None
                        await session.close()
                except (MetadataError, StorageError) as error:
                    logger.warning("the election of the controller is interrupted: %s", error.message)
                    await asyncio.sleep(_RETRY_S)
        finally:
            await self._probes.close()

    async def _until_vacant(self) -> None:
        while (seat := self._image.members.controller) is not None:
            self._changed.clear()
            if self._is_abandoned(seat):
                await self._depose(seat)
            else:
                await self._changed.wait()

    def _is_abandoned(self, seat: ControllerSeat) -> bool:
        """Whether the one who has the seat does not use it any more: it is dead, or this broker before a restart."""
        return seat.broker_id == self._broker_id or seat.epoch == self._abandoned_seat

    async def _depose(self, seat: ControllerSeat) -> None:
        logger.warning("broker %d, the controller, is gone", seat.broker_id)
        result = await self._store.txn([created_at(CONTROLLER_KEY, seat.epoch)], [Delete(CONTROLLER_KEY)])
        await self._image.until(result.revision)

    async def _compete(self, session: Session) -> None:
        seat = Put(CONTROLLER_KEY, str(self._broker_id).encode(), session.lease)
        elected = await self._store.txn([is_absent(CONTROLLER_KEY)], [seat])
        await self._image.until(elected.revision)
        if not elected.succeeded:
            return
        self._term = Term(
            self._store,
            self._image,
            elected.revision,
            preferred_every_s=self._preferred_every_s,
            on_unclean=self._count_unclean,
        )
        logger.info("this broker is the controller, with epoch %d", elected.revision)
        for member in self._image.members:
            self.suspect(member.broker_id, member.epoch)  # whoever died with the last controller
        await self._term.run(session)
        logger.info("this broker is no longer the controller")

    def _count_unclean(self, change: StateChange) -> None:
        self.unclean_elections += 1
        topic = self._image.find_by_id(change.topic_id.bytes)
        logger.error(
            "UNCLEAN ELECTION: broker %d leads partition %d of the topic %s and was not in sync; records that only the "
            "brokers %s have are lost",
            change.after.leader,
            change.partition,
            change.topic_id if topic is None else topic.name,
            change.before.isr,
        )

    # --- suspicion

    def suspect(self, broker_id: int, epoch: int) -> None:
        """The connection to this registration of a broker was lost: find out whether anybody listens there."""
        member, seat = self._image.members.find(broker_id), self._image.members.controller
        is_mine_to_tell = self._term is not None or (seat is not None and seat.broker_id == broker_id)
        if self._probe is None or broker_id == self._broker_id or not is_mine_to_tell:
            return
        if member is not None and member.epoch == epoch and (broker_id, epoch) not in self._probing:
            self._probing.add((broker_id, epoch))
            self._probes.spawn(f"probe of broker {broker_id}", self._find_out(self._probe, member))

    async def _find_out(self, probe: Probe, member: ClusterBroker) -> None:
        broker_id, epoch = member.broker_id, member.epoch
        seat = self._image.members.controller
        try:
            for pause_s in _PROBE_AFTER_S:
                await asyncio.sleep(pause_s)
                if not await self._listens(probe, member):
                    break
            else:
                return
        finally:
            self._probing.discard((broker_id, epoch))
        if seat is not None and seat.broker_id == broker_id:
            self._abandoned_seat = seat.epoch
            self._changed.set()
        if self._term is not None:
            self._term.is_dead(broker_id, epoch)

    async def _listens(self, probe: Probe, member: ClusterBroker) -> bool:
        try:
            async with asyncio.timeout(_PROBE_S_MAX):
                return await probe(member)
        except TimeoutError:
            return True  # paused, or cut off: its lease decides

    def _probe_failed(self, name: str, error: BaseException) -> None:
        logger.error("the task %r failed", name, exc_info=error)
