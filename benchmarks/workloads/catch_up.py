"""Catch-up reads: a consumer reads old data that is no longer in the page cache.

The segments are synced and evicted from the page cache (posix_fadvise, DONTNEED); that is verified with reads that do
not touch the disk (RWF_NOWAIT). What the disk itself gives stands beside: a plain loop of reads of the same files, as
cold. A virtual disk may have a cache of its own below the kernel: then both are faster than the disk.

The other clients of the broker should not notice: their end-to-end latency is measured while a cold reader reads, and
while a warm one does.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.deliveries import deliver, latency
from benchmarks.figures import figure
from benchmarks.load import connect, drive
from benchmarks.measurement import Load, measure
from benchmarks.native import Bench, NativeCourier, Reader, Shape, shape
from benchmarks.processes import Measured, broker
from benchmarks.row import Row, row

_MB = 1 << 20
_OTHERS, _OTHERS_PER_S = 300, 1_000


def run(quick: bool = False) -> list[Row]:
    volume, rounds = (8 * _MB, 1) if quick else (192 * _MB, 3)
    batches = shape(100)
    with tempfile.TemporaryDirectory(prefix="flymq-bench-") as scratch, broker(Path(scratch)) as ours:
        bench = Bench(ours.port)
        topic = bench.topic()
        records = bench.fill(topic, batches, volume // batches.payload_bytes)
        segments = sorted(Path(scratch).glob(f"**/{topic}*/**/*.log"))
        warm, cold, bare, left = [], [], [], []
        beside_cold, beside_warm = [], []
        for _ in range(rounds):
            warm.append(_read(bench, ours, topic, batches, records))
            beside_warm.append(_others(bench, topic, batches, records, []))
            left.append(_forget(segments))
            cold.append(_read(bench, ours, topic, batches, records))
            _forget(segments)
            bare.append(_bare_read(segments))
            beside_cold.append(_others(bench, topic, batches, records, segments))
        bench.close()
    size_mb = records / batches.records * batches.payload_bytes / _MB
    name = f"catch-up of {size_mb:.0f} MB, {max(left):.0%} left in the page cache"
    speeds = figure([size_mb / load.elapsed_s for load in cold])
    return [
        row(name, speeds, "MB/s", peer="bare read, as cold", peer_value=figure(bare)),
        row("catch-up, broker", figure([load.cpu_s / size_mb * 1000 for load in cold]), "CPU s/GB"),
        row("the same from the page cache", figure([size_mb / load.elapsed_s for load in warm]), "MB/s"),
        row(
            "end to end p99 of others meanwhile, 1,000/s",
            figure(beside_cold),
            "ms",
            peer="from the page cache",
            peer_value=figure(beside_warm),
        ),
    ]


def _read(bench: Bench, ours: Measured, topic: str, batches: Shape, records: int) -> Load:
    return measure(ours, [Reader(bench.connect(), topic, 0, batches, records)], records)


def _others(bench: Bench, topic: str, batches: Shape, records: int, cold: Sequence[Path]) -> float:
    """Return the p99 in ms of another topic's messages while a reader in a process of its own reads this one."""
    spawning = multiprocessing.get_context("spawn")
    ready, go = spawning.Event(), spawning.Event()
    reader = spawning.Process(target=_read_when_told, args=(bench.port, topic, batches, records, ready, go))
    reader.start()
    ready.wait()
    if cold:
        _forget(cold)
    other = bench.topic()
    courier = NativeCourier(bench, other)
    go.set()
    times = deliver(courier, _OTHERS, _OTHERS_PER_S)
    reader.join()
    courier.close()
    bench.drop(other)
    return latency(times).p99_ms


def _read_when_told(port: int, topic: str, batches: Shape, records: int, ready: Event, go: Event) -> None:
    stream = Reader(connect(port), topic, 0, batches, records)
    ready.set()
    go.wait()
    drive([stream])


def _forget(files: Sequence[Path]) -> float:
    """Push the files out of the page cache; return which share of them would not go."""
    assert files, "the log has no segments"
    probes = held = 0
    for path in files:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        for position in range(0, os.fstat(file).st_size, _MB):
            probes += 1
            held += _is_cached(file, position)
        os.close(file)
    return held / max(1, probes)


def _is_cached(file: int, position: int) -> bool:
    try:
        return os.preadv(file, [bytearray(1)], position, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False


def _bare_read(files: Sequence[Path]) -> float:
    """Return MB a second of reading the files one after another."""
    buffer, total, started = bytearray(_MB), 0, time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total / (time.perf_counter() - started) / _MB
