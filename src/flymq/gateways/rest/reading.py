"""Read records: from an offset or a time on, or live as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec
from starlette.responses import Response, StreamingResponse

from flymq.broker.replicas.fetching import FetchFrom, FetchQuery, WaitingFetch
from flymq.broker.replicas.partition import Partition, PartitionRead
from flymq.broker.service.service import Broker
from flymq.gateways.rest import shapes
from flymq.gateways.rest.bodies import JSON, NDJSON
from flymq.gateways.rest.operations import Call
from flymq.gateways.rest.problems import to_problem
from flymq.gateways.rest.shapes import IsolationName, Position, RecordShape
from flymq.gateways.rest.values import show_record
from flymq.model.delivery import Isolation
from flymq.model.errors import InvalidRequest, NotAcceptable
from flymq.model.names import TopicPartition
from flymq.record.reading import end_offset, parse_records

EVENT_STREAM = "text/event-stream"
ISOLATIONS = {
    IsolationName.COMMITTED: Isolation.READ_COMMITTED,
    IsolationName.UNCOMMITTED: Isolation.READ_UNCOMMITTED,
}
_TAIL_BYTES = 256 << 10  # read at once: decoding them holds up the loop for a few ms
_KEEP_ALIVE_MS = 15_000


# --- once -----------------------------------------------------------------------------------------------------------


async def read_records(call: Call) -> Response:
    """Read records of a partition."""
    query: shapes.ReadQuery = call.query
    gives_lines = _wants_lines(call)
    partition = call.broker.topics.partition(TopicPartition(call.path["topic"], call.path["partition"]))
    offset = _begin(partition, query)
    wanted = FetchQuery(
        [FetchFrom(partition.name, offset, query.bytes_max)],
        bytes_max=query.bytes_max,
        wait_ms_max=min(query.wait_ms, call.broker.fetch_limits.wait_ms_max),
        isolation=ISOLATIONS[query.isolation],
    )
    (read,) = await fetch(call.broker, wanted)
    records, next_offset = show_read(read, offset, query, query.limit)
    await pay(call, read.name.topic, len(records), read.length)
    if gives_lines:
        lines = b"".join([msgspec.json.encode(record) + b"\n" for record in records])
        return Response(lines, headers={"Next-Offset": str(next_offset)}, media_type=NDJSON)
    answer = shapes.Records(records, next_offset, read.high_watermark)
    return Response(msgspec.json.encode(answer), media_type=JSON)


def _wants_lines(call: Call) -> bool:
    accept = call.header(b"accept", "*/*")
    if NDJSON in accept:
        return True
    if not any(kind in accept for kind in (JSON, "application/*", "*/*")):
        raise NotAcceptable(f"records come as {JSON} or {NDJSON}, not as {accept!r}")
    return False


def _begin(partition: Partition, query: shapes.ReadQuery) -> int:
    given = [value for value in (query.offset, query.timestamp, query.position) if value is not None]
    if len(given) > 1:
        raise InvalidRequest("give one of offset, timestamp and position", hint="Leave the others out.")
    if query.offset is not None:
        return query.offset
    if query.timestamp is not None:
        found = partition.find_time(query.timestamp, ISOLATIONS[query.isolation])
        return partition.end_for(ISOLATIONS[query.isolation]) if found is None else found.offset
    return at_position(partition, query.position or Position.EARLIEST)


def at_position(partition: Partition, position: Position) -> int:
    return partition.log.start_offset if position is Position.EARLIEST else partition.last_stable_offset


async def fetch(broker: Broker, query: FetchQuery) -> list[PartitionRead]:
    reads = broker.topics.fetch(query)
    return await reads if isinstance(reads, WaitingFetch) else reads


def show_read(read: PartitionRead, offset: int, reading: shapes.Reading, limit: int) -> tuple[list[RecordShape], int]:
    """Return the records of a read from `offset` on, at most `limit`, and where to go on."""
    if read.error is not None:
        raise read.error
    if read.slice is None:
        return [], offset
    run = read.slice.read()
    found = parse_records(run, start_offset=offset, aborted=read.aborted)
    if len(found) > limit:
        next_offset = found[limit].offset
    else:
        next_offset = end_offset(run) or offset
    number = read.name.partition
    shown = [show_record(record, number, reading.encoding, reading.key_encoding) for record in found[:limit]]
    return shown, next_offset


async def pay(call: Call, topic: str, records: int, size: int) -> None:
    """Count what is sent, and let a client that reads too much wait."""
    if not size:
        return
    call.broker.traffic.read("http", topic, records, size)
    quota = call.rest.shared.fetch_quota
    wait_ms = quota.throttle_ms(call.quota_name, call.broker.clock.monotonic_s(), size)
    if wait_ms:
        await asyncio.sleep(wait_ms / 1000)


async def delete_records(call: Call) -> shapes.RecordsDeleted:
    """Delete the oldest records of a partition."""
    query: shapes.DeleteRecordsQuery = call.query
    partition = call.broker.topics.partition(TopicPartition(call.path["topic"], call.path["partition"]))
    before = -1 if query.before_offset is None else query.before_offset
    return shapes.RecordsDeleted(partition.delete_before(before))


# --- live -----------------------------------------------------------------------------------------------------------


async def tail_records(call: Call) -> Response:
    """Send records as they come, as server-sent events.

    An event's id holds the position in every partition: a browser that lost the connection goes on where it was.
    """
    topic = call.broker.topics.get(call.path["topic"])
    query: shapes.TailQuery = call.query
    if query.partition is None:
        partitions = list(topic.partitions)
    else:
        partitions = [call.broker.topics.partition(TopicPartition(topic.name, query.partition))]
    offsets = {partition.name.partition: at_position(partition, query.position) for partition in partitions}
    seen = _parse_event_id(call.header(b"last-event-id"))
    offsets.update((number, offset) for number, offset in seen.items() if number in offsets)
    return StreamingResponse(_events(_Tail(call, topic.name, offsets, query)), media_type=EVENT_STREAM)


@dataclass(slots=True)
class _Tail:
    call: Call
    topic: str
    offsets: dict[int, int]
    """Partition → next offset to send."""
    reading: shapes.Reading

    @property
    def event_id(self) -> str:
        return ",".join(f"{number}:{offset}" for number, offset in self.offsets.items())


async def _events(tail: _Tail) -> AsyncIterator[bytes]:
    yield b": hello\n\n"
    while tail.call.rest.observed.is_ready:
        reads = await fetch(tail.call.broker, _next_query(tail))
        if all(read.slice is None and read.error is None for read in reads):
            yield b": nothing new\n\n"
        for read in reads:
            if read.error is not None:
                yield _event("error", msgspec.json.encode(to_problem(read.error)))
                return
            if read.slice is not None:
                yield _show(tail, read)
                await pay(tail.call, tail.topic, read.offsets, read.length)
        await asyncio.sleep(0)


def _next_query(tail: _Tail) -> FetchQuery:
    return FetchQuery(
        [FetchFrom(TopicPartition(tail.topic, number), at, _TAIL_BYTES) for number, at in tail.offsets.items()],
        bytes_max=_TAIL_BYTES,
        wait_ms_max=_KEEP_ALIVE_MS,
        isolation=ISOLATIONS[tail.reading.isolation],
    )


def _show(tail: _Tail, read: PartitionRead) -> bytes:
    """Return an event for each record of a read; the position moves with them."""
    number = read.name.partition
    records, next_offset = show_read(read, tail.offsets[number], tail.reading, limit=1 << 30)
    events = []
    for record in records:
        tail.offsets[number] = record.offset + 1
        events.append(_event("record", msgspec.json.encode(record), tail.event_id))
    tail.offsets[number] = next_offset
    return b"".join(events)


def _event(name: str, data: bytes, event_id: str = "") -> bytes:
    head = f"id: {event_id}\nevent: {name}\n" if event_id else f"event: {name}\n"
    return head.encode() + b"data: " + data + b"\n\n"


def _parse_event_id(text: str) -> dict[int, int]:
    if not text:
        return {}
    try:
        return {int(number): int(offset) for number, offset in (pair.split(":") for pair in text.split(","))}
    except ValueError:
        raise InvalidRequest(
            "Last-Event-ID is not one of ours", hint="Send the id of the last event as it was."
        ) from None
