"""Produce records: a JSON list, or NDJSON. Each record succeeds or fails on its own.

The partition of a record is chosen by the hash of its key, as in every client; records of one request without a key go
to one partition, those of the next request to the next one. They are encoded into a few batches, so most of the cost of
a record is its JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec
from starlette.responses import Response

from flymq.broker.service.records import PartProduced, Produced
from flymq.broker.service.topics import Topic
from flymq.gateways.rest.handlers.idempotency import Repeatable
from flymq.gateways.rest.handlers.record_values import to_bytes, to_headers
from flymq.gateways.rest.http.app import decode_body
from flymq.gateways.rest.http.bodies import (
    JSON,
    NDJSON,
    body_blocks,
    check_objects,
    line_blocks,
    media_type,
    read_body,
    wrong_media_type,
)
from flymq.gateways.rest.http.problems import to_problem
from flymq.gateways.rest.schema import shapes
from flymq.gateways.rest.schema.operations import Call
from flymq.gateways.rest.schema.shapes import AcksName, NewRecord, RecordResult
from flymq.model.delivery import Acks, TimestampType
from flymq.model.errors import EmptyBatch, FlyMQError, InvalidRequest, InvalidTimestamp, KeyRequired, RequestTooLarge
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.record.header import HEADER_SIZE, Buffer
from flymq.record.record import RecordLike

_ACKS = {AcksName.NONE: Acks.NONE, AcksName.LEADER: Acks.LEADER, AcksName.ALL: Acks.ALL}
IDEMPOTENCY_KEY_LENGTH_MAX = 255
_REPLAYED = "Idempotency-Replayed"
RECORDS_AT_ONCE = 500
_RECORD_OVERHEAD = 36
"""The maximum size of a record's lengths, timestamp and offset in a batch."""

_decode_list = msgspec.json.Decoder(shapes.NewRecords).decode
_line = msgspec.json.Decoder(NewRecord)


async def produce(call: Call) -> Response:
    """Produce records."""
    name = call.path["topic"]
    call.service.records.check_writable(call.caller, name)
    topic = await call.service.topics.get_or_create(call.caller, name)
    if b"idempotency-key" not in call.headers:
        return await _produce(call, topic)
    key = call.header(b"idempotency-key")
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX or not (key.isascii() and key.isprintable() and " " not in key):
        raise InvalidRequest(f"an Idempotency-Key must have 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} visible ASCII characters")
    body = await read_body(call)
    repeatable = Repeatable((call.caller.principal, name, key), body)

    async def work() -> Response:
        return await _produce_read(call, _Writing(call, topic, repeatable), body)

    response, is_repeated = await call.rest.answers.once(repeatable, call.rest.shared.clock.monotonic_s(), work)
    return Response(response.body, response.status_code, {_REPLAYED: "true"}, JSON) if is_repeated else response


async def _produce(call: Call, topic: Topic) -> Response:
    writing = _Writing(call, topic)
    if media_type(call) != NDJSON:
        return await _produce_read(call, writing, await read_body(call))
    async with aclosing(body_blocks(call)) as blocks:
        async for block in blocks:
            writing.write_lines(block)
            await asyncio.sleep(0)  # other requests are served between two blocks
    return await writing.answer()


async def _produce_read(call: Call, writing: _Writing, body: bytes) -> Response:
    """Like `_produce`, with a complete body."""
    kind = media_type(call)
    if kind == NDJSON:
        for block in line_blocks(body):
            writing.write_lines(block)
            await asyncio.sleep(0)
    elif kind == JSON:
        given: shapes.NewRecords = decode_body(_decode_list, body)
        writing.encoding = given.encoding or writing.encoding
        writing.key_encoding = given.key_encoding or writing.key_encoding
        for first in range(0, len(given.records), RECORDS_AT_ONCE):
            writing.write(given.records[first : first + RECORDS_AT_ONCE])
            await asyncio.sleep(0)  # other requests are served between two blocks
    else:
        raise wrong_media_type(call, JSON, NDJSON)
    return await writing.answer()


@dataclass(slots=True)
class _Part:
    """The records of a block for one partition."""

    places: list[int] = field(default_factory=list)
    records: list[RecordLike] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


