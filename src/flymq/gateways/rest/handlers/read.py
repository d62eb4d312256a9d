"""Read records from an offset or timestamp on, or stream them live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response, StreamingResponse

from flymq.broker.service.members import PartTaken, Reader, Taken
from flymq.broker.service.records import EARLIEST, LATEST
from flymq.gateways.rest.handlers.record_values import show_record
from flymq.gateways.rest.http.bodies import JSON, NDJSON
from flymq.gateways.rest.http.problems import to_problem
from flymq.gateways.rest.schema import shapes
from flymq.gateways.rest.schema.operations import Call
from flymq.gateways.rest.schema.shapes import IsolationName, Position, RecordShape
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError, InvalidRequest, NotAcceptable
from flymq.model.names import TopicPartition

EVENT_STREAM = "text/event-stream"
ISOLATIONS = {
    IsolationName.COMMITTED: Isolation.READ_COMMITTED,
    IsolationName.UNCOMMITTED: Isolation.READ_UNCOMMITTED,
}
POSITIONS = {Position.EARLIEST: EARLIEST, Position.LATEST: LATEST}
_TAIL_RECORDS = 1 << 30
_TAIL_BYTES = 256 << 10  # per read: decoding them blocks the event loop for a few ms
_KEEP_ALIVE_MS = 15_000


# --- read -----------------------------------------------------------------------------------------------------------


async def read_records(call: Call) -> Response:
    """Read records of a partition."""
    query: shapes.ReadQuery = call.query
    gives_lines = _wants_lines(call)
    name = TopicPartition(call.path["topic"], call.path["partition"])
    reader = call.service.members.reader(call.caller, ISOLATIONS[query.isolation])
    if call.service.forwarding.is_elsewhere(name):
        taken, end_offset = await _read_elsewhere(call, name, query, reader)
    else:
        reader.positions[name] = await _begin(call, name, query)
        taken = await reader.take(limit=query.limit, bytes_max=query.bytes_max, wait_ms=query.wait_ms)
        end_offset = call.service.topics.partition(call.caller, name).high_watermark
    records = [record for part in taken.parts for record in show_part(part, query)]
    next_offset = reader.positions[name]
    await wait_out(taken)
    if gives_lines:
        lines = b"".join([msgspec.json.encode(record) + b"\n" for record in records])
        return Response(lines, headers={"Next-Offset": str(next_offset)}, media_type=NDJSON)
    return Response(msgspec.json.encode(shapes.Records(records, next_offset, end_offset)), media_type=JSON)


def _wants_lines(call: Call) -> bool:
    accept = call.header(b"accept", "*/*")
    if NDJSON in accept:
        return True
    if not any(kind in accept for kind in (JSON, "application/*", "*/*")):
        raise NotAcceptable(f"records are available as {JSON} or {NDJSON}, not as {accept!r}")
    return False


async def _read_elsewhere(
    call: Call, name: TopicPartition, query: shapes.ReadQuery, reader: Reader
) -> tuple[Taken, int]:
    """Read a partition that another broker leads; return its end offset, too."""
    forwarding, isolation = call.service.forwarding, ISOLATIONS[query.isolation]
    offset = _given_offset(query)
    if offset is None:
        at = _given_position(query)
        offset = await forwarding.find_offset(call.caller, name, at, isolation)
        if offset is None:
            offset = await forwarding.find_offset(call.caller, name, LATEST, isolation) or 0
    reader.positions[name] = offset
    wait_ms = min(query.wait_ms, call.service.records.wait_ms_max)
    fetched = await forwarding.read(call.caller, name, offset, isolation, bytes_max=query.bytes_max, wait_ms=wait_ms)
    return reader.take_from(fetched, query.limit), fetched.reads[0].high_watermark


def _given_offset(query: shapes.ReadQuery) -> int | None:
    given = [value for value in (query.offset, query.timestamp, query.position) if value is not None]
    if len(given) > 1:
        raise InvalidRequest("offset, timestamp and position are mutually exclusive", hint="Set only one of them.")
    return query.offset


def _given_position(query: shapes.ReadQuery) -> int:
    return POSITIONS[query.position or Position.EARLIEST] if query.timestamp is None else query.timestamp


async def _begin(call: Call, name: TopicPartition, query: shapes.ReadQuery) -> int:
    if (offset := _given_offset(query)) is not None:
        return offset
    at = _given_position(query)
    records, isolation = call.service.records, ISOLATIONS[query.isolation]
    found = await records.find_offset(call.caller, name, at, isolation)
    return (found or records.find_position(call.caller, name, LATEST, isolation)).offset


async def wait_out(taken: Taken) -> None:
    """Throttle a client that is over its quota."""
    if taken.throttle_ms:
        await asyncio.sleep(taken.throttle_ms / 1000)


def show_part(part: PartTaken, reading: shapes.Reading) -> list[RecordShape]:
    number = part.name.partition
    return [show_record(record, number, reading.encoding, reading.key_encoding) for record in part.records]


async def delete_records(call: Call) -> shapes.RecordsDeleted:
    """Delete the oldest records of a partition."""
    query: shapes.DeleteRecordsQuery = call.query
    before = -1 if query.before_offset is None else query.before_offset
    name = TopicPartition(call.path["topic"], call.path["partition"])
    service = call.service
    owner = service.forwarding if service.forwarding.is_elsewhere(name) else service.records
    return shapes.RecordsDeleted(await owner.delete(call.caller, name, before))


# --- live -----------------------------------------------------------------------------------------------------------


async def tail_records(call: Call) -> Response:
    """Stream records as server-sent events.

    The id of an event contains the position in every partition, so a browser that reconnects continues where it was.
    """
    query: shapes.TailQuery = call.query
    topic = call.service.topics.get(call.caller, call.path["topic"])
    if query.partition is not None:
        topic.state(query.partition)
    numbers = range(len(topic.partitions)) if query.partition is None else [query.partition]
    reader = call.service.members.reader(call.caller, ISOLATIONS[query.isolation])
    for number in numbers:
        reader.start_at(TopicPartition(topic.name, number), POSITIONS[query.position])
    for number, offset in _parse_event_id(call.header(b"last-event-id")).items():
        reader.moved(TopicPartition(topic.name, number), offset)
    return StreamingResponse(_events(call, reader), media_type=EVENT_STREAM)


async def _events(call: Call, reader: Reader) -> AsyncIterator[bytes]:
    yield b": hello\n\n"
    while call.service.records.may_wait:
        try:
            taken = await reader.take(limit=_TAIL_RECORDS, bytes_max=_TAIL_BYTES, wait_ms=_KEEP_ALIVE_MS)
        except FlyMQError as error:
            call.service.accounts.failed(call.caller, error)
            yield _event("error", msgspec.json.encode(to_problem(error)))
            return
        if not taken.parts:
            yield b": nothing new\n\n"
        positions = dict(reader.positions)
        for part in taken.parts:
            yield _show(part, call.query, positions)
        await wait_out(taken)
        await asyncio.sleep(0)


def _show(part: PartTaken, reading: shapes.Reading, positions: dict[TopicPartition, int]) -> bytes:
    """Return an event per record; its id contains the positions after it."""
    events = []
    for record in show_part(part, reading):
        positions[part.name] = record.offset + 1
        events.append(_event("record", msgspec.json.encode(record), _event_id(positions)))
    positions[part.name] = part.next_offset
    return b"".join(events)


def _event_id(positions: dict[TopicPartition, int]) -> str:
    return ",".join(f"{name.partition}:{offset}" for name, offset in sorted(positions.items()))


def _event(name: str, data: bytes, event_id: str = "") -> bytes:
    head = f"id: {event_id}\nevent: {name}\n" if event_id else f"event: {name}\n"
    return head.encode() + b"data: " + data + b"\n\n"


def _parse_event_id(text: str) -> dict[int, int]:
    if not text:
        return {}
    try:
        return {int(number): int(offset) for number, offset in (pair.split(":") for pair in text.split(","))}
    except ValueError:
        raise InvalidRequest("Last-Event-ID is invalid", hint="Send the id of the last event unchanged.") from None
