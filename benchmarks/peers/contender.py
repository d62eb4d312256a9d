"""The interface of a system, ours or a peer: start it with a durability level, open a topic, load the topic."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from benchmarks.deliveries import Courier
from benchmarks.load import Stream
from benchmarks.processes import Measured

MESSAGE_BYTES = 100
UNDER_WAY = 1200
"""Messages in flight, the same for every system: 8 batches of 150 for those with batches."""
_START_S_MAX = 60.0


class Promise(Enum):
    """Durability level: what an acknowledged message survives."""

    PROCESS = "survives the process"
    MACHINE = "survives the machine"


class Topic(Protocol):
    """A place for messages of `MESSAGE_BYTES`, empty at first, and the ways to load it."""

    def producers(self, messages: int) -> Sequence[Stream]: ...

    def consumers(self, messages: int) -> Sequence[Stream]:
        """Streams that read so many messages from the beginning."""

    def courier(self) -> Courier:
        """Return a producer and a waiting consumer of this topic, which must be empty."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Contender:
    """A running system, in one of the ways it can be used."""

    name: str
    settings: str
    """The settings for the durability level."""
    measured: Measured
    open: Callable[[], Topic]


class Driver(Protocol):
    """Knows one system."""

    name: str

    def missing(self) -> str | None:
        """Return why it cannot run here, or None."""

    def install(self) -> None:
        """Fetch it into the cache directory."""

    def version(self) -> str: ...

    def running(self, promise: Promise, folder: Path) -> AbstractContextManager[list[Contender]]:
        """Run it in `folder`; the list is empty when it has no way to keep the promise."""


@contextmanager
def process(
    command: Sequence[str | Path], port: int, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Measured]:
    """Run a server that will listen on `port`, with its output in `folder`, until the block ends."""
    log = folder / "output.log"
    with log.open("wb") as output:
        started = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=environment)
        try:
            await_port(started, port, log)
            yield Measured(started.pid, port)
        finally:
            started.terminate()
            started.wait()


def await_port(started: subprocess.Popen[Any], port: int, log: Path) -> None:
    """Wait until the process listens; its output is in `log`."""
    deadline_s = time.monotonic() + _START_S_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if started.poll() is not None or time.monotonic() > deadline_s:
                said = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{started.args!r} did not start:\n{said}") from None
            time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
