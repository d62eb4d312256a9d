"""Wide topics and many clients: partitions, producers, consumers, and groups that all read the same."""

from __future__ import annotations

from benchmarks.load import Stream, drive
from benchmarks.measurement import Effort, Load, effort, load_row, measure
from benchmarks.native import Bench, Reader, Shape, frames, produce_bytes, shape, writer
from benchmarks.processes import Measured, broker
from benchmarks.row import Row

PARTITIONS = (1, 16, 256, 1024)
CLIENTS = (1, 16, 64)
GROUPS = (1, 4, 16)
_CONNECTIONS = 4
_BATCH_BYTES = 16 << 10


def run(quick: bool = False) -> list[Row]:
    planned, batches = effort(quick), shape(100, _BATCH_BYTES)
    widths, clients, groups = (PARTITIONS[:2], CLIENTS[:2], GROUPS[:2]) if quick else (PARTITIONS, CLIENTS, GROUPS)
    with broker(None, f"limits.topic_partitions_max={max(PARTITIONS)}") as ours:
        bench = Bench(ours.port)
        rows = [
            *(_partitions(bench, ours, batches, count, planned) for count in widths),
            *(_producers(bench, ours, batches, count, planned) for count in clients),
            *(_consumers(bench, ours, batches, count, planned) for count in clients),
            *(_fan_out(bench, ours, batches, count, planned) for count in groups),
        ]
        bench.close()
    return rows


class RoundRobin(Stream):
    """Writes a batch to one partition after another, over one connection."""

    def __init__(self, bench: Bench, requests: list[bytes], count: int, *, inflight: int = 8) -> None:
        super().__init__(bench.connect())
        self._requests = requests
        self._count = count
        self._sent = 0
        self._answered = 0
        self._inflight = inflight
        self._frames = frames()

    @property
    def done(self) -> bool:
        return self._answered == self._count

    def begin(self) -> None:
        while self._sent < self._count and self._sent - self._answered < self._inflight:
            self.send(self._requests[self._sent % len(self._requests)])
            self._sent += 1

    def feed(self, data: memoryview) -> None:
        self._answered += sum(1 for _ in self._frames.feed(data))
        self.begin()


def _partitions(bench: Bench, ours: Measured, batches: Shape, partitions: int, planned: Effort) -> Row:
    """The same batches, spread over more and more partitions, whose files are there already."""
    topic, count = bench.topic(partitions), max(partitions, planned.batches(batches.payload_bytes))
    requests = [produce_bytes(topic, number, batches.batch) for number in range(partitions)]
    drive([RoundRobin(bench, requests, partitions)])

    def streams() -> list[RoundRobin]:
        return [RoundRobin(bench, requests[at::_CONNECTIONS] or requests, count // _CONNECTIONS) for at in range(4)]

    messages = count // _CONNECTIONS * _CONNECTIONS * batches.records
    loads = [measure(ours, streams(), messages) for _ in range(planned.rounds)]
    bench.check_written(topic, partitions * batches.records + messages * planned.rounds)
    bench.drop(topic)
    return load_row(f"produce to {partitions:,} partitions, 100 B in 16 KB", loads)


def _producers(bench: Bench, ours: Measured, batches: Shape, clients: int, planned: Effort) -> Row:
    """Many connections, each with two requests under way."""
    loads: list[Load] = []
    count = max(clients, planned.batches(batches.payload_bytes)) // clients
    messages = count * clients * batches.records
    for _ in range(planned.rounds):
        topic = bench.topic(min(clients, 16))
        streams = [
            writer(bench.connect(), produce_bytes(topic, at % 16, batches.batch), count, inflight=2)
            for at in range(clients)
        ]
        loads.append(measure(ours, streams, messages))
        bench.check_written(topic, messages)
        bench.drop(topic)
    return load_row(f"{clients} producers, 100 B in 16 KB", loads)


def _consumers(bench: Bench, ours: Measured, batches: Shape, clients: int, planned: Effort) -> Row:
    """As many partitions as consumers, each read once."""
    count = max(clients, planned.batches(batches.payload_bytes)) // clients
    topic = bench.topic(clients)
    for partition in range(clients):
        bench.fill(topic, batches, count, partition)
    loads = [
        measure(
            ours,
            [Reader(bench.connect(), topic, at, batches, count * batches.records) for at in range(clients)],
            count * clients * batches.records,
        )
        for _ in range(planned.rounds)
    ]
    bench.drop(topic)
    return load_row(f"{clients} consumers, a partition each, 100 B in 16 KB", loads)


def _fan_out(bench: Bench, ours: Measured, batches: Shape, groups: int, planned: Effort) -> Row:
    """One writer while `groups` readers follow it; every delivery counts."""
    loads: list[Load] = []
    count = max(8, planned.batches(batches.payload_bytes) // groups)
    for _ in range(planned.rounds):
        topic, messages = bench.topic(), count * batches.records
        readers: list[Stream] = [Reader(bench.connect(), topic, 0, batches, messages) for _ in range(groups)]
        streams = [*readers, writer(bench.connect(), produce_bytes(topic, 0, batches.batch), count)]
        loads.append(measure(ours, streams, messages * groups))
        bench.drop(topic)
    return load_row(f"fan-out to {groups} readers, deliveries of 100 B", loads)
