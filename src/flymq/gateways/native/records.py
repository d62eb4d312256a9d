"""Writing and reading records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from flymq.broker.replicas.fetching import FetchFrom, FetchQuery
from flymq.broker.replicas.partition import Partition, PartitionRead
from flymq.gateways.connection import AnswerLater
from flymq.gateways.native.connection import Answer, NativeConnection, Pieces
from flymq.gateways.native.waiting import Later, when_done
from flymq.model.delivery import Acks, Isolation
from flymq.model.errors import FlyMQError, OffsetOutOfRange, RecordNotFound
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.record.reading import parse_records
from flymq.storage.log import TimedOffset
from flymq.wire.native.fetch_frames import encode_around
from flymq.wire.native.messages import records as wire
from flymq.wire.native.messages.fields import ANY_PARTITION, Failure

# --- produce --------------------------------------------------------------------------------------------------------


def produce(connection: NativeConnection, request: wire.Produce) -> Answer | Later | Any:
    """One record: the broker makes the batch and chooses the partition."""
    if request.topic not in connection.broker.topics:
        return _create_and_produce(connection, _keep_record(request))
    if request.acks is Acks.NONE:
        with suppress(FlyMQError):  # who wants no answer wants none
            _produce(connection, request)
        return None
    return _produce(connection, request)


async def _create_and_produce(connection: NativeConnection, request: wire.Produce) -> Answer:
    try:
        await connection.broker.admin.get_or_create(request.topic)
        result = _produce(connection, request)
    except FlyMQError:
        if request.acks is Acks.NONE:
            return None
        raise
    return await _unless_unwanted(request.acks, result)


async def _unless_unwanted(acks: Acks, result: Answer | Later) -> Answer:
    if acks is Acks.NONE:
        return None
    return await result if isinstance(result, asyncio.Future) else result


def _produce(connection: NativeConnection, request: wire.Produce) -> wire.ProduceAnswer | Later:
    broker = connection.broker
    topic = broker.topics.get(request.topic)
    partition = topic.choose_partition(request.key) if request.partition == ANY_PARTITION else request.partition
    timestamp = broker.clock.now_ms() if request.timestamp < 0 else request.timestamp
    record = (
        None if request.key is None else bytes(request.key),
        None if request.value is None else bytes(request.value),
        [(name, None if value is None else bytes(value)) for name, value in request.headers],
        timestamp,
    )
    batch = encode_batch([record])
    connection.charge(connection.shared.produce_quota, len(batch))
    appended, durable = broker.topics.produce(TopicPartition(request.topic, partition), batch, request.acks)
    broker.traffic.wrote(connection.protocol, request.topic, 1, len(batch))
    if appended.append_time_ms >= 0:
        timestamp = appended.append_time_ms
    answer = wire.ProduceAnswer(
        topic=request.topic, partition=partition, offset=appended.base_offset, timestamp=timestamp
    )
    return answer if durable is None else when_done([durable], answer)


def _keep_record(request: wire.Produce) -> wire.Produce:
    """Copy the record: the frame it lies in is gone once the handler waits."""
    request.key = None if request.key is None else bytes(request.key)
    request.value = None if request.value is None else bytes(request.value)
    request.headers = [(name, None if value is None else bytes(value)) for name, value in request.headers]
    return request


def produce_batch(connection: NativeConnection, request: wire.ProduceBatch) -> Answer | Later | Any:
    """Ready-made batches for several partitions; each succeeds or fails on its own."""
    broker = connection.broker
    if broker.admin.defaults.auto_create:
        for part in request.partitions:
            if part.topic not in broker.topics:
                return _create_and_produce_batch(connection, _keep_batches(request))
    result = _produce_batch(connection, request)
    return None if request.acks is Acks.NONE else result


def _keep_batches(request: wire.ProduceBatch) -> wire.ProduceBatch:
    """Copy the batches: the frame they lie in is gone once the handler waits."""
    for part in request.partitions:
        part.batches = bytes(part.batches)
    return request


async def _create_and_produce_batch(connection: NativeConnection, request: wire.ProduceBatch) -> Answer:
    for topic in {part.topic for part in request.partitions}:
        with suppress(FlyMQError):  # a name that cannot be a topic's is reported with its partition
            await connection.broker.admin.get_or_create(topic)
    return await _unless_unwanted(request.acks, _produce_batch(connection, request))


def _produce_batch(connection: NativeConnection, request: wire.ProduceBatch) -> wire.ProduceBatchAnswer | Later:
    broker = connection.broker
    parts: list[wire.PartitionAppended] = []
    waiting: list[asyncio.Future[None]] = []
    size = 0
    for part in request.partitions:
        topic, number, batches = part.topic, part.partition, part.batches
        size += len(batches)
        try:
            partition = broker.topics.partition(TopicPartition(topic, number))
            if request.transactional_id:
                appended, unsafe = broker.transactions.produce(
                    request.transactional_id, partition, batches, request.acks
                )
                waiting += unsafe
            else:
                appended, durable = partition.append(batches, request.acks)
                if durable is not None:
                    waiting.append(durable)
        except FlyMQError as error:
            connection.shared.requests.failed(connection.protocol, error.code)
            parts.append(wire.PartitionAppended(topic, number, error=Failure.of(error)))
            continue
        base_offset = appended.base_offset
        if not appended.repeated:
            broker.traffic.wrote(connection.protocol, topic, appended.last_offset - base_offset + 1, len(batches))
        parts.append(
            wire.PartitionAppended(topic, number, base_offset, appended.append_time_ms, partition.log.start_offset)
        )
    connection.charge(connection.shared.produce_quota, size)
    answer = wire.ProduceBatchAnswer(partitions=parts)
    return when_done(waiting, answer) if waiting else answer


# --- read -----------------------------------------------------------------------------------------------------------


def consume(connection: NativeConnection, request: wire.Consume) -> wire.ConsumeAnswer:
    """The record at one offset."""
    partition = connection.broker.topics.partition(TopicPartition(request.topic, request.partition))
    read = partition.read(request.offset, bytes_max=0, isolation=request.isolation)
    found = (
        []
        if read.slice is None
        else parse_records(read.slice.read(), start_offset=request.offset, aborted=read.aborted)
    )
    if not found or found[0].offset != request.offset:
        raise RecordNotFound(f"{request.topic}-{request.partition} has no record at offset {request.offset}")
    record = found[0]
    connection.broker.traffic.read(connection.protocol, request.topic, 1, read.length)
    return wire.ConsumeAnswer(
        topic=request.topic,
        partition=request.partition,
        offset=record.offset,
        timestamp=record.timestamp_ms,
        value=record.value,
        key=record.key,
        headers=list(record.headers),
    )


def fetch(connection: NativeConnection, request: wire.Fetch) -> Pieces | AnswerLater:
    """Batches of several partitions, now or when enough has come."""
    limits = connection.broker.fetch_limits
    query = FetchQuery(
        [
            FetchFrom(TopicPartition(part.topic, part.partition), part.offset, part.max_bytes)
            for part in request.partitions
        ],
        bytes_min=request.min_bytes,
        bytes_max=min(request.max_bytes, limits.bytes_max),
        wait_ms_max=min(request.max_wait_ms, limits.wait_ms_max),
        isolation=request.isolation,
    )
    reads = connection.broker.topics.fetch(query)
    if isinstance(reads, list):
        return fetch_frame(connection, request.id, reads)
    return AnswerLater(reads, lambda reads: fetch_frame(connection, request.id, reads))


def fetch_frame(connection: NativeConnection, request_id: int, reads: list[PartitionRead]) -> Pieces:
    """Return the answer in pieces, slices of the logs between them."""
    answer = wire.FetchAnswer(id=request_id, partitions=[fetched(read) for read in reads])
    pieces = interleave(encode_around(answer, [read.length for read in reads]), reads)
    size = 0
    for read in reads:
        if read.error is not None:
            connection.shared.requests.failed(connection.protocol, read.error.code)
        if read.length:
            size += read.length
            connection.broker.traffic.read(connection.protocol, read.name.topic, read.offsets, read.length)
    connection.charge(connection.shared.fetch_quota, size)
    return pieces


def fetched(read: PartitionRead) -> wire.FetchedPartition:
    return wire.FetchedPartition(
        read.name.topic,
        read.name.partition,
        None if read.error is None else Failure.of(read.error),
        read.high_watermark,
        read.last_stable_offset,
        read.start_offset,
        read.aborted,
    )


def interleave(heads: Sequence[bytes], reads: Sequence[PartitionRead]) -> Pieces:
    """Put each slice behind its head."""
    pieces: Pieces = []
    for at, head in enumerate(heads):
        pieces.append(head)
        if at < len(reads) and (body := reads[at].slice) is not None:
            pieces.append(body)
    return pieces


# --- offsets --------------------------------------------------------------------------------------------------------


def list_offsets(connection: NativeConnection, request: wire.ListOffsets) -> wire.ListOffsetsAnswer:
    """Offsets by position or by time."""
    found = []
    for query in request.partitions:
        try:
            partition = connection.broker.topics.partition(TopicPartition(query.topic, query.partition))
            timed = find_offset(partition, query.at, request.isolation)
            found.append(wire.OffsetFound(query.topic, query.partition, *(timed or ())))
        except FlyMQError as error:
            found.append(wire.OffsetFound(query.topic, query.partition, error=Failure.of(error)))
    return wire.ListOffsetsAnswer(partitions=found)


def find_offset(partition: Partition, at: int, isolation: Isolation) -> TimedOffset | None:
    """Return the offset at a position or time; None when no record is so late."""
    if at == wire.AT_EARLIEST:
        return TimedOffset(partition.log.start_offset, -1, partition.leader_epoch)
    if at == wire.AT_LATEST:
        return TimedOffset(partition.end_for(isolation), -1, partition.leader_epoch)
    if at == wire.AT_MAX_TIMESTAMP:
        return partition.find_latest_time()
    if at < 0:
        raise OffsetOutOfRange(f"{at} is neither a time nor a position", hint="Use -1, -2, -3 or a time in ms.")
    return partition.find_time(at, isolation)


def delete_records(connection: NativeConnection, request: wire.DeleteRecords) -> wire.DeleteRecordsAnswer:
    """Remove the oldest records."""
    deleted = []
    for part in request.partitions:
        try:
            partition = connection.broker.topics.partition(TopicPartition(part.topic, part.partition))
            start_offset = partition.delete_before(part.before_offset)
            deleted.append(wire.RecordsDeleted(part.topic, part.partition, start_offset))
        except FlyMQError as error:
            deleted.append(wire.RecordsDeleted(part.topic, part.partition, error=Failure.of(error)))
    return wire.DeleteRecordsAnswer(partitions=deleted)
