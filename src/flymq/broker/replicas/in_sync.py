"""Keeps the in-sync replicas of the partitions led here: followers that have caught up come in, those behind go.

Every change is one txn, which compares the state that it was decided on, the registration of this broker, and that of
each follower that comes in: one that was restarted meanwhile may have lost what it had. Until the answer is known, the
high watermark waits for old and new members (followers.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from uuid import UUID

from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replication import Replication
from flymq.cluster.brokers import registration_key
from flymq.cluster.catalog import Catalog, PartitionState
from flymq.cluster.elections import change_isr
from flymq.cluster.image import Image
from flymq.host.clock import Clock
from flymq.host.time_slices import TimeSlice
from flymq.metadata.store import Compare, created_at
from flymq.model.errors import IndeterminateResult, MetadataError, StorageError

logger = logging.getLogger(__name__)

_RETRY_S = 0.5


class InSync:
    """Changes the in-sync replicas of partitions that this broker leads."""

    def __init__(
        self,
        broker_id: int,
        image: Image,
        catalog: Catalog,
        led: Callable[[], Iterator[tuple[UUID, Partition]]],
        clock: Clock,
        *,
        lag_max_s: float = 10.0,
    ) -> None:
        """`led`: the partitions that this broker leads."""
        self._broker_id = broker_id
        self._image = image
        self._catalog = catalog
        self._led = led
        self._clock = clock
        self._lag_max_s = lag_max_s
        self._caught_up: dict[tuple[UUID, int], Partition] = {}
        self._something = asyncio.Event()
        self.shrinks = 0
        self.expands = 0

    def caught_up(self, topic_id: UUID, partition: Partition) -> None:
        """A follower has caught up: it comes in at once, not at the next look at all partitions."""
        self._caught_up[topic_id, partition.name.partition] = partition
        self._something.set()

    async def run(self) -> None:
        """Look at all partitions now and then, and at those whose followers have caught up at once."""
        loop = asyncio.get_running_loop()
        next_s = loop.time() + self._lag_max_s / 2
        while True:
            try:
                async with asyncio.timeout_at(next_s):
                    await self._something.wait()
            except TimeoutError:
                next_s = loop.time() + self._lag_max_s / 2
                self._caught_up |= {(topic_id, each.name.partition): each for topic_id, each in self._led()}
            self._something.clear()
            due, self._caught_up = self._caught_up, {}
            slice_ = TimeSlice()
            for (topic_id, _), partition in due.items():
                await slice_.yield_if_over()
                await self.keep(topic_id, partition)

    async def keep(self, topic_id: UUID, partition: Partition) -> None:
        """Change the in-sync replicas of one partition, if they should be others."""
        replication = partition.replication
        if replication is None:
            return
        wanted = replication.followers.wanted_isr(
            self._clock.monotonic_s(), lag_max_s=self._lag_max_s, end_offset=partition.log.end_offset
        )
        min_isr = partition.log.config.min_insync_replicas
        before = replication.state
        after = change_isr(
            before,
            replication.followers.isr if wanted is None else self._usable(topic_id, partition, wanted),
            min_isr=min_isr,
        )
        if after is not before and (only_if := self._compares(replication, before, after)) is not None:
            replication.followers.propose(after.isr)
            await self._change(topic_id, partition, replication, after, only_if)

    def _usable(self, topic_id: UUID, partition: Partition, wanted: frozenset[int]) -> set[int]:
        """Leave out followers that are about to stop or whose log has failed, and those that are not admitted."""
        members = self._image.members
        found = (members.find(broker_id) for broker_id in wanted)
        usable = {
            each.broker_id
            for each in found
            if each is not None
            and each.is_live
            and not each.registration.is_draining
            and not each.has_failed(topic_id, partition.name.partition)
        }
        return usable | {self._broker_id}

    def _compares(
        self, replication: Replication, before: PartitionState, after: PartitionState
    ) -> list[Compare] | None:
        """Return what must still hold when the change is made; None if it does not hold now."""
        me = self._image.members.find(self._broker_id)
        if me is None:
            return None
        compares = [created_at(registration_key(self._broker_id), me.epoch)]
        for broker_id in set(after.isr).difference(before.isr):
            follower, member = replication.followers.of(broker_id), self._image.members.find(broker_id)
            if follower is None or member is None or follower.broker_epoch != member.epoch:
                return None  # it was restarted, and has not fetched since
            compares.append(created_at(registration_key(broker_id), member.epoch))
        return compares

    async def _change(
        self,
        topic_id: UUID,
        partition: Partition,
        replication: Replication,
        after: PartitionState,
        only_if: list[Compare],
    ) -> None:
        before, number = replication.state, partition.name.partition
        try:
            result = await self._catalog.change_state(topic_id, number, before, after, only_if)
        except IndeterminateResult:
            await self._find_out(partition, replication)
            return
        except (MetadataError, StorageError):  # nothing was changed
            replication.followers.set_isr(before.isr)
            return
        await self._reach(partition, replication, result.revision)
        if result.succeeded:
            self.shrinks += bool(set(before.isr).difference(after.isr))
            self.expands += bool(set(after.isr).difference(before.isr))
            logger.info("%s: in sync are now %s", partition.name, after.isr)

    async def _find_out(self, partition: Partition, replication: Replication) -> None:
        """The answer was lost: read until the store tells which of both states it has."""
        while partition.replication is replication:
            try:
                await self._reach(partition, replication, await self._catalog.revision())
                return
            except (MetadataError, StorageError):
                await asyncio.sleep(_RETRY_S)

    async def _reach(self, partition: Partition, replication: Replication, revision: int) -> None:
        """Wait until the image has this revision, however long it takes. Only then the proposal is decided."""
        while partition.replication is replication:
            try:
                await self._image.until(revision)
                replication.followers.set_isr(replication.state.isr)
                return
            except (MetadataError, StorageError):
                await asyncio.sleep(_RETRY_S)
