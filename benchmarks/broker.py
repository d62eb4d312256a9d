"""The broker alone: CPU time per request, latency, memory."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from benchmarks.processes import Measured, broker, server
from benchmarks.raw_client import RawClient, percentile, produce_request
from benchmarks.row import Row, row, show
from flymq.wire.native.codec import encode_request
from flymq.wire.native.messages.records import Fetch, FetchPartition
from flymq.wire.native.messages.session import Ping
from flymq.wire.native.messages.topics import CreateTopic

TOPIC = "bench"
_MB = 1 << 20
_PRODUCE = ((1, 40_000, 64), (150, 8_000, 1), (150, 16_000, 8), (600, 6_000, 4), (9000, 400, 2))
"""Records per batch, number of requests, and requests in flight."""


def run(quick: bool = False) -> list[Row]:
    scale = 0.2 if quick else 1.0
    rows: list[Row] = []
    rows += _produce(scale)
    rows += _latency(int(5000 * scale))
    rows += _fetch(int(400 * scale))
    rows += _memory(200 if quick else 1000)
    rows += _many_partitions(1000)
    return rows


def _python(*arguments: str) -> list[str]:
    return [sys.executable, "-m", *arguments]


def _open_topic(measured: Measured) -> RawClient:
    client = RawClient(measured.port)
    client.ask(CreateTopic(topic=TOPIC, partitions=1, settings={"retention.bytes": 256 * _MB}))
    return client


def _cpu_per_request(measured: Measured, client: RawClient, request: bytes, count: int, inflight: int) -> float:
    """Return microseconds of the server's CPU time for each request."""
    before = measured.cpu_s
    client.flood(request, count, inflight=inflight)
    return (measured.cpu_s - before) / count * 1e6


