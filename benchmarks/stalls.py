"""How long one piece of work keeps the event loop from everybody else: the longest iteration of the loop.

    python -m benchmarks --only stalls [--json FILE] [--compare OLD]

Each scenario once held the loop for a fifth of a second and more. The figure is the broker's own stall metric
(host/event_loop.py), the smallest of a few rounds, since other processes on the machine can only add to it; beside
it, the CPU time of the iteration that took most, which they do not change.
"""

from __future__ import annotations

import http.client
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import kafka_requests
from benchmarks.figures import percentile
from benchmarks.raw_client import RawClient, produce_request
from benchmarks.row import Row, row, show
from benchmarks.watched_broker import Longest, WatchedBroker, watched_broker
from flymq.record.batch import encode_batch
from flymq.wire.kafka.apis import Api
from flymq.wire.native.codec import encode_request
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.records import (
    DeleteRecords,
    DeleteRecordsPartition,
    Fetch,
    FetchPartition,
    ListOffsets,
    OffsetQuery,
    PartitionBatches,
    ProduceBatch,
)
from flymq.wire.native.messages.topics import AlterTopic, CreateTopic, Metadata

Settings = dict[str, str | int | float | None]

_MB = 1 << 20
_ROUNDS = 3
_OFTEN = "1000"  # milliseconds between two rounds of maintenance
_NEVER = "3600000"


class Size(NamedTuple):
    """How much work each scenario has."""

    records: int = 1_200_000
    deleted_mb: int = 1500
    segments: int = 8_000
    topics: int = 10
    partitions: int = 1_000
    readers: int = 1_000
    keys: int = 1_000_000


_QUICK = Size(100_000, 50, 300, 2, 200, 100, 50_000)


def run(quick: bool = False) -> list[Row]:
    size = _QUICK if quick else Size()
    rows: list[Row] = []
    for scenarios in (_time_search, _deletion, _many_segments, _many_partitions, _readers, _compaction):
        rows += scenarios(size)
    return rows


@contextmanager
def _broker(*settings: str, data_dir: Path | None = None) -> Iterator[tuple[WatchedBroker, RawClient]]:
    with (
        tempfile.TemporaryDirectory(prefix="flymq-stalls-", ignore_cleanup_errors=True) as scratch,
        watched_broker(data_dir or Path(scratch), *settings) as broker,
    ):
        client = RawClient(broker.port)
        yield broker, client
        client.close()


def _row(what: str, longest: Longest) -> Row:
    cpu_ms = longest.iteration_cpu_ms
    return row(what, longest.iteration_ms, "ms", peer="CPU time", peer_value=cpu_ms, target="< 20 ms")


def _longest(broker: WatchedBroker, work: Callable[[], object], rounds: int = _ROUNDS) -> Longest:
    """Return the longest iteration of the loop during this work: the least of a few rounds."""
    return min(_during(broker, work) for _ in range(rounds))


def _during(broker: WatchedBroker, work: Callable[[], object]) -> Longest:
    broker.take()
    work()
    return broker.take()


def _ask(client: RawClient, request: Message) -> None:
    answer = client.ask(request)
    assert "Error" not in type(answer).__name__, answer


# --- requests of one partition --------------------------------------------------------------------------------------


def _time_search(size: Size) -> list[Row]:
    rows = []
    batch = bytes(encode_batch([(b"k", b"v", (), 1_700_000_000_000 + n) for n in range(size.records)]))
    with _broker() as (broker, client):
        _ask(client, CreateTopic(topic="timed", partitions=1, settings={"max.message.bytes": 64 * _MB}))
        _ask(client, ProduceBatch(partitions=[PartitionBatches("timed", 0, batch)]))
        last = ListOffsets(partitions=[OffsetQuery("timed", 0, 1_700_000_000_000 + size.records - 1)])
        what = f"ListOffsets by time in a batch of {size.records} records"
        rows.append(_row(what, _longest(broker, lambda: _ask(client, last))))
        latest = ListOffsets(partitions=[OffsetQuery("timed", 0, -3)])
        what = f"ListOffsets of the latest time in a batch of {size.records} records"
        rows.append(_row(what, _longest(broker, lambda: _ask(client, latest))))
    return rows


