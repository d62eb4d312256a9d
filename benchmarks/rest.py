"""HTTP: records as lines, one record per request, and the metrics pages.

The client is a plain socket in this process that sends prepared requests, so that only the broker is measured. It runs
on one core; its CPU time is read from the kernel.
"""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence

from benchmarks.processes import Measured, broker
from benchmarks.row import Row, row
from flymq.broker.broker import Broker
from flymq.broker.coordinators.groups import Committer
from flymq.coordination.entries import OffsetValue
from flymq.gateways.rest.handlers.monitoring import in_slices
from flymq.host.host import system_host
from flymq.model.names import TopicPartition
from flymq.server.assemble import Server, assemble
from flymq.server.settings import load_config

_VALUE = "x" * 88  # 100 bytes with the name of the field around it
_CONNECTIONS = 16


def run(quick: bool = False) -> list[Row]:
    with broker(None, "listener.http_port=-1", "topics.default_partitions=4") as measured:
        rows = [_lines(measured, quick), _lines_per_core(measured, quick), _single(measured, quick)]
    with broker(None, "listener.http_port=-1") as measured:
        rows += _pages(measured, quick)
    return rows


def _request(path: str, body: bytes, kind: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _exchange(port: int, request: bytes, count: int) -> None:
    """Send a request and wait for the response, `count` times on one connection."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = bytearray(1 << 20)
        for _ in range(count):
            client.sendall(request)
            _receive(client, answer)


def _receive(client: socket.socket, answer: bytearray) -> None:
    size = client.recv_into(answer)
    assert answer.startswith(b"HTTP/1.1 200 "), bytes(answer[:200])
    head_end = answer.find(b"\r\n\r\n", 0, size) + 4
    at = answer.find(b"content-length: ", 0, head_end) + len(b"content-length: ")
    left = head_end + int(answer[at : answer.find(b"\r\n", at)]) - size
    while left > 0:
        left -= client.recv_into(answer)


def _batch(records: int) -> bytes:
    body = b"".join(b'{"value":"%s"}\n' % _VALUE.encode() for _ in range(records))
    return _request("/api/v1/topics/lines/records", body, "application/x-ndjson")


def _lines(measured: Measured, quick: bool) -> Row:
    records, count = 2000, 20 if quick else 200
    _exchange(measured.port, _batch(records), 3)
    began_s = time.perf_counter()
    _exchange(measured.port, _batch(records), count)
    rate = records * count / (time.perf_counter() - began_s)
    return row("rest: 2,000 lines of 100 B a POST, one client", rate, "records/s", target="≥ 100 k")


def _lines_per_core(measured: Measured, quick: bool) -> Row:
    records, count = 2000, 20 if quick else 200
    began_s = measured.cpu_s
    _exchange(measured.port, _batch(records), count)
    rate = records * count / (measured.cpu_s - began_s)
    return row("rest: the same, a second of the broker's core", rate, "records/s")


def _single(measured: Measured, quick: bool) -> Row:
    body = json.dumps({"records": [{"value": _VALUE}]}).encode()
    request = _request("/api/v1/topics/single/records", body, "application/json")
    count = 100 if quick else 1500
    _exchange(measured.port, request, 50)
    clients = [threading.Thread(target=_exchange, args=(measured.port, request, count)) for _ in range(_CONNECTIONS)]
    began_s, began_cpu_s = time.perf_counter(), measured.cpu_s
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    elapsed_s = time.perf_counter() - began_s
    cpu_s = measured.cpu_s - began_cpu_s
    total = count * _CONNECTIONS
    label = f"rest: one record a POST, {_CONNECTIONS} clients"
    return row(label, total / elapsed_s, "requests/s", peer="a core", peer_value=total / cpu_s, target="≥ 5 k")


def _pages(measured: Measured, quick: bool) -> list[Row]:
    """Pages with 1,000 partitions, and how long the larger one blocks the event loop."""
    body = json.dumps({"name": "many", "partitions": 1000}).encode()
    with socket.create_connection(("127.0.0.1", measured.port)) as client:
        client.sendall(_request("/api/v1/topics", body, "application/json"))
        assert client.recv(100).startswith(b"HTTP/1.1 201 ")
    base = f"http://127.0.0.1:{measured.port}"
    rows = []
    for path in ("/metrics", "/metrics/detailed"):
        times = [_fetch(base + path) for _ in range(5 if quick else 30)]
        label = f"rest: {path} with 1,000 partitions"
        rows.append(row(label, _median(times) * 1000, "ms", target="< 50" if "detailed" in path else ""))
    rows.append(row("rest: the longest turn of the loop for that page", _longest_turn(), "ms", target="< 5"))
    return rows


def _longest_turn() -> float:
    """Make the detailed page in a broker of this process, and return how long others had to wait for it at a time."""

    async def make() -> float:
        with tempfile.TemporaryDirectory(prefix="flymq-bench-") as scratch:
            flags = {"broker.data_dir": scratch, "listener.port": 0, "listener.http_port": -1}
            server = assemble(system_host(), load_config(flags=flags))
            await server.start()
            await server.broker.admin.create("many", partitions=1000)
            _use(server.broker)
            longest = [await _turns(server) for _ in range(20)]
            await server.stop()
            return _median(longest) * 1000

    return asyncio.run(make())


def _use(broker: Broker) -> None:
    """Make the page as long as that of a broker with 1,000 topics in use and 100 groups."""
    for number in range(1000):
        for protocol in ("native", "kafka", "http"):
            broker.service.accounts.traffic.wrote(protocol, f"topic-{number}", records=1, size=100)
    for number in range(100):
        offsets = {TopicPartition("many", n): OffsetValue(0, -1, "", 0) for n in range(number, 1000, 100)}
        broker.groups.commit(f"group-{number}", Committer(), offsets)


async def _turns(server: Server) -> float:
    """Return the longest turn in this thread's CPU time: what others do on the machine is not our doing."""
    longest_s, began_s = 0.0, time.thread_time()
    async for _ in in_slices(server.monitor.metrics(detailed=True)):
        longest_s = max(longest_s, time.thread_time() - began_s)
        await asyncio.sleep(0)
        began_s = time.thread_time()
    return longest_s


def _fetch(url: str) -> float:
    began_s = time.perf_counter()
    with urllib.request.urlopen(url) as answer:
        answer.read()
    return time.perf_counter() - began_s


def _median(times: Sequence[float]) -> float:
    return sorted(times)[len(times) // 2]
