"""Records of partitions that another broker leads, for clients that do not look for the leader: those of HTTP.

A request is checked and charged here, and sent on to the leader over connections of its own: requests that wait there
hold up neither writes nor what brokers tell each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

from flymq.broker.replicas.partition import PartitionRead, Written
from flymq.broker.service.accounts import Accounts
from flymq.broker.service.caller import Caller
from flymq.broker.service.gate import Gate, Operation, Resource
from flymq.broker.service.records import Decision, Fetched, Produced
from flymq.client.aio.connection import Connection
from flymq.cluster.image import Image
from flymq.host.tasks import Tasks
from flymq.model.delivery import Acks, Isolation
from flymq.model.errors import FlyMQError, NotLeader, UnknownLeaderEpoch
from flymq.model.names import TopicPartition
from flymq.record.header import Buffer
from flymq.storage.memory_log import MemorySlice
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages import records as wire
from flymq.wire.native.messages.fields import Failure, Message

logger = logging.getLogger(__name__)

Connect = Callable[[int], Awaitable[Connection]]
"""Opens a connection to a broker, on which this one is known as a peer."""
M = TypeVar("M", bound=Message)
T = TypeVar("T")

_ANSWERS_WITHIN_S = 30.0
_WAIT_MS_MAX = 1_000
"""At the leader: a reader that waits longer asks again, so that others get their turn."""
_ATTEMPTS = 5
_RETRY_S = 0.2
_WRITES, _READS = "writes", "reads"
_QUEUED = Written(-1, -1)


class Forwarding:
    """Sends requests on to the leaders."""

    def __init__(
        self,
        broker_id: int,
        image: Image,
        gate: Gate,
        accounts: Accounts,
        tasks: Tasks,
        connect: Connect | None = None,
    ) -> None:
        """`connect`: None for a broker without a cluster, which leads everything."""
        self._broker_id = broker_id
        self._image = image
        self._gate = gate
        self._accounts = accounts
        self._tasks = tasks
        self._connect = connect
        self._links: dict[tuple[int, str], Connection] = {}
        self._opening: dict[tuple[int, str], asyncio.Lock] = {}

    def is_elsewhere(self, name: TopicPartition) -> bool:
        """Whether a partition exists and another broker leads it."""
        if self._connect is None:
            return False
        topic = self._image.find(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            return False
        return topic.partitions[name.partition].leader != self._broker_id

    # --- operations

    def produce(self, caller: Caller, name: TopicPartition, batch: Buffer, acks: Acks) -> Produced:
        """Append a batch to a partition that another broker leads."""
        try:
            self._gate.check_write(caller, name.topic)
        except FlyMQError as error:
            self._accounts.failed(caller, error)
            return Produced([error])
        throttle_ms = self._accounts.produced(caller, len(batch))
        written: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        self._tasks.spawn(f"produce to {name}", self._produce_into(written, name, bytes(batch), acks))
        fail = partial(self._accounts.failed, caller)
        parts: list[Written | FlyMQError] = [_QUEUED]
        return Produced(parts, throttle_ms, Decision(parts, [(0, written)], fail))

    async def _produce_into(
        self, written: asyncio.Future[Written], name: TopicPartition, batch: bytes, acks: Acks
    ) -> None:
        try:
            written.set_result(await self._produce(name, batch, acks))
        except FlyMQError as error:
            written.set_exception(error)
        finally:
            written.cancel()  # unless it is done: the broker is stopping

    async def _produce(self, name: TopicPartition, batch: bytes, acks: Acks) -> Written:
        part = wire.PartitionBatches(*name, batch)
        request = partial(wire.ProduceBatch, partitions=[part], acks=Acks.LEADER if acks is Acks.NONE else acks)

        async def send(leader: int) -> Written:
            answer = await self._send(leader, _WRITES, request(), wire.ProduceBatchAnswer)
            [done] = answer.partitions
            _check(done.error)
            return Written(done.base_offset, done.base_offset, append_time_ms=done.log_append_time)

        return await self._at_leader(name, send)

    async def read(
        self, caller: Caller, name: TopicPartition, offset: int, isolation: Isolation, *, bytes_max: int, wait_ms: int
    ) -> Fetched:
        """Read a partition that another broker leads; wait for records."""
        self._gate.check_read(caller, name.topic)
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + wait_ms / 1000

        async def send(leader: int) -> PartitionRead:
            left_ms = max(0, int(1000 * (ends_s - loop.time())))
            request = wire.Fetch(
                partitions=[wire.FetchPartition(*name, offset, bytes_max)],
                max_bytes=bytes_max,
                max_wait_ms=min(left_ms, _WAIT_MS_MAX),
                isolation=isolation,
            )
            answer = await self._send(leader, _READS, request, wire.FetchAnswer)
            return _read_of(name, answer)

        while True:
            read = await self._at_leader(name, send)
            if read.slice is not None or loop.time() >= ends_s:
                return Fetched([read])

    async def read_many(
        self,
        caller: Caller,
        positions: Mapping[TopicPartition, int],
        isolation: Isolation,
        *,
        bytes_max: int,
        wait_ms: int,
    ) -> list[PartitionRead]:
        """Read several partitions, with one request to each of their leaders. Those that have no leader now, or none
        that answers, are left out: who reads them asks again."""
        by_leader: dict[int, list[wire.FetchPartition]] = {}
        for name, offset in positions.items():
            self._gate.check_read(caller, name.topic)
            leader = self._image.state(name).leader
            if leader != self._broker_id and self._image.members.find(leader) is not None:
                by_leader.setdefault(leader, []).append(wire.FetchPartition(*name, offset, bytes_max))

        async def ask(leader: int, partitions: list[wire.FetchPartition]) -> list[PartitionRead]:
            request = wire.Fetch(
                partitions=partitions,
                max_bytes=bytes_max,
                max_wait_ms=min(wait_ms, _WAIT_MS_MAX),
                isolation=isolation,
            )
            try:
                answer = await self._send(leader, _READS, request, wire.FetchAnswer)
            except FlyMQError as error:
                logger.info("broker %d gives no records: %s", leader, error.message)
                return []
            return [_part_of(TopicPartition(part.topic, part.partition), part) for part in answer.partitions]

        found = await asyncio.gather(*(ask(leader, some) for leader, some in by_leader.items()))
        return [
            read for reads in found for read in reads if not isinstance(read.error, (NotLeader, UnknownLeaderEpoch))
        ]

    async def find_offset(self, caller: Caller, name: TopicPartition, at: int, isolation: Isolation) -> int | None:
        """Return the offset at a position or timestamp; None if there is no later record."""
        self._gate.check(caller, Operation.DESCRIBE, Resource.TOPIC, name.topic)

        async def send(leader: int) -> int | None:
            request = wire.ListOffsets(partitions=[wire.OffsetQuery(*name, at)], isolation=isolation)
            answer = await self._send(leader, _READS, request, wire.ListOffsetsAnswer)
            [found] = answer.partitions
            _check(found.error)
            return None if found.offset < 0 else found.offset

        return await self._at_leader(name, send)

    async def delete(self, caller: Caller, name: TopicPartition, before_offset: int) -> int:
        """Delete the records before an offset, -1 for all; return the new log start offset."""
        self._gate.check(caller, Operation.DELETE, Resource.TOPIC, name.topic)

        async def send(leader: int) -> int:
            request = wire.DeleteRecords(partitions=[wire.DeleteRecordsPartition(*name, before_offset)])
            answer = await self._send(leader, _WRITES, request, wire.DeleteRecordsAnswer)
            [done] = answer.partitions
            _check(done.error)
            return done.log_start_offset

        return await self._at_leader(name, send)

    # --- leaders

    async def _at_leader(self, name: TopicPartition, send: Callable[[int], Awaitable[T]]) -> T:
        """Send a request to the leader. It is sent again only to a broker that says it does not lead: any other failure
        may mean that it was carried out."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_RETRY_S)
            leader = self._image.state(name).leader
            if leader == self._broker_id or self._image.members.find(leader) is None:
                continue  # an election is on its way, or this broker has just become the leader
            try:
                return await send(leader)
            except (NotLeader, UnknownLeaderEpoch):
                continue
        raise NotLeader(f"no broker leads {name} now", hint="Try again after a short wait.")

    async def _send(self, leader: int, kind: str, request: Message, answer: type[M]) -> M:
        link = await self._link(leader, kind)
        return await link.request(request, answer, _ANSWERS_WITHIN_S)

    async def _link(self, leader: int, kind: str) -> Connection:
        assert self._connect is not None, "a broker without a cluster leads everything"
        key = leader, kind
        async with self._opening.setdefault(key, asyncio.Lock()):
            link = self._links.get(key)
            if link is None or not link.is_open:
                link = self._links[key] = await self._connect(leader)
            return link

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()


def _read_of(name: TopicPartition, answer: wire.FetchAnswer) -> PartitionRead:
    if not answer.partitions:
        return PartitionRead(name)
    [part] = answer.partitions
    _check(part.error)
    return _part_of(name, part)


def _part_of(name: TopicPartition, part: wire.FetchedPartition) -> PartitionRead:
    return PartitionRead(
        name,
        MemorySlice(bytes(part.batches), 0) if len(part.batches) else None,
        part.high_watermark,
        part.last_stable_offset,
        part.log_start_offset,
        part.aborted,
        None if part.error is None else error_of(part.error),
    )


def _check(failure: Failure | None) -> None:
    if failure is not None:
        raise error_of(failure)
