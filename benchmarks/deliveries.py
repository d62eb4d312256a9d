"""End-to-end latency at a fixed rate: from the time a message was due until a waiting consumer received it."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from benchmarks.figures import Schedule, percentile

_SPIN_S = 0.0002
"""The kernel wakes a sleeping thread about 60 µs late, so the last moments before a message is due are busy-waited."""
_LEAD_S = 0.01
_QUIET_S = 10.0


class Courier(Protocol):
    """Sends single messages and counts arrivals, over plain sockets."""

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """The sockets to read from."""

    def send(self) -> None:
        """Send one message, without waiting for its response."""

    def receive(self, readable: socket.socket) -> int:
        """Read the received bytes; return how many messages arrived at the consumer."""

    def close(self) -> None: ...


class Pair:
    """A courier of two connections: one sends the same message each time, the other has something to count."""

    def __init__(
        self,
        producer: socket.socket,
        consumer: socket.socket,
        message: bytes,
        arrived: Callable[[memoryview], int],
    ) -> None:
        self._producer, self._consumer = producer, consumer
        self.sockets = (producer, consumer)
        self._message = message
        self._arrived = arrived

    def send(self) -> None:
        self._producer.sendall(self._message)

    def receive(self, readable: socket.socket) -> int:
        data = memoryview(readable.recv(1 << 16))
        return self._arrived(data) if readable is self._consumer else 0

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()


class Latency(NamedTuple):
    """What the messages of one round saw, in milliseconds."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


def deliver(courier: Courier, count: int, rate_per_s: float) -> list[float]:
    """Send so many messages on time and return, sorted, how many seconds after its time each arrived."""
    schedule = Schedule(time.perf_counter() + _LEAD_S, rate_per_s)
    arrivals_s: list[float] = []
    sent = 0
    while len(arrivals_s) < count:
        now_s = time.perf_counter()
        while sent < count and schedule.due_s(sent) <= now_s:
            courier.send()
            sent += 1
        wait_s = _QUIET_S if sent == count else max(0.0, schedule.due_s(sent) - now_s - _SPIN_S)
        readable = select.select(courier.sockets, [], [], wait_s)[0]
        if not readable and sent == count:
            raise TimeoutError(f"only {len(arrivals_s)} of {count} messages arrived")
        for connection in readable:
            arrived = courier.receive(connection)
            arrivals_s += [time.perf_counter()] * arrived
    return schedule.latencies_s(arrivals_s)


def latency(sorted_s: Sequence[float]) -> Latency:
    shares = (0.5, 0.99, 0.999, 1.0)
    return Latency(*(percentile(sorted_s, share) * 1000 for share in shares))