def _deletion(size: Size) -> list[Row]:
    request = produce_request("fat", [(None, bytes(1000))] * 1000)
    with _broker(f"storage.checkpoint_interval_ms={_NEVER}") as (broker, client):
        settings: Settings = {"retention.bytes": -1, "segment.bytes": 256 * _MB}
        _ask(client, CreateTopic(topic="fat", partitions=1, settings=settings))
        client.flood(request, size.deleted_mb, inflight=8)
        delete = DeleteRecords(partitions=[DeleteRecordsPartition("fat", 0, -1)])
        longest = _longest(broker, lambda: _ask(client, delete), rounds=1)
    return [_row(f"DELETE_RECORDS with {size.deleted_mb} MB just written", longest)]


def _many_segments(size: Size) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="flymq-stalls-", ignore_cleanup_errors=True) as scratch:
        directory = Path(scratch) / "data"
        with _broker(data_dir=directory) as (broker, client):
            settings: Settings = {"segment.bytes": 1 << 14, "retention.ms": -1, "retention.bytes": -1}
            _ask(client, CreateTopic(topic="split", partitions=1, settings=settings))
            request = produce_request("split", [(None, bytes(15_000))])
            client.flood(request, size.segments, inflight=16)
        find = ListOffsets(partitions=[OffsetQuery("split", 0, int(time.time() * 1000) + 60_000)])
        with _broker(data_dir=directory) as (broker, client):
            longest = _longest(broker, lambda: _ask(client, find), rounds=1)
            rows.append(_row(f"first seek by time over {size.segments} segments", longest))
        with _broker(f"storage.retention_check_interval_ms={_OFTEN}", data_dir=directory) as (broker, client):

            def expire() -> None:
                _ask(client, AlterTopic(topic="split", settings={"retention.ms": 1}))
                first = ListOffsets(partitions=[OffsetQuery("split", 0, -2)])
                _wait_until(lambda: client.ask(first).partitions[0].offset > 0)

            longest = _longest(broker, expire, rounds=1)
            rows.append(_row(f"retention of {size.segments} segments", longest))
    return rows


def _wait_until(is_so: Callable[[], bool], within_s: float = 60) -> None:
    end_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.05)


# --- many partitions ------------------------------------------------------------------------------------------------


def _many_partitions(size: Size) -> list[Row]:
    total = size.topics * size.partitions
    with tempfile.TemporaryDirectory(prefix="flymq-stalls-", ignore_cleanup_errors=True) as scratch:
        directory = Path(scratch) / "data"
        rows = []
        with _broker(data_dir=directory) as (broker, client):
            create = _during(broker, lambda: _create_wide(client, size))
            rows.append(_row(f"creating topics with {total} partitions", create))
            rows += _serving(broker, client, size, "after they were created")
        settings = (f"storage.retention_check_interval_ms={_OFTEN}", f"storage.checkpoint_interval_ms={_OFTEN}")
        with _broker(*settings, data_dir=directory) as (broker, client):
            rows.append(row(f"start with {total} partitions", broker.take().iteration_ms, "ms", target="< 20 ms"))
            rows.append(_row(f"maintenance of {total} partitions", _maintain(broker, client, size)))
            rows += _serving(broker, client, size, "after a start")
            rows += _pages(broker, client, total)
            rows += _wide_fetches(broker, client, size)
    return rows


def _create_wide(client: RawClient, size: Size) -> None:
    for number in range(size.topics):
        _ask(client, CreateTopic(topic=f"wide{number}", partitions=size.partitions))


def _serving(broker: WatchedBroker, client: RawClient, size: Size, when: str) -> list[Row]:
    """Serve many connections for a while, and take the longest garbage collection."""
    opened = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(size.readers)]
    hello = bytes(encode_request(Fetch(id=1, partitions=[])))
    for connection in opened:
        connection.sendall(hello)
    for connection in opened:
        connection.recv(100)
    request = produce_request("wide0", [(None, bytes(100))])
    list_all = bytes(encode_request(Metadata(id=1)))

    def serve() -> None:
        for _ in range(20):
            client.flood(request, 2000, inflight=50)
            client.flood(list_all, 1, inflight=1)

    longest = _during(broker, serve)
    for connection in opened:
        connection.close()
    total = size.topics * size.partitions
    what = f"garbage collection, {total} partitions and {size.readers} connections, {when}"
    return [row(what, longest.collection_ms, "ms", target="< 20 ms")]


