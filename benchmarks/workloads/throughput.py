"""Produce, consume, and both at once, for messages of 10 B to 1 MB, beside servers that only move the bytes."""

from __future__ import annotations

import sys
import tempfile

from benchmarks.bare_servers import FETCHED_BYTES
from benchmarks.load import connect
from benchmarks.measurement import Effort, Load, effort, load_row, measure
from benchmarks.native import Bench, Reader, Shape, produce_bytes, shape, writer
from benchmarks.processes import Measured, broker, server
from benchmarks.row import Row

MESSAGE_BYTES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
_NAMES = {10: "10 B", 100: "100 B", 1_000: "1 KB", 10_000: "10 KB", 100_000: "100 KB", 1_000_000: "1 MB"}


def run(quick: bool = False) -> list[Row]:
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="flymq-bench-") as scratch,
        server([sys.executable, "-m", "benchmarks.bare_servers", "produce", scratch]) as writing,
        server([sys.executable, "-m", "benchmarks.bare_servers", "fetch", scratch]) as sending,
        broker() as ours,
    ):
        bench = Bench(ours.port)
        for message_bytes in (100, 10_000) if quick else MESSAGE_BYTES:
            rows += _one_size(bench, ours, (writing, sending), message_bytes, effort(quick))
        bench.close()
    return rows


def _one_size(
    bench: Bench, ours: Measured, bare: tuple[Measured, Measured], message_bytes: int, planned: Effort
) -> list[Row]:
    """Rounds of the broker and of the bare servers take turns."""
    batches = shape(message_bytes)
    count = planned.batches(batches.payload_bytes)
    produced, written, consumed, sent, both = ([] for _ in range(5))
    for _ in range(planned.rounds):
        topic = bench.topic()
        produced.append(_produce(bench, ours, topic, batches, count))
        written.append(_write(bare[0], topic, batches, count))
        consumed.append(_consume(bench, ours, topic, batches, count))
        sent.append(_send(bare[1], batches, count))
        bench.drop(topic)
        both.append(_both(bench, ours, batches, count))
    name = _NAMES[message_bytes]
    return [
        load_row(f"produce {name}", produced, peer="bare write", beside=written),
        load_row(f"consume {name}", consumed, peer="bare sendfile", beside=sent),
        load_row(f"produce and consume {name} at once", both),
    ]


def _produce(bench: Bench, ours: Measured, topic: str, batches: Shape, count: int) -> Load:
    messages = count * batches.records
    load = measure(ours, [writer(bench.connect(), produce_bytes(topic, 0, batches.batch), count)], messages)
    bench.check_written(topic, messages)
    return load


def _write(bare: Measured, topic: str, batches: Shape, count: int) -> Load:
    request = produce_bytes(topic, 0, batches.batch)
    return measure(bare, [writer(connect(bare.port), request, count)], count * batches.records)


def _consume(bench: Bench, ours: Measured, topic: str, batches: Shape, count: int) -> Load:
    messages = count * batches.records
    return measure(ours, [Reader(bench.connect(), topic, 0, batches, messages)], messages)


def _send(bare: Measured, batches: Shape, count: int) -> Load:
    """As many bytes as the batches have, in answers of 1 MB, one request at a time as a reader has."""
    answers = max(1, count * batches.payload_bytes // FETCHED_BYTES)
    messages = answers * FETCHED_BYTES // batches.payload_bytes * batches.records
    request = produce_bytes("t", 0, bytes(64))
    return measure(bare, [writer(connect(bare.port), request, answers, inflight=1)], messages)


def _both(bench: Bench, ours: Measured, batches: Shape, count: int) -> Load:
    """A reader waits at the end of the log while a writer writes; each message is counted once."""
    topic, messages = bench.topic(), count * batches.records
    streams = [
        Reader(bench.connect(), topic, 0, batches, messages),
        writer(bench.connect(), produce_bytes(topic, 0, batches.batch), count),
    ]
    load = measure(ours, streams, messages)
    bench.drop(topic)
    return load