class _Writing:
    """The state of one produce request."""

    def __init__(self, call: Call, topic: Topic, repeatable: Repeatable | None = None) -> None:
        query: shapes.ProduceQuery = call.query
        self._call = call
        self._topic = topic
        self._repeatable = repeatable
        self._acks = _ACKS[query.acks]
        self.encoding = query.encoding
        self.key_encoding = query.key_encoding
        self._records = call.service.records
        self._any_partition = self._records.choose_partition(
            topic, None if repeatable is None else repeatable.partition_key
        )
        self._results: list[RecordResult] = []
        self._undecided: list[tuple[Produced, int, Sequence[int]]] = []
        self._failed = 0
        self._throttle_ms = 0
        self._is_news = False
        """Whether anything was written that is not a duplicate."""

    def write(self, records: Sequence[NewRecord]) -> None:
        """Append records."""
        first = len(self._results)
        self._results += [_UNDECIDED] * len(records)
        for number, part in self._divide(records, first).items():
            for places, some in _split(part, self._topic.config.max_message_bytes):
                self._append(number, places, some)

    def write_lines(self, block: bytes) -> None:
        """Append a record per line. An invalid line fails alone, since others may be written already."""
        try:
            check_objects(block)
            self.write(_line.decode_lines(block))
        except RequestTooLarge as error:  # one line: a block of several is small
            self._results.append(_UNDECIDED)
            self._refuse([len(self._results) - 1], error)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            for line in block.splitlines():
                if line.strip():
                    self._write_line(line)

    def _write_line(self, line: bytes) -> None:
        try:
            record = decode_body(_line.decode, line)
        except InvalidRequest as error:
            self._results.append(_UNDECIDED)
            self._refuse([len(self._results) - 1], error)
        else:
            self.write([record])

    async def answer(self) -> Response:
        """Respond when the records are acknowledged, and the client is within its quota."""
        if not self._results:
            raise EmptyBatch("the body contains no records", hint="Send at least one record.")
        for produced, number, places in self._undecided:
            assert produced.decided is not None, "only unacknowledged parts are kept"
            await produced.decided
            self._take(number, places, produced.parts[0])
        if self._throttle_ms:
            await asyncio.sleep(self._throttle_ms / 1000)
        results = shapes.ProduceResults(len(self._results) - self._failed, self._failed, self._results)
        headers = {} if self._is_news or self._failed else {_REPLAYED: "true"}
        return Response(msgspec.json.encode(results), 207 if self._failed else 200, headers, JSON)

    def _divide(self, records: Iterable[NewRecord], first: int) -> dict[int, _Part]:
        """Encode the records and choose their partitions."""
        parts: dict[int, _Part] = {}
        topic, now_ms = self._topic, self._call.rest.shared.clock.now_ms()
        needs_key = topic.config.cleanup_policy.compacts  # the log would refuse the others of the batch with it
        keeps_time = topic.config.timestamp_type is TimestampType.CREATE
        earliest_ms, latest_ms = topic.config.accepted_times(now_ms)
        for place, record in enumerate(records, first):
            try:
                value = to_bytes(record.value, record.encoding or self.encoding, "value")
                key = to_bytes(record.key, record.key_encoding or self.key_encoding, "key")
                headers = to_headers(record.headers) if record.headers else []
                if needs_key and key is None:
                    raise KeyRequired
                if keeps_time and record.timestamp is not None and not earliest_ms <= record.timestamp <= latest_ms:
                    raise InvalidTimestamp
            except (InvalidRequest, KeyRequired, InvalidTimestamp) as error:
                self._refuse([place], error)
                continue
            if record.partition is not None:
                number = record.partition
            else:
                number = self._any_partition if key is None else self._records.choose_partition(topic, key)
            part = parts.get(number)
            if part is None:
                part = parts[number] = _Part()
            part.places.append(place)
            part.records.append((key, value, headers, now_ms if record.timestamp is None else record.timestamp))
            part.sizes.append(_size(key, value, headers))
        return parts

    def _append(self, number: int, places: Sequence[int], records: Sequence[RecordLike]) -> None:
        try:
            batch = self._encode(number, records)
        except FlyMQError as error:
            self._refuse(places, error)
            return
        name, forwarding = TopicPartition(self._topic.name, number), self._call.service.forwarding
        if forwarding.is_elsewhere(name):
            produced = forwarding.produce(self._call.caller, name, batch, self._acks)
        else:
            produced = self._records.produce(self._call.caller, [(*name, batch)], self._acks)
        self._throttle_ms = max(self._throttle_ms, produced.throttle_ms)
        if produced.decided is None:
            self._take(number, places, produced.parts[0])
        else:
            self._undecided.append((produced, number, places))

    def _take(self, number: int, places: Sequence[int], outcome: PartProduced) -> None:
        """Note the positions or the error of records whose fate is decided."""
        if isinstance(outcome, FlyMQError):
            self._fail(places, outcome)
            return
        self._is_news |= not outcome.repeated
        results = self._results
        for offset, place in enumerate(places, outcome.base_offset):
            results[place] = RecordResult(number, offset)

    def _encode(self, number: int, records: Sequence[RecordLike]) -> Buffer:
        if self._repeatable is None:
            return encode_batch(records)
        producer_id = self._repeatable.next_producer_id(number)
        return encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0)

    def _refuse(self, places: Iterable[int], error: FlyMQError) -> None:
        """Fail records that were not passed to the service, which counts the errors of the others."""
        self._call.service.accounts.failed(self._call.caller, error)
        self._fail(places, error)

    def _fail(self, places: Iterable[int], error: FlyMQError) -> None:
        problem = to_problem(error)
        for place in places:
            self._results[place] = RecordResult(error=problem)
            self._failed += 1


_UNDECIDED = RecordResult()


def _split(part: _Part, bytes_max: int) -> Iterable[tuple[Sequence[int], Sequence[RecordLike]]]:
    """Yield blocks of records that fit into a batch; a record that is too large is refused by the log."""
    begin, size = 0, HEADER_SIZE
    for at, more in enumerate(part.sizes):
        if size + more > bytes_max and at > begin:
            yield part.places[begin:at], part.records[begin:at]
            begin, size = at, HEADER_SIZE
        size += more
    yield part.places[begin:], part.records[begin:]


def _size(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return the maximum size of a record in a batch."""
    size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + 4 * len(name) + len(content or b"")
    return size