def _produce(scale: float) -> list[Row]:
    """Produce requests of one batch, beside a server that only writes the same bytes to a file."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="flymq-bench-") as scratch:
        command = _python("benchmarks.bare_servers", "produce", scratch)
        with broker() as ours, server(command) as bare:
            client, bare_client = _open_topic(ours), RawClient(bare.port)
            for records, count, inflight in _PRODUCE:
                request = produce_request(TOPIC, [(None, b"x" * 100)] * records)
                count = int(count * scale)
                pairs = [
                    (
                        _cpu_per_request(ours, client, request, count, inflight),
                        _cpu_per_request(bare, bare_client, request, count, inflight),
                    )
                    for _ in range(3)
                ]
                cost, limit = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
                size = f"{records} x 100 B ({len(request) / 1024:.0f} KB), {inflight} at a time"
                target = "<= 1.5 x" if records == 150 else ""
                rows.append(
                    row(
                        f"produce request, {size}",
                        cost,
                        "CPU us",
                        peer="bare asyncio server",
                        peer_value=limit,
                        target=target,
                    )
                )
                target = ">= 2 M" if records == 150 else ""
                rows.append(row(f"produce, {size}", records / cost * 1e6, "msgs/s a core", target=target))
    return rows


def _latency(count: int) -> list[Row]:
    """Latency of single small requests, beside an echo server; then from a producer to a waiting consumer."""
    request = produce_request(TOPIC, [(None, b"x" * 100)])
    with broker() as ours, server(_python("benchmarks.bare_servers", "echo")) as bare:
        client, echo = _open_topic(ours), RawClient(bare.port)
        trips: list[float] = []
        echoes: list[float] = []
        for _ in range(5):
            trips += client.round_trips(request, count // 5)
            echoes += echo.round_trips(request, count // 5)
        delivery = _delivery_times(ours, client, request, count // 5)
    trips.sort()
    echoes.sort()
    p50, echo_p50 = percentile(trips, 0.5) * 1e6, percentile(echoes, 0.5) * 1e6
    return [
        row("produce round trip p50", p50, "us", peer="echo server", peer_value=echo_p50, target="<= 1.5 x"),
        row(
            "produce round trip p99",
            percentile(trips, 0.99) * 1e6,
            "us",
            peer="echo server",
            peer_value=percentile(echoes, 0.99) * 1e6,
            target="< 1000 us",
        ),
        row(
            "produce to waiting consumer p50",
            percentile(delivery, 0.5) * 1e6,
            "us",
            peer="echo server",
            peer_value=echo_p50,
            target="<= 2 x",
        ),
    ]


def _delivery_times(measured: Measured, producer: RawClient, request: bytes, count: int) -> list[float]:
    """Return the sorted latencies from sending a record until a waiting consumer received it."""
    consumer = RawClient(measured.port)
    offset = consumer.ask(Fetch(partitions=[FetchPartition(TOPIC, 0, 0)])).partitions[0].high_watermark
    times = []
    for at in range(count):
        fetch = Fetch(partitions=[FetchPartition(TOPIC, 0, offset + at)], max_wait_ms=10_000)
        consumer.socket.sendall(encode_request(fetch))
        consumer.ask(Ping())  # responds at once: the fetch before it waits
        sent = time.perf_counter()
        producer.socket.sendall(request)
        consumer.receive_frames(1)
        times.append(time.perf_counter() - sent)
        producer.receive_frames(1)
    return sorted(times)


def _fetch(count: int) -> list[Row]:
    """Reading 1 MB at a time from the page cache, beside a bare sendfile of the same bytes."""
    request = produce_request(TOPIC, [(None, b"x" * 100)] * 9000)
    with broker() as ours:
        client = _open_topic(ours)
        client.flood(request, 64, inflight=2)
        fetch = bytes(
            encode_request(Fetch(id=1, partitions=[FetchPartition(TOPIC, 0, 0, max_bytes=8 * _MB)], max_bytes=8 * _MB))
        )
        before, started = ours.cpu_s, time.perf_counter()
        received = 0
        for _ in range(count // 8):
            client.socket.sendall(fetch)
            length = int.from_bytes(client.receive_exactly(7)[3:], "big")
            client.receive_exactly(length)
            received += length
        elapsed, used = time.perf_counter() - started, ours.cpu_s - before
    return [
        row(
            "fetch of 8 MB, page cache",
            received / used / _MB,
            "MB/s a core",
            peer="bare sendfile",
            peer_value=_bare_sendfile(received),
        ),
        row("fetch of 8 MB, one connection", received / elapsed / _MB, "MB/s"),
    ]


def _bare_sendfile(total: int) -> float:
    """Return MB for each second of CPU time that sendfile to a local socket takes."""
    listening = socket.create_server(("127.0.0.1", 0))
    receiver = socket.create_connection(listening.getsockname())
    sender, _ = listening.accept()

    def drain() -> None:
        room = bytearray(_MB)
        while receiver.recv_into(room):
            pass

    thread = threading.Thread(target=drain)
    thread.start()
    with tempfile.TemporaryFile() as file:
        file.write(bytes(8 * _MB))
        file.flush()
        started = time.thread_time()
        sent = 0
        while sent < total:
            sent += os.sendfile(sender.fileno(), file.fileno(), 0, 4 * _MB)
        used = time.thread_time() - started
    sender.close()
    thread.join()
    receiver.close()
    listening.close()
    return sent / used / _MB


def _memory(connections: int) -> list[Row]:
    with broker() as ours:
        idle = ours.resident_bytes
        opened = [socket.create_connection(("127.0.0.1", ours.port)) for _ in range(connections)]
        hello = bytes(encode_request(Fetch(id=1, partitions=[])))
        for connection in opened:
            connection.sendall(hello)
        for connection in opened:
            connection.recv(100)
        more = ours.resident_bytes - idle
        for connection in opened:
            connection.close()
    return [
        row("idle broker, resident", idle / _MB, "MB", target="< 80"),
        row(f"{connections} idle connections, resident", more / _MB, "MB", target="< 60 for 1,000"),
    ]


def _many_partitions(count: int) -> list[Row]:
    """Startup time by number of partitions, after a clean shutdown."""
    with tempfile.TemporaryDirectory(prefix="flymq-bench-") as scratch:
        directory = Path(scratch)
        with broker(directory) as ours:
            client = RawClient(ours.port)
            client.ask(CreateTopic(topic="wide", partitions=count))
        started = time.perf_counter()
        with broker(directory):
            wide_s = time.perf_counter() - started
    started = time.perf_counter()
    with broker():
        empty_s = time.perf_counter() - started
    return [
        row(
            f"start with {count} partitions",
            wide_s,
            "s",
            peer="start of an empty broker",
            peer_value=empty_s,
            target="< 2 s more",
        )
    ]


if __name__ == "__main__":
    print(show(run(quick="--quick" in sys.argv)))
