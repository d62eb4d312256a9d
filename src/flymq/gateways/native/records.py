"""Produce and fetch records."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from flymq.broker.service.records import (
    Fetched,
    FetchFrom,
    FetchQuery,
    NewRecord,
    PartitionRead,
    PartProduced,
    Produced,
    Published,
    View,
)
from flymq.gateways.connection import AnswerLater
from flymq.gateways.native.connection import Answer, NativeConnection, Pieces
from flymq.gateways.pieces import ELEMENTS_AT_ONCE
from flymq.model.delivery import Acks
from flymq.model.errors import FlyMQError, InvalidRequest
from flymq.model.names import TopicPartition
from flymq.wire.native.fetch_frames import encode_around
from flymq.wire.native.messages import records as wire
from flymq.wire.native.messages.fields import Failure

# --- produce --------------------------------------------------------------------------------------------------------


def produce(connection: NativeConnection, request: wire.Produce) -> Answer | AnswerLater | Coroutine[Any, Any, Answer]:
    """Produce one record: the broker encodes the batch and chooses the partition."""
    if connection.service.records.is_missing(request.topic):
        return _create_and_publish(connection, _keep_record(request))
    if request.acks is not Acks.NONE:
        return _publish(connection, request)
    _publish_unanswered(connection, request)
    return None


async def _create_and_publish(connection: NativeConnection, request: wire.Produce) -> Answer:
    await connection.service.records.create_missing(connection.caller, (request.topic,))
    if request.acks is Acks.NONE:
        _publish_unanswered(connection, request)
        return None
    answer = _publish(connection, request)
    return answer.answer(await answer.awaited) if isinstance(answer, AnswerLater) else answer


def _publish_unanswered(connection: NativeConnection, request: wire.Produce) -> None:
    """Produce a record with acks none: no response, not even for an error."""
    try:
        _publish(connection, request)
    except FlyMQError as error:
        connection.service.accounts.failed(connection.caller, error)


def _publish(connection: NativeConnection, request: wire.Produce) -> wire.ProduceAnswer | AnswerLater:
    record = NewRecord(request.key, request.value, request.headers, request.timestamp)
    published, safe = connection.service.records.publish(
        connection.caller, request.topic, record, request.acks, partition=request.partition
    )
    if published.throttle_ms:
        connection.throttle(published.throttle_ms)
    return _published(published) if safe is None else AnswerLater(safe, lambda _: _published(published))


def _published(published: Published) -> wire.ProduceAnswer:
    return wire.ProduceAnswer(
        topic=published.name.topic,
        partition=published.name.partition,
        offset=published.offset,
        timestamp=published.timestamp_ms,
    )


def _keep_record(request: wire.Produce) -> wire.Produce:
    """Copy the record: its frame is only valid until the handler waits."""
    request.key = None if request.key is None else bytes(request.key)
    request.value = None if request.value is None else bytes(request.value)
    request.headers = [(name, None if value is None else bytes(value)) for name, value in request.headers]
    return request


def produce_batch(
    connection: NativeConnection, request: wire.ProduceBatch
) -> Answer | AnswerLater | Coroutine[Any, Any, Answer]:
    """Produce encoded batches for several partitions; each succeeds or fails on its own."""
    is_missing = connection.service.records.is_missing
    for part in request.partitions:
        if is_missing(part.topic):
            return _create_and_produce(connection, _keep_batches(request))
    produced = _produce(connection, request)
    if request.acks is Acks.NONE:
        return None
    return _produce_answer(request, produced) if produced.decided is None else _when_decided(request, produced)


def _keep_batches(request: wire.ProduceBatch) -> wire.ProduceBatch:
    """Copy the batches: their frame is only valid until the handler waits."""
    for part in request.partitions:
        part.batches = bytes(part.batches)
    return request


async def _create_and_produce(connection: NativeConnection, request: wire.ProduceBatch) -> Answer:
    await connection.service.records.create_missing(connection.caller, [part.topic for part in request.partitions])
    produced = _produce(connection, request)
    if request.acks is Acks.NONE:
        return None
    if produced.decided is not None:
        await produced.decided
    return _produce_answer(request, produced)


def _produce(connection: NativeConnection, request: wire.ProduceBatch) -> Produced:
    produced = connection.service.records.produce(
        connection.caller,
        [(part.topic, part.partition, part.batches) for part in request.partitions],
        request.acks,
        transactional_id=request.transactional_id,
    )
    if produced.throttle_ms:
        connection.throttle(produced.throttle_ms)
    return produced


def _when_decided(request: wire.ProduceBatch, produced: Produced) -> AnswerLater:
    assert produced.decided is not None
    return AnswerLater(produced.decided, lambda _: _produce_answer(request, produced))


def _produce_answer(request: wire.ProduceBatch, produced: Produced) -> wire.ProduceBatchAnswer:
    return wire.ProduceBatchAnswer(partitions=[*map(_appended, request.partitions, produced.parts)])


def _appended(asked: wire.PartitionBatches, part: PartProduced) -> wire.PartitionAppended:
    if isinstance(part, FlyMQError):
        return wire.PartitionAppended(asked.topic, asked.partition, error=Failure.of(part))
    return wire.PartitionAppended(
        asked.topic, asked.partition, part.base_offset, part.append_time_ms, part.start_offset
    )


# --- read -----------------------------------------------------------------------------------------------------------


def consume(connection: NativeConnection, request: wire.Consume) -> wire.ConsumeAnswer:
    """Return the record at one offset."""
    name = TopicPartition(request.topic, request.partition)
    record = connection.service.records.read_one(connection.caller, name, request.offset, request.isolation)
    return wire.ConsumeAnswer(
        topic=request.topic,
        partition=request.partition,
        offset=record.offset,
        timestamp=record.timestamp_ms,
        value=record.value,
        key=record.key,
        headers=list(record.headers),
    )


def fetch(connection: NativeConnection, request: wire.Fetch) -> Pieces | AnswerLater | Coroutine[Any, Any, Pieces]:
    """Return batches of several partitions, now or when enough is available."""
    query = _query(request)
    if len(query.partitions) > ELEMENTS_AT_ONCE:
        connection.begin_fetch(len(query.partitions))
        return _fetch_many(connection, request.id, query)
    fetched = connection.service.records.fetch(connection.caller, query)
    if isinstance(fetched, Fetched):
        return _fetch_frame(connection, request.id, fetched)
    return AnswerLater(fetched, lambda fetched: _fetch_frame(connection, request.id, fetched))


async def _fetch_many(connection: NativeConnection, request_id: int, query: FetchQuery) -> Pieces:
    """Fetch from many partitions; the response is built in a thread."""
    try:
        fetched = connection.service.records.fetch(connection.caller, query)
        if not isinstance(fetched, Fetched):
            fetched = await fetched
        if fetched.throttle_ms:
            connection.throttle(fetched.throttle_ms)
        reads = fetched.reads
        return await connection.shared.codec_threads.run(lambda: _frame(request_id, reads))
    finally:
        connection.end_fetch(len(query.partitions))


def _query(request: wire.Fetch) -> FetchQuery:
    wanted = {(part.topic, part.partition): part for part in request.partitions}
    if len(wanted) < len(request.partitions):  # each would wait on its own for the same records
        raise InvalidRequest("the fetch names a partition more than once")
    return FetchQuery(
        [FetchFrom(TopicPartition(*name), part.offset, part.max_bytes) for name, part in wanted.items()],
        bytes_min=request.min_bytes,
        bytes_max=request.max_bytes,
        wait_ms_max=request.max_wait_ms,
        view=View.of(request.isolation),
    )


def _fetch_frame(connection: NativeConnection, request_id: int, fetched: Fetched) -> Pieces:
    """Return the response in pieces, with slices of the logs between them."""
    if fetched.throttle_ms:
        connection.throttle(fetched.throttle_ms)
    return _frame(request_id, fetched.reads)


def _frame(request_id: int, reads: Sequence[PartitionRead]) -> Pieces:
    answer = wire.FetchAnswer(id=request_id, partitions=[fetched_partition(read) for read in reads])
    return interleave(encode_around(answer, [read.length for read in reads]), reads)


def fetched_partition(read: PartitionRead) -> wire.FetchedPartition:
    return wire.FetchedPartition(
        read.name.topic,
        read.name.partition,
        None if read.error is None else Failure.of(read.error),
        read.high_watermark,
        read.last_stable_offset,
        read.start_offset,
        list(read.aborted),
    )


def interleave(heads: Sequence[bytes], reads: Sequence[PartitionRead]) -> Pieces:
    """Insert each slice after its piece."""
    pieces: Pieces = []
    for at, head in enumerate(heads):
        pieces.append(head)
        if at < len(reads) and (body := reads[at].slice) is not None:
            pieces.append(body)
    return pieces


# --- offsets --------------------------------------------------------------------------------------------------------


async def list_offsets(connection: NativeConnection, request: wire.ListOffsets) -> wire.ListOffsetsAnswer:
    """List offsets by position or by timestamp."""
    found = []
    for query in request.partitions:
        name = TopicPartition(query.topic, query.partition)
        try:
            timed = await connection.service.records.find_offset(connection.caller, name, query.at, request.isolation)
            found.append(wire.OffsetFound(*name, *(timed or ())))
        except FlyMQError as error:
            connection.service.accounts.failed(connection.caller, error)
            found.append(wire.OffsetFound(*name, error=Failure.of(error)))
    return wire.ListOffsetsAnswer(partitions=found)


async def delete_records(connection: NativeConnection, request: wire.DeleteRecords) -> wire.DeleteRecordsAnswer:
    """Delete the oldest records."""
    deleted = []
    for part in request.partitions:
        name = TopicPartition(part.topic, part.partition)
        try:
            start_offset = await connection.service.records.delete(connection.caller, name, part.before_offset)
            deleted.append(wire.RecordsDeleted(*name, start_offset))
        except FlyMQError as error:
            connection.service.accounts.failed(connection.caller, error)
            deleted.append(wire.RecordsDeleted(*name, error=Failure.of(error)))
    return wire.DeleteRecordsAnswer(partitions=deleted)
