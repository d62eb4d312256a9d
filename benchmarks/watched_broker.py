"""A broker in its own process that tells, on request, how long the longest iteration of its event loop was.

    python -m benchmarks.watched_broker DATA_DIR [SECTION.NAME=VALUE ...]

It prints its port. For each line on its standard input it prints, in milliseconds since the last line: the longest
iteration, the most CPU time of an iteration, and the longest garbage collection. CPU time is what is left when other
processes on the machine keep the broker waiting.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.processes import Measured, port_in
from flymq.cli.options import parse_assignment
from flymq.host.event_loop import TimedEventLoop
from flymq.server.assemble import Server
from flymq.server.main import run
from flymq.server.settings import load_config


class Longest(NamedTuple):
    iteration_ms: float
    iteration_cpu_ms: float
    collection_ms: float


class WatchedBroker:
    """The process, seen from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.measured = Measured(process.pid, port_in(process.stdout.readline()))
        self.port = self.measured.port

    def take(self) -> Longest:
        """Return what was longest since the last call."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Longest(*map(float, self._process.stdout.readline().split()))


@contextmanager
def watched_broker(data_dir: Path, *settings: str) -> Iterator[WatchedBroker]:
    command = [sys.executable, "-m", "benchmarks.watched_broker", str(data_dir), *settings]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield WatchedBroker(process)
        finally:
            process.terminate()


class _Collections:
    """Times garbage collections."""

    def __init__(self) -> None:
        self.longest_s = self._began_s = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began_s = time.perf_counter()
        else:
            self.longest_s = max(self.longest_s, time.perf_counter() - self._began_s)


class _CpuTimes:
    """Takes the CPU time of each iteration of a loop."""

    def __init__(self, loop: TimedEventLoop) -> None:
        selector = loop._selector  # type: ignore[attr-defined]
        self.longest_s = 0.0
        self._wait = selector.select
        self._woke_s = time.thread_time()
        selector.select = self._select

    def _select(self, timeout: float | None) -> Any:
        self.longest_s = max(self.longest_s, time.thread_time() - self._woke_s)
        ready = self._wait(timeout)
        self._woke_s = time.thread_time()
        return ready


def _serve(data_dir: str, settings: list[str]) -> int:
    flags: dict[str, Any] = dict(map(parse_assignment, settings))
    flags = {"listener.port": 0, "listener.http_port": -1, **flags, "broker.data_dir": data_dir, "broker.dev": True}
    collections = _Collections()

    def announce(server: Server) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TimedEventLoop)
        cpu_times = _CpuTimes(loop)

        def answer() -> None:
            sys.stdin.readline()
            lag = server.monitor.loop_lag
            longest_s = max(lag.longest_s, loop.take_longest_s())
            print(longest_s * 1000, cpu_times.longest_s * 1000, collections.longest_s * 1000, flush=True)
            lag.forget_longest()
            collections.longest_s = cpu_times.longest_s = 0.0

        loop.add_reader(sys.stdin.fileno(), answer)
        print(server.port, flush=True)

    return run(load_config(environ={}, flags=flags), announce)


if __name__ == "__main__":
    sys.exit(_serve(sys.argv[1], sys.argv[2:]))
