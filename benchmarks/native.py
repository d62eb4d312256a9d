"""The native protocol for the load generator: topics, prepared batches, producing and consuming streams.

All batches of a load are alike, so a reader knows from the size of a response how many records it has, without decoding
it. The result is checked once, at the end: `Bench.check_written` counts the records in the log.
"""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from benchmarks.load import FrameSizes, Requests, Stream, connect
from benchmarks.raw_client import RawClient
from flymq.model.delivery import Acks
from flymq.record.batch import encode_batch
from flymq.record.compression import Compression
from flymq.wire.native.codec import encode_request
from flymq.wire.native.framing import HEADER_SIZE
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.records import Fetch, FetchPartition, PartitionBatches, ProduceBatch
from flymq.wire.native.messages.session import ErrorAnswer, Ping
from flymq.wire.native.messages.topics import CreateTopic, DeleteTopic, DescribeTopic

_MB = 1 << 20
_LENGTH_AT = 3
PING = bytes(encode_request(Ping(id=1)))
_numbers = itertools.count()


class Shape(NamedTuple):
    """A batch of a load: how many records, and the bytes that are sent."""

    records: int
    batch: bytes

    @property
    def payload_bytes(self) -> int:
        return len(self.batch)


def shape(
    message_bytes: int, batch_bytes: int = 64 << 10, *, compression: Compression = Compression.NONE, text: bool = False
) -> Shape:
    """Return a batch of messages that would fill `batch_bytes`, or of one if it is larger; `text` compresses well."""
    records = max(1, batch_bytes // (message_bytes + 8))
    values = [_text(message_bytes, at) if text else os.urandom(message_bytes) for at in range(records)]
    batch = encode_batch(
        [(None, value) for value in values], timestamp_ms=int(time.time() * 1000), compression=compression
    )
    return Shape(records, bytes(batch))


def _text(size: int, seed: int) -> bytes:
    """Return JSON-like text that differs from record to record as log lines do."""
    line = (
        f'{{"user": {seed * 7919 % 100_003}, "event": "page_view", "at": {1_700_000_000 + seed}, "path": "/p/{seed}"}} '
    )
    return (line.encode() * (size // len(line) + 1))[:size]


def frames() -> FrameSizes:
    return FrameSizes(HEADER_SIZE, _LENGTH_AT)


def produce_bytes(topic: str, partition: int, batch: bytes, acks: Acks = Acks.LEADER) -> bytes:
    return bytes(encode_request(ProduceBatch(id=1, partitions=[PartitionBatches(topic, partition, batch)], acks=acks)))


def writer(connection: socket.socket, request: bytes, count: int, *, inflight: int = 8) -> Stream:
    return Requests(connection, request, count, inflight=inflight, frames=frames())


class WriterWithoutAnswers(Stream):
    """Sends requests without acks, then one with: its response means that all were processed."""

    def __init__(self, connection: socket.socket, request: bytes, count: int) -> None:
        super().__init__(connection)
        self._request = request
        self._count = count
        self._frames = frames()
        self._answered = False

    @property
    def done(self) -> bool:
        return self._answered

    def begin(self) -> None:
        for _ in range(self._count):
            self.send(self._request)
        self.send(PING)

    def feed(self, data: memoryview) -> None:
        self._answered = any(True for _ in self._frames.feed(data))


class Reader(Stream):
    """Reads partitions from the start until it has had so many records of the shape, waiting at the end of the log."""

    def __init__(
        self,
        connection: socket.socket,
        topic: str,
        partition: int,
        batches: Shape,
        records: int,
        *,
        bytes_max: int = _MB,
    ) -> None:
        super().__init__(connection)
        self._topic, self._partition, self._batches = topic, partition, batches
        self._offset = 0
        self._end_offset = records
        self._bytes_max = bytes_max
        self._frames = frames()

    @property
    def done(self) -> bool:
        return self._offset >= self._end_offset

    def begin(self) -> None:
        wanted = FetchPartition(self._topic, self._partition, self._offset, max_bytes=self._bytes_max)
        fetch = Fetch(id=1, partitions=[wanted], max_wait_ms=10_000, max_bytes=self._bytes_max)
        self.send(encode_request(fetch))

    def feed(self, data: memoryview) -> None:
        for size in self._frames.feed(data):
            whole = size // self._batches.payload_bytes
            if not whole:
                raise RuntimeError(f"the log ends at {self._offset}, {self._end_offset} records were sent")
            self._offset += whole * self._batches.records
            if not self.done:
                self.begin()


class Bench:
    """A client of one broker for the steps around a measurement."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.port = port
        self._client = RawClient(port, tls)

    def ask(self, request: Message) -> Message:
        answer: Message = self._client.ask(request)
        assert not isinstance(answer, ErrorAnswer), answer
        return answer

    def topic(self, partitions: int = 1, settings: Mapping[str, str | int] | None = None) -> str:
        """Create a topic and return its name."""
        name = f"bench-{next(_numbers)}"
        limits: dict[str, str | int | None] = {"retention.bytes": 2 << 30, "max.message.bytes": 8 * _MB}
        self.ask(CreateTopic(topic=name, partitions=partitions, settings={**limits, **(settings or {})}))
        return name

    def drop(self, topic: str) -> None:
        """Remove a topic, so that a long run does not fill the disk."""
        self.ask(DeleteTopic(topic=topic))

    def connect(self) -> socket.socket:
        return connect(self.port)

    def fill(self, topic: str, batches: Shape, count: int, partition: int = 0) -> int:
        """Write so many batches; return how many records that makes."""
        self._client.flood(produce_bytes(topic, partition, batches.batch), count, inflight=min(8, count))
        return count * batches.records

    def check_written(self, topic: str, records: int) -> None:
        """Check that all records were accepted. Those without acks may still be on their way to the disk."""
        deadline_s = time.monotonic() + 10
        while (found := self._end_offsets(topic)) != records:
            assert time.monotonic() < deadline_s, f"{found} records are in the log, {records} were sent"

    def _end_offsets(self, topic: str) -> int:
        answer: Any = self.ask(DescribeTopic(topic=topic))
        return sum(part.end_offset for part in answer.partitions)

    def close(self) -> None:
        self._client.close()


class NativeCourier:
    """A producer that sends batches of one record, and a consumer with a fetch that always waits."""

    def __init__(self, bench: Bench, topic: str, acks: Acks = Acks.LEADER) -> None:
        self._producer, self._consumer = RawClient(bench.port), RawClient(bench.port)
        self.sockets = (self._producer.socket, self._consumer.socket)
        self._batch = shape(100, 1).batch
        self._request = produce_bytes(topic, 0, self._batch, acks)
        self._topic = topic
        self._offset = 0
        self._fetch()
        self._consumer.ask(Ping())  # responds at once: the fetch before it is waiting by now

    def send(self) -> None:
        self._producer.socket.sendall(self._request)

    def receive(self, readable: socket.socket) -> int:
        if readable is self._producer.socket:
            readable.recv(1 << 16)
            return 0
        answer: Any = self._consumer.receive()
        arrived = sum(len(part.batches) for part in answer.partitions) // len(self._batch)
        self._offset += arrived
        self._fetch()
        return arrived

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()

    def _fetch(self) -> None:
        wanted = [FetchPartition(self._topic, 0, self._offset)]
        self._consumer.socket.sendall(encode_request(Fetch(id=1, partitions=wanted, max_wait_ms=10_000)))
