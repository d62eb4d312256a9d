"""End-to-end latency at fixed rates, quiet and while another client writes as fast as it can.

Latency counts from the time a message was due, not from when it was sent, so that a message that had to wait for its
turn is not left out. The floor beside the quiet rates is the same program against a server that only echoes.
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from benchmarks.deliveries import Courier, deliver, latency
from benchmarks.figures import figure
from benchmarks.load import connect, drive
from benchmarks.measurement import effort
from benchmarks.native import Bench, NativeCourier, produce_bytes, shape, writer
from benchmarks.processes import broker, server
from benchmarks.row import Row, row
from flymq.model.delivery import Acks

RATES_PER_S = (100, 1_000, 4_000)


class EchoCourier:
    """What is sent comes back: the least any delivery can take here."""

    def __init__(self, port: int) -> None:
        self._connection = connect(port)
        self.sockets = (self._connection,)
        self._message = bytes(200)
        self._surplus_bytes = 0

    def send(self) -> None:
        self._connection.sendall(self._message)

    def receive(self, readable: socket.socket) -> int:
        arrived, self._surplus_bytes = divmod(len(readable.recv(1 << 16)) + self._surplus_bytes, len(self._message))
        return arrived

    def close(self) -> None:
        self._connection.close()


def run(quick: bool = False) -> list[Row]:
    rows: list[Row] = []
    rounds, seconds = (1, 0.3) if quick else (effort(quick).rounds, 1.0)
    with broker() as ours, server([sys.executable, "-m", "benchmarks.bare_servers", "echo"]) as echo:
        bench = Bench(ours.port)
        for rate in RATES_PER_S[:2] if quick else RATES_PER_S:
            count = max(20, int(rate * seconds))
            pairs = [
                (_round(NativeCourier(bench, bench.topic()), count, rate), _round(EchoCourier(echo.port), count, rate))
                for _ in range(rounds)
            ]
            rows += _rows(f"end to end, {rate:,}/s", [ours for ours, _ in pairs], [floor for _, floor in pairs])
        for name, acks, pressed in (("acks=all", Acks.ALL, False), ("under full load", Acks.LEADER, True)):
            count = int(500 * seconds)
            with _pressure(bench) if pressed else nullcontext():
                times = [_round(NativeCourier(bench, bench.topic(), acks), count, 500) for _ in range(rounds)]
            rows += _rows(f"end to end, 500/s, {name}", times)
        bench.close()
    return rows


def _round(courier: Courier, count: int, rate_per_s: float) -> list[float]:
    try:
        return deliver(courier, count, rate_per_s)
    finally:
        courier.close()


def _rows(name: str, rounds: list[list[float]], floors: list[list[float]] | None = None) -> list[Row]:
    told = [latency(times) for times in rounds]
    floor = [latency(times) for times in floors or []]
    rows = []
    for field, label in (("p50_ms", "p50"), ("p99_ms", "p99"), ("p999_ms", "p99.9"), ("max_ms", "max")):
        beside = figure([getattr(one, field) for one in floor]) if floor else None
        value = figure([getattr(one, field) for one in told])
        rows.append(row(f"{name}, {label}", value, "ms", peer="echo server" if beside else None, peer_value=beside))
    return rows


@contextmanager
def _pressure(bench: Bench) -> Iterator[None]:
    """A client in a process of its own writes to another topic, without a pause, until the block ends."""
    process = multiprocessing.get_context("spawn").Process(target=_press, args=(bench.port, bench.topic()))
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _press(port: int, topic: str) -> None:
    request = produce_bytes(topic, 0, shape(100).batch)
    while True:
        drive([writer(connect(port), request, 200, inflight=4)])