def _maintain(broker: WatchedBroker, client: RawClient, size: Size) -> Longest:
    """Write to every partition, then let retention and checkpoints go over them."""

    def work() -> None:
        for topic in range(size.topics):
            for number in range(size.partitions):
                client.flood(produce_request(f"wide{topic}", [(None, b"v")], number), 1, inflight=1)
        time.sleep(5 * int(_OFTEN) / 1000)

    return _longest(broker, work, rounds=1)


def _pages(broker: WatchedBroker, client: RawClient, total: int) -> list[Row]:
    def kafka_metadata() -> None:
        connection = socket.create_connection(("127.0.0.1", broker.port))
        connection.sendall(kafka_requests.request(Api.METADATA, 7, b"\xff\xff\xff\xff\x00"))
        _skip_response(connection)
        connection.close()

    def page(path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", broker.port)
        connection.request("GET", path)
        assert connection.getresponse().read()
        connection.close()

    return [
        _row(f"Kafka Metadata of {total} partitions", _longest(broker, kafka_metadata)),
        _row(f"native METADATA of {total} partitions", _longest(broker, lambda: _ask(client, Metadata()))),
        *(
            _row(f"GET {path}, {total} partitions", _longest(broker, lambda path=path: page(path)))  # type: ignore[misc]
            for path in ("/metrics", "/metrics/detailed", "/health")
        ),
    ]


def _skip_response(connection: socket.socket) -> None:
    """Receive a Kafka response."""
    left = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    while left:
        left -= len(connection.recv(min(left, _MB)))


def _wide_fetches(broker: WatchedBroker, client: RawClient, size: Size) -> list[Row]:
    """Fetch a record from each partition, then wait for the next one in any of them."""
    names = [(f"wide{topic}", number) for topic in range(size.topics) for number in range(size.partitions)]
    native, kafka = RawClient(broker.port), socket.create_connection(("127.0.0.1", broker.port))
    ends = [1] * len(names)

    def ask_native(offsets: list[int]) -> None:
        parts = [FetchPartition(*name, offset) for name, offset in zip(names, offsets, strict=True)]
        native.socket.sendall(encode_request(Fetch(partitions=parts, max_wait_ms=30_000)))
        native.receive_frames(1)

    def ask_kafka(offsets: list[int]) -> None:
        kafka.sendall(kafka_requests.fetch_many(dict(zip(names, offsets, strict=True)), wait_ms=30_000))
        _skip_response(kafka)

    def wait(ask: Callable[[list[int]], None]) -> None:
        waker = threading.Timer(
            1, lambda: client.flood(produce_request(names[0][0], [(None, b"v")], names[0][1]), 1, inflight=1)
        )
        waker.start()
        ask(ends)
        waker.join()
        ends[0] += 1

    rows = []
    for protocol, ask in (("native", ask_native), ("Kafka", ask_kafka)):
        what = f"{protocol} fetch from {len(names)} partitions"
        rows.append(_row(what, _longest(broker, lambda ask=ask: ask([0] * len(names)))))  # type: ignore[misc]
        rows.append(_row(f"{what}, waiting", _longest(broker, lambda ask=ask: wait(ask))))  # type: ignore[misc]
    native.close()
    kafka.close()
    return rows


def _readers(size: Size) -> list[Row]:
    with _broker() as (broker, client):
        _ask(client, CreateTopic(topic="news", partitions=1))
        readers = [RawClient(broker.port) for _ in range(size.readers)]
        request = produce_request("news", [(None, bytes(100))])

        offsets = iter(range(_ROUNDS))

        def wake() -> None:
            offset = next(offsets)
            fetch = bytes(encode_request(Fetch(partitions=[FetchPartition("news", 0, offset)], max_wait_ms=30_000)))
            for reader in readers:
                reader.socket.sendall(fetch)
            time.sleep(1)  # until all of them wait
            broker.take()
            client.flood(request, 1, inflight=1)
            for reader in readers:
                reader.receive()

        longest = _longest(broker, wake)
        for reader in readers:
            reader.close()
    return [_row(f"waking {size.readers} readers", longest)]


# --- compaction -----------------------------------------------------------------------------------------------------


def _compaction(size: Size) -> list[Row]:
    """Produce a small record now and then while a topic of many keys is compacted."""
    with tempfile.TemporaryDirectory(prefix="flymq-stalls-", ignore_cleanup_errors=True) as scratch:
        directory = Path(scratch) / "data"
        fill_keys(directory, size.keys)
        settings = (f"storage.compaction_check_interval_ms={_OFTEN}", f"storage.checkpoint_interval_ms={_OFTEN}")
        with _broker(*settings, data_dir=directory) as (broker, client):
            _ask(client, CreateTopic(topic="probe", partitions=1))
            probe = _Probe(broker.port)
            before_mb = broker.measured.resident_bytes / _MB
            peak_mb, before_cpu_s = before_mb, broker.measured.cpu_s
            broker.take()
            started_s = time.monotonic()
            while not _is_compacted(directory):
                peak_mb = max(peak_mb, broker.measured.resident_bytes / _MB)
                assert time.monotonic() < started_s + 600, "compaction did not end"
                time.sleep(0.02)
            took_s = time.monotonic() - started_s
            latencies = probe.end()
            longest = broker.take()
            cpu_s = broker.measured.cpu_s - before_cpu_s
        shutil.rmtree(directory)
    what = f"compaction of {size.keys} keys"
    return [
        _row(what, longest),
        row(f"small produce p50 during {what}", percentile(latencies, 0.5) * 1000, "ms"),
        row(f"small produce p99 during {what}", percentile(latencies, 0.99) * 1000, "ms"),
        row(f"small produce maximum during {what}", latencies[-1] * 1000, "ms"),
        row(f"memory of {what}", peak_mb - before_mb, "MB"),
        row(f"CPU time during {what}", cpu_s, "s"),
        row(f"duration of {what}", took_s, "s"),
    ]


def fill_keys(directory: Path, keys: int, per_batch: int = 150) -> None:
    """Write each key twice, in segments of 16 MB."""
    with _broker(f"storage.compaction_check_interval_ms={_NEVER}", data_dir=directory) as (_, client):
        settings: Settings = {"cleanup.policy": "compact", "segment.bytes": 16 * _MB, "min.cleanable.dirty.ratio": 0.01}
        _ask(client, CreateTopic(topic="table", partitions=1, settings=settings))
        for value in (b"0" * 60, b"1" * 60):
            for first in range(0, keys, per_batch * 16):
                frames = b"".join(
                    produce_request("table", [(b"key-%012d" % key, value) for key in range(at, at + per_batch)])
                    for at in range(first, min(keys, first + per_batch * 16), per_batch)
                )
                client.socket.sendall(frames)
                client.receive_frames(-(-min(keys - first, per_batch * 16) // per_batch))
        filler = produce_request("table", [(b"filler", bytes(900_000))])
        client.flood(filler, 20, inflight=1)  # so that everything else is in sealed segments


def _is_compacted(directory: Path) -> bool:
    """Whether what compaction has reached is noted and its work is over."""
    folder = next(directory.glob("topics/table~*/0"))
    return (folder / "compacted").exists() and not (folder / "compacting").exists()


class _Probe:
    """Produces a small record every few milliseconds, in a thread, and keeps the latencies."""

    def __init__(self, port: int) -> None:
        self._client = RawClient(port)
        self._latencies: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        request = produce_request("probe", [(None, bytes(100))])
        while not self._ended.wait(0.002):
            self._latencies += self._client.round_trips(request, 1)

    def end(self) -> list[float]:
        """Return the sorted latencies in seconds."""
        self._ended.set()
        self._thread.join()
        self._client.close()
        return sorted(self._latencies)


if __name__ == "__main__":
    print(show(run(quick="--quick" in sys.argv)))
