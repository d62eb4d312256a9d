"""Write and read records: produce, publish, fetch, list offsets, delete records. Hop 3 of every message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from flymq.broker.admin import Admin
from flymq.broker.coordinators.producer_ids import derive_producer_id as derive_producer_id
from flymq.broker.coordinators.transactions import Transactions
from flymq.broker.replicas.fetching import FetchFrom as FetchFrom
from flymq.broker.replicas.fetching import FetchQuery as FetchQuery
from flymq.broker.replicas.fetching import PendingFetch as PendingFetch
from flymq.broker.replicas.partition import NO_EPOCH, Partition
from flymq.broker.replicas.partition import PartitionRead as PartitionRead
from flymq.broker.replicas.partition import Slice as Slice
from flymq.broker.replicas.partition import View as View
from flymq.broker.replicas.partition import Written as Written
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.service.accounts import Accounts
from flymq.broker.service.caller import Caller
from flymq.broker.service.first_batches import FirstBatches
from flymq.broker.service.gate import Gate, Operation, Resource
from flymq.broker.service.skipped_batches import SkippedBatches
from flymq.broker.service.slow_appends import SlowAppends
from flymq.cluster.image import Image, Topic
from flymq.coordination.transactions import Joining as Joining
from flymq.host.clock import Clock
from flymq.host.prompt_future import PromptFuture as PromptFuture
from flymq.model.delivery import Acks, Isolation
from flymq.model.errors import (
    BrokerUnavailable,
    FlyMQError,
    InternalError,
    InvalidBatch,
    OffsetOutOfRange,
    RecordNotFound,
    UnreadableBatch,
)
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.record.header import Buffer
from flymq.record.partitioning import partition_for_key
from flymq.record.reading import parse_records
from flymq.record.record import Header, Record
from flymq.storage.batch_validation import must_recompress
from flymq.storage.log import TimedOffset as TimedOffset
from flymq.storage.memory_log import MemorySlice as MemorySlice

ANY_PARTITION = -1

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""Positions in a log; values that are not negative are timestamps in milliseconds."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The upper limits of a fetch."""

    wait_ms_max: int = 60_000
    bytes_max: int = 50 << 20


ProducePart = tuple[str, int, Buffer]
"""Topic, partition and batches. A plain tuple: one is made per batch, and a named tuple costs much more."""

PartProduced = Written | FlyMQError
"""The result for one partition. Each partition succeeds or fails on its own."""


Acknowledged = asyncio.Future[None] | PromptFuture[None] | asyncio.Future[Written]
"""Done when a part is acknowledged; with its offsets if they were not known before."""


class Decision(PromptFuture[None]):
    """Done when each part of a produce request is acknowledged or has an error."""

    __slots__ = ("_fail", "_left", "_parts", "_unsafe")

    def __init__(
        self,
        parts: list[PartProduced],
        unsafe: Sequence[tuple[int, Acknowledged]],
        fail: Callable[[FlyMQError], None],
    ) -> None:
        """`unsafe`: positions in `parts`, and what each of them waits for."""
        super().__init__()
        self._parts = parts
        self._unsafe = unsafe
        self._fail = fail
        self._left = len(unsafe)
        for _, safe in unsafe:
            safe.add_done_callback(self._one_is_done)

    def _one_is_done(self, _: Acknowledged) -> None:
        self._left -= 1
        if self._left:
            return
        for at, safe in self._unsafe:
            error = BrokerUnavailable("the broker is stopping") if safe.cancelled() else safe.exception()
            if error is not None:
                self._parts[at] = failure = error if isinstance(error, FlyMQError) else InternalError()
                self._fail(failure)
            elif (written := safe.result()) is not None:
                self._parts[at] = written
        self.set_result(None)


@dataclass(slots=True)
class Produced:
    """The result of a produce request. `parts` are final once `decided` is done, their offsets too; None: already."""

    parts: list[PartProduced]
    """In the order of the request."""
    throttle_ms: int = 0
    decided: Decision | None = None


@dataclass(slots=True)
class Fetched:
    """The result of a fetch."""

    reads: list[PartitionRead]
    throttle_ms: int = 0


class NewRecord(NamedTuple):
    """A record that the broker encodes into a batch."""

    key: Buffer | None
    value: Buffer | None
    headers: Sequence[tuple[str, Buffer | None]] = ()
    timestamp_ms: int = -1
    """Create time; -1: now."""


@dataclass(slots=True)
class Published:
    """The position of a single record."""

    name: TopicPartition
    offset: int
    timestamp_ms: int
    throttle_ms: int

    def take(self, written: asyncio.Future[Written]) -> None:
        """Take the position from an append that is done."""
        if not written.cancelled() and written.exception() is None:
            self.offset = written.result().base_offset
            if written.result().append_time_ms >= 0:
                self.timestamp_ms = written.result().append_time_ms


