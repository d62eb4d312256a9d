"""One load on one server: elapsed time, and the server's CPU time and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from benchmarks.figures import Figure, figure
from benchmarks.load import Stream, drive
from benchmarks.processes import Measured
from benchmarks.row import Row, row

_MB = 1 << 20


class Load(NamedTuple):
    """The result of one round of a load."""

    messages: int
    elapsed_s: float
    cpu_s: float
    resident_bytes: int

    @property
    def rate(self) -> float:
        return self.messages / self.elapsed_s

    @property
    def cpu_s_per_million(self) -> float:
        return self.cpu_s / self.messages * 1e6


def measure(server: Measured, streams: Sequence[Stream], messages: int) -> Load:
    """Drive the streams to their end. They are already connected, so that connecting is not measured."""
    return timed(server, messages, lambda: drive(streams))


def timed(server: Measured, messages: int, work: Callable[[], float]) -> Load:
    """Measure work that returns its elapsed seconds."""
    before_s = server.cpu_s
    elapsed_s = work()
    return Load(messages, elapsed_s, server.cpu_s - before_s, server.resident_bytes)


def rates(loads: Sequence[Load]) -> Figure:
    return figure([load.rate for load in loads])


def load_row(
    bench: str, loads: Sequence[Load], *, peer: str | None = None, beside: Sequence[Load] = (), target: str = ""
) -> Row:
    """Return a row of throughput with the broker's CPU time and memory: medians over the rounds."""
    return row(
        bench,
        rates(loads),
        "msgs/s",
        peer=peer,
        peer_value=rates(beside) if beside else None,
        target=target,
        cpu_s_per_million=median(load.cpu_s_per_million for load in loads),
        resident_mb=max(load.resident_bytes for load in loads) / _MB,
    )


class Effort(NamedTuple):
    """The size of a run: a smoke test, or publishable figures."""

    rounds: int
    volume_bytes: int

    def batches(self, batch_bytes: int) -> int:
        """Return how many batches of this size are a round."""
        return max(8, self.volume_bytes // batch_bytes)


def effort(quick: bool, volume_bytes: int = 48 * _MB) -> Effort:
    return Effort(rounds=1, volume_bytes=volume_bytes // 12) if quick else Effort(rounds=3, volume_bytes=volume_bytes)
