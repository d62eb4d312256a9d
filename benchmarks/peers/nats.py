"""NATS JetStream: one server, a stream on disk, publishes that the stream acknowledges, a push consumer.

Its text protocol is spoken directly: a message is `PUB subject reply size`, its acknowledgement comes to `reply`.
"""

from __future__ import annotations

import itertools
import json
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.deliveries import Courier, Pair
from benchmarks.load import Occurrences, Stream, connect
from benchmarks.peers.cache import cache, command
from benchmarks.peers.contender import MESSAGE_BYTES, Contender, Promise, free_port, process
from benchmarks.peers.pipelining import Counted, Pipelined

_MODULE = "github.com/nats-io/nats-server/v2@latest"
_SYNC = {
    Promise.PROCESS: ("2m", "file storage, sync_interval 2m (default)"),
    Promise.MACHINE: ("always", "file storage, sync_interval always"),
}
_numbers = itertools.count()


class Nats:
    name = "NATS JetStream"

    @property
    def _program(self) -> Path:
        return cache() / "bin" / "nats-server"

    def missing(self) -> str | None:
        if self._program.exists():
            return None
        return "nats-server is not in the cache directory: `python -m benchmarks.peers install`, which needs Go"

    def install(self) -> None:
        if not shutil.which("go"):
            raise RuntimeError("no `go` is on the path")
        command("go", "install", _MODULE, environment={"GOBIN": str(self._program.parent)})

    def version(self) -> str:
        return command(self._program, "--version").strip().removeprefix("nats-server: v")

    @contextmanager
    def running(self, promise: Promise, folder: Path) -> Iterator[list[Contender]]:
        port = free_port()
        interval, settings = _SYNC[promise]
        config = folder / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/data", sync_interval: "{interval}" }}\n'
        )
        with process([self._program, "-c", config], port, folder) as measured:
            yield [Contender(self.name, settings, measured, lambda: NatsTopic(port))]


def _connect(port: int) -> socket.socket:
    """Return a connection that has said hello."""
    connection = connect(port)
    connection.sendall(b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\nPING\r\n')
    _read_until(connection, b"PONG\r\n")
    return connection


def _read_until(connection: socket.socket, end: bytes) -> bytes:
    said = b""
    while not said.endswith(end):
        received = connection.recv(1 << 16)
        if not received:
            raise ConnectionError(f"the server closed the connection after {said!r}")
        said += received
    return said


class NatsTopic:
    """A stream of JetStream with one subject."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._name = f"B{next(_numbers)}"
        self._control = _connect(port)
        self._control.sendall(b"SUB inbox.control 1\r\n")
        self._ask(f"STREAM.CREATE.{self._name}", name=self._name, subjects=[f"s.{self._name}"], storage="file")

    def _ask(self, what: str, **fields: object) -> dict[str, Any]:
        body = json.dumps(fields).encode()
        self._control.sendall(b"PUB $JS.API.%s inbox.control %d\r\n%s\r\n" % (what.encode(), len(body), body))
        said = _read_until(self._control, b"}\r\n")  # a PING of the server may stand before the answer
        answer: dict[str, Any] = json.loads(said[said.index(b"{", said.index(b"MSG ")) :])
        if "error" in answer:
            raise RuntimeError(f"NATS refused {what}: {answer['error']}")
        return answer

    def message(self) -> bytes:
        return b"PUB s.%s inbox.acks %d\r\n%s\r\n" % (self._name.encode(), MESSAGE_BYTES, b"x" * MESSAGE_BYTES)

    def publisher(self) -> socket.socket:
        connection = _connect(self._port)
        connection.sendall(b"SUB inbox.acks 1\r\n")
        return connection

    def producers(self, messages: int) -> Sequence[Stream]:
        return [Pipelined(self.publisher(), self.message(), messages, Occurrences(b'"seq":').feed)]

    def subscriber(self) -> socket.socket:
        """Return a connection to which the messages of the stream are pushed from the first on."""
        inbox = f"inbox.push.{next(_numbers)}"
        connection = _connect(self._port)
        connection.sendall(b"SUB %s 1\r\nPING\r\n" % inbox.encode())
        _read_until(connection, b"PONG\r\n")
        config = {"deliver_subject": inbox, "ack_policy": "none", "deliver_policy": "all", "replay_policy": "instant"}
        self._ask(f"CONSUMER.CREATE.{self._name}", stream_name=self._name, config=config)
        return connection

    def consumers(self, messages: int) -> Sequence[Stream]:
        return [Counted(self.subscriber(), messages, b"", arrivals().feed)]

    def courier(self) -> Courier:
        return Pair(self.publisher(), self.subscriber(), self.message(), arrivals().feed)

    def close(self) -> None:
        self._ask(f"STREAM.DELETE.{self._name}")
        self._control.close()


def arrivals() -> Occurrences:
    """Count pushed messages: each names where it could be acknowledged."""
    return Occurrences(b" $JS.ACK.")
