"""A topic over Kafka's protocol: the same bytes for Apache Kafka and for FlyMQ."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from benchmarks import kafka_requests as kafka
from benchmarks.deliveries import Courier, Pair
from benchmarks.load import Requests, Stream, connect
from benchmarks.native import Shape, shape
from benchmarks.peers.contender import MESSAGE_BYTES, UNDER_WAY

_BATCH_BYTES = 16 << 10
_FETCH_BYTES = 1 << 20


class KafkaTopic:
    def __init__(self, port: int, name: str, drop: Callable[[], None]) -> None:
        self._port = port
        self._name = name
        self._batches = shape(MESSAGE_BYTES, _BATCH_BYTES)
        self.close = drop

    def producers(self, messages: int) -> Sequence[Stream]:
        request = kafka.produce(self._name, 0, self._batches.batch)
        count, inflight = messages // self._batches.records, UNDER_WAY // self._batches.records
        return [Requests(connect(self._port), request, count, inflight=inflight, frames=kafka.frames())]

    def consumers(self, messages: int) -> Sequence[Stream]:
        whole = messages // self._batches.records * self._batches.records
        return [KafkaReader(connect(self._port), self._name, self._batches, whole)]

    def courier(self) -> Courier:
        consumer, batch = connect(self._port), shape(MESSAGE_BYTES, 1).batch
        waiting = WaitingFetch(consumer, self._name, batch)
        return Pair(connect(self._port), consumer, kafka.produce(self._name, 0, batch), waiting.feed)


def is_led(port: int, topic: str) -> bool:
    """Ask whether a broker serves a new topic yet; until then it refuses what is sent to it."""
    with connect(port) as connection:
        connection.sendall(kafka.fetch(topic, 0, 0, 1))
        length = kafka.LENGTH.unpack(connection.recv(kafka.LENGTH.size, socket.MSG_WAITALL))[0]
        return kafka.fetch_error(topic, connection.recv(length, socket.MSG_WAITALL)) == 0


class KafkaReader(Stream):
    """Fetches one partition from the start, 1 MB at a time, until it has had so many records."""

    def __init__(self, connection: socket.socket, topic: str, batches: Shape, records: int) -> None:
        super().__init__(connection)
        self._topic = topic
        self._batches = batches
        self._offset = 0
        self._end_offset = records
        self._frames = kafka.frames()

    @property
    def done(self) -> bool:
        return self._offset >= self._end_offset

    def begin(self) -> None:
        self.send(kafka.fetch(self._topic, 0, self._offset, _FETCH_BYTES, wait_ms=500))

    def feed(self, data: memoryview) -> None:
        for size in self._frames.feed(data):
            whole = kafka.fetched_bytes(self._topic, size) // self._batches.payload_bytes
            if not whole:
                raise RuntimeError(f"the log ends at {self._offset}, {self._end_offset} records were sent")
            self._offset += whole * self._batches.records
            if not self.done:
                self.begin()


class WaitingFetch:
    """Has a fetch under way that waits for the next records, which come in batches of one."""

    def __init__(self, connection: socket.socket, topic: str, batch: bytes) -> None:
        self._connection = connection
        self._topic = topic
        self._batch = batch
        self._frames = kafka.frames()
        self._offset = 0
        self._wait()

    def feed(self, data: memoryview) -> int:
        arrived = 0
        for size in self._frames.feed(data):
            records = kafka.fetched_bytes(self._topic, size) // len(self._batch)
            arrived += records
            self._offset += records
            self._wait()
        return arrived

    def _wait(self) -> None:
        self._connection.sendall(kafka.fetch(self._topic, 0, self._offset, _FETCH_BYTES, wait_ms=10_000))
