"""Servers to measure, each in its own process, with CPU time and memory from the kernel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_CPUCLOCK_SCHED = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """A server that listens on a port of 127.0.0.1."""

    pid: int
    port: int

    @property
    def cpu_s(self) -> float:
        """seconds of CPU time so far, of all its threads, its own and the kernel's on its behalf.

        Linux has a clock for each process, exact to the nanosecond where /proc counts in hundredths of a second; its
        number is made of the process id as clock_getcpuclockid(3) does it.
        """
        return time.clock_gettime(~self.pid << 3 | _CPUCLOCK_SCHED)

    @property
    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def server(command: Sequence[str]) -> Iterator[Measured]:
    """Run a program whose first line on stdout is the port it listens on, or has its address."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield Measured(process.pid, port_in(process.stdout.readline()))
        finally:
            process.terminate()


def port_in(line: str) -> int:
    """Return the port from a server's first line of output."""
    found = re.search(r"127\.0\.0\.1:(\d+)|^(\d+)$", line)
    assert found, f"the server did not start; it said {line!r}"
    return int(found[1] or found[2])


@contextmanager
def broker(data_dir: Path | None = None, *settings: str) -> Iterator[Measured]:
    """Run a broker in dev mode, in a temporary directory unless one is given."""
    with tempfile.TemporaryDirectory(prefix="flymq-bench-") as scratch:
        flags = [f"--set={setting}" for setting in settings]
        command = [sys.executable, "-m", "flymq", "server", "start", "--dev", "--port=0"]
        with server([*command, f"--data-dir={data_dir or scratch}", *flags]) as measured:
            yield measured