class ProducerInfo(NamedTuple):
    """The state of a producer in a partition."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    open_since: int
    """The first offset of its open transaction; -1: none."""


class Records:
    """Operations on records."""

    def __init__(  # noqa: PLR0913  # assembled once, in server/open_broker.py
        self,
        image: Image,
        replicas: Replicas,
        admin: Admin,
        transactions: Transactions,
        gate: Gate,
        accounts: Accounts,
        clock: Clock,
        limits: FetchLimits,
        slow_appends: SlowAppends,
        first_batches: FirstBatches,
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._admin = admin
        self._transactions = transactions
        self._gate = gate
        self._accounts = accounts
        self._traffic = accounts.traffic
        self._clock = clock
        self._limits = limits
        self._next_partition: dict[str, int] = {}
        self.skipped = SkippedBatches()
        self._slow_appends = slow_appends
        self._first_batches = first_batches

    # --- write

    def produce(
        self,
        caller: Caller,
        parts: Sequence[ProducePart],
        acks: Acks,
        *,
        transactional_id: str = "",
        joining: Joining = Joining.WRITTEN,
    ) -> Produced:
        """Append batches to existing topics."""
        produced: list[PartProduced] = []
        unsafe: list[tuple[int, Acknowledged]] = []
        size = 0
        slow = self._slow_appends
        for topic, number, batches in parts:
            size += len(batches)
            try:
                self._gate.check_write(caller, topic)
                partition = self._replicas.get((topic, number))
                if transactional_id and self._first_batches.must_queue(partition, batches):
                    confirmed = partial(self._append, caller, partition, acks, transactional_id, joining)
                    added = self._first_batches.add(transactional_id, partition, batches, joining, confirmed)
                    unsafe.append((len(produced), added))
                    produced.append(_QUEUED)
                    continue
                if slow.must_queue(partition, batches):
                    append = partial(self._append, caller, partition, acks, transactional_id, joining, None)
                    unsafe.append((len(produced), slow.add(partition, batches, append)))
                    produced.append(_QUEUED)
                    continue
                written = self._append(caller, partition, acks, transactional_id, joining, None, batches)
            except FlyMQError as error:
                self._accounts.failed(caller, error)
                produced.append(error)
            else:
                if written.safe is not None:
                    unsafe.append((len(produced), written.safe))
                produced.append(written)
        throttle_ms = max(self._accounts.produced(caller, size), slow.throttle_ms)
        if transactional_id:
            throttle_ms = max(throttle_ms, self._first_batches.throttle_ms)
        if not unsafe:
            return Produced(produced, throttle_ms)
        return Produced(produced, throttle_ms, Decision(produced, unsafe, partial(self._accounts.failed, caller)))

    def _append(
        self,
        caller: Caller,
        partition: Partition,
        acks: Acks,
        transactional_id: str,
        joining: Joining,
        holds: Callable[[], bool] | None,
        batches: Buffer,
    ) -> Written:
        if not transactional_id:
            written = partition.append(batches, acks)
        else:
            written = self._transactions.produce(
                transactional_id, partition, batches, acks, joining, caller.connection, holds=holds
            )
        if not written.repeated:
            count = written.last_offset - written.base_offset + 1
            self._traffic.wrote(caller.protocol, partition.name.topic, count, len(batches))
        return written

    def check_writable(self, caller: Caller, topic: str) -> None:
        """Raise an error if the caller may not produce to the topic, before anything is read or created for it."""
        self._gate.check_write(caller, topic)

    def is_missing(self, name: str) -> bool:
        """Whether a topic must be created or opened before a produce to it can succeed."""
        topic = self._image.find(name)
        return self._admin.may_create(name) if topic is None else self._replicas.is_settling(topic)

    async def create_missing(self, caller: Caller, names: Iterable[str]) -> None:
        """Create topics on first use. Errors are reported later, for each partition of the produce."""
        for name in filter(self.is_missing, dict.fromkeys(names)):
            with suppress(FlyMQError):
                self._gate.check(caller, Operation.CREATE, Resource.TOPIC, name)
                await self._admin.get_or_create(name)

    def publish(
        self, caller: Caller, topic: str, record: NewRecord, acks: Acks, *, partition: int = ANY_PARTITION
    ) -> tuple[Published, Acknowledged | None]:
        """Write one record; the broker encodes it and chooses the partition.

        What is published is final once the future is done, which fails if the record is not written.
        """
        self._gate.check_write(caller, topic)
        found = self._image.get(topic)
        number = self.choose_partition(found, record.key) if partition == ANY_PARTITION else partition
        timestamp_ms = self._clock.now_ms() if record.timestamp_ms < 0 else record.timestamp_ms
        key, value, headers = record.key, record.value, record.headers
        copied = (
            None if key is None else bytes(key),
            None if value is None else bytes(value),
            _copy_headers(headers) if headers else (),
            timestamp_ms,
        )
        batch = encode_batch([copied])
        name = TopicPartition(topic, number)
        found_partition = self._replicas.get(name)
        if must_recompress(batch, found_partition.log.config):
            return self._publish_later(caller, found_partition, batch, acks, timestamp_ms)
        written = found_partition.append(batch, acks)
        self._traffic.wrote(caller.protocol, topic, 1, len(batch))
        throttle_ms = self._accounts.produced(caller, len(batch))
        if written.append_time_ms >= 0:
            timestamp_ms = written.append_time_ms
        return Published(name, written.base_offset, timestamp_ms, throttle_ms), written.safe

    def _publish_later(
        self, caller: Caller, partition: Partition, batch: Buffer, acks: Acks, timestamp_ms: int
    ) -> tuple[Published, Acknowledged]:
        """Write a record once the thread has compressed it."""
        append = partial(self._append, caller, partition, acks, "", Joining.WRITTEN, None)
        written = self._slow_appends.add(partition, batch, append)
        throttle_ms = max(self._accounts.produced(caller, len(batch)), self._slow_appends.throttle_ms)
        published = Published(partition.name, -1, timestamp_ms, throttle_ms)
        written.add_done_callback(published.take)
        return published, written

    def choose_partition(self, topic: Topic, key: Buffer | None) -> int:
        """Choose by the hash of the key, like Kafka's clients; round-robin without a key."""
        count = len(topic.partitions)
        if key is not None:
            return partition_for_key(bytes(key), count)
        following = (self._next_partition.get(topic.name, 0) + 1) % count
        self._next_partition[topic.name] = following
        return following

    def topic_deleted(self, name: str) -> None:
        self._next_partition.pop(name, None)

    # --- read

    def fetch(self, caller: Caller, query: FetchQuery) -> Fetched | PendingFetch[Fetched]:
        """Read several partitions, now or when enough is available. The limits of the broker apply."""
        self._check_query(caller, query)
        reads = self._replicas.fetches.read(query)
        if reads is not None:
            return Fetched(reads, self._accounts.fetched(caller, reads))
        return self._replicas.fetches.wait(query, partial(self._fetched, caller))

    def _fetched(self, caller: Caller, reads: list[PartitionRead]) -> Fetched:
        return Fetched(reads, self._accounts.fetched(caller, reads))

    def fetch_uncounted(self, caller: Caller, query: FetchQuery) -> Fetched | PendingFetch[Fetched]:
        """Like `fetch`, for a reader that decodes the records, and counts with `gave` which ones it returns."""
        self._check_query(caller, query)
        reads = self._replicas.fetches.read(query)
        return self._replicas.fetches.wait(query, Fetched) if reads is None else Fetched(reads)

    def gave(self, caller: Caller, topic: str, records: int, size: int) -> int:
        """Count returned records; return the throttle time in milliseconds."""
        return self._accounts.gave(caller, topic, records, size)

    def _check_query(self, caller: Caller, query: FetchQuery) -> None:
        if query.bytes_max > self._limits.bytes_max:
            query.bytes_max = self._limits.bytes_max
        if query.wait_ms_max > self._limits.wait_ms_max:
            query.wait_ms_max = self._limits.wait_ms_max
        checked = None
        for wanted in query.partitions:
            topic = wanted.name[0]
            if topic != checked:  # partitions of a topic are adjacent
                self._gate.check_read(caller, topic)
                checked = topic

    @property
    def may_wait(self) -> bool:
        """Whether a fetch may wait: not while the broker is closing."""
        return self._replicas.fetches.may_wait

    @property
    def wait_ms_max(self) -> int:
        """The maximum wait time of a fetch."""
        return self._limits.wait_ms_max

    def check_topic_readable(self, caller: Caller, topic: str) -> None:
        """Raise an error if the caller may not fetch from the topic. `fetch` checks it again, for all topics."""
        self._gate.check_read(caller, topic)

    def check_readable(self, caller: Caller, name: TopicPartition, leader_epoch: int = NO_EPOCH) -> None:
        """Raise an error if this broker does not lead the partition with the leader epoch that the client knows."""
        self._gate.check_read(caller, name[0])
        self._replicas.get(name).check_leads(leader_epoch)

    def read_one(self, caller: Caller, name: TopicPartition, offset: int, isolation: Isolation) -> Record:
        """Return the record at one offset."""
        self._gate.check_read(caller, name.topic)
        read = self._replicas.get(name).read(offset, bytes_max=0, view=View.of(isolation))
        run = b"" if read.slice is None else read.slice.read()
        try:
            found = parse_records(run, start_offset=offset, aborted=read.aborted)
        except InvalidBatch as error:
            raise UnreadableBatch(f"{name} at offset {offset}: the batch cannot be decoded: {error.message}") from error
        if not found or found[0].offset != offset:
            raise RecordNotFound(f"{name} has no record at offset {offset}")
        self._accounts.fetched(caller, [read])
        return found[0]

    def nearer_replica(self, caller: Caller, name: TopicPartition, offset: int, rack: str) -> int | None:
        """Return an in-sync follower in the rack of a consumer, which has the records before `offset`; None if the
        leader, which this broker has to be, is there itself, or no follower is."""
        partition, members = self._replicas.find(name), self._image.members
        replication = None if partition is None else partition.replication
        here = members.find(self._replicas.broker_id)
        if replication is None or here is None or here.registration.rack == rack:
            return None
        best: tuple[int, int] | None = None
        for broker_id in replication.state.isr:
            member, follower = members.find(broker_id), replication.followers.of(broker_id)
            if member is None or follower is None or not member.is_live or member.registration.is_draining:
                continue
            if member.registration.rack == rack and follower.position >= offset:
                best = max(best or (-1, -1), (follower.position, broker_id))
        return None if best is None else best[1]

    # --- offsets

    async def find_offset(
        self,
        caller: Caller,
        name: TopicPartition,
        at: int,
        isolation: Isolation,
        *,
        leader_epoch: int = NO_EPOCH,
    ) -> TimedOffset | None:
        """Return the offset at a position or timestamp, with the leader epoch; None if there is no later record."""
        if at in (EARLIEST, LATEST):
            return self.find_position(caller, name, at, isolation, leader_epoch=leader_epoch)
        partition = self._described(caller, name, leader_epoch)
        if at == MAX_TIMESTAMP:
            return await self._replicas.run_steps(partition.find_latest_time())
        if at < 0:
            raise OffsetOutOfRange(
                f"{at} is neither a timestamp nor a position", hint="Use -1, -2, -3 or a timestamp in ms."
            )
        return await self._replicas.run_steps(partition.find_time(at, View.of(isolation)))

    def find_position(
        self, caller: Caller, name: TopicPartition, at: int, isolation: Isolation, *, leader_epoch: int = NO_EPOCH
    ) -> TimedOffset:
        """Return the offset at `EARLIEST` or `LATEST`, which every log has, with the leader epoch."""
        partition = self._described(caller, name, leader_epoch)
        return partition.find_earliest() if at == EARLIEST else partition.find_latest(View.of(isolation))

    def check_offset(self, caller: Caller, name: TopicPartition, offset: int) -> None:
        """Raise an error unless the offset is in the log or at its end."""
        partition = self._described(caller, name)
        start_offset, end_offset = partition.start_offset, partition.high_watermark
        if not start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(f"{name} has the offsets {start_offset} to {end_offset}")

    def end_of_epoch(
        self, caller: Caller, name: TopicPartition, epoch: int, *, leader_epoch: int = NO_EPOCH
    ) -> tuple[int, int] | None:
        """Return (largest known epoch up to `epoch`, its end offset); None if all known epochs are later."""
        return self._described(caller, name, leader_epoch).end_of_epoch(epoch)

    def producers(self, caller: Caller, name: TopicPartition) -> list[ProducerInfo]:
        """Return the states of the producers of a partition."""
        return [
            ProducerInfo(
                producer.producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                -1 if producer.open_since is None else producer.open_since,
            )
            for producer in self._described(caller, name).log.producers.all()
        ]

    def _described(self, caller: Caller, name: TopicPartition, leader_epoch: int = NO_EPOCH) -> Partition:
        self._gate.check(caller, Operation.DESCRIBE, Resource.TOPIC, name.topic)
        partition = self._replicas.get(name)
        partition.check_leads(leader_epoch)
        return partition

    # --- delete

    async def delete(self, caller: Caller, name: TopicPartition, before_offset: int) -> int:
        """Delete the records before an offset, -1 for all; return the new log start offset."""
        self._gate.check(caller, Operation.DELETE, Resource.TOPIC, name.topic)
        partition = self._replicas.get(name)
        async with partition.upkeep:
            return await self._replicas.run_steps(partition.delete_before(before_offset))


_QUEUED = Written(-1, -1)
"""In the place of the offsets of a part that is not appended yet."""


def _copy_headers(headers: Sequence[tuple[str, Buffer | None]]) -> list[Header]:
    return [(name, None if value is None else bytes(value)) for name, value in headers]
