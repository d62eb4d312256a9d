"""Redis Streams: one server with an append-only file; XADD to write, XREAD to read.

An ECHO follows each XREAD: its answer says that the read before it is complete, so that nothing needs to be parsed.
"""

from __future__ import annotations

import itertools
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.deliveries import Courier, Pair
from benchmarks.load import Occurrences, Stream, connect
from benchmarks.peers import debian
from benchmarks.peers.cache import command, first_existing
from benchmarks.peers.contender import MESSAGE_BYTES, Contender, Promise, free_port, process
from benchmarks.peers.pipelining import Pipelined

_FSYNC = {Promise.PROCESS: "no", Promise.MACHINE: "always"}
_FIELD = b"\r\n*2\r\n$1\r\nv\r\n"
"""What stands between the id of an entry and its value."""
_END = b"$3\r\nEND\r\n"
_READ_MAX = 1000
_numbers = itertools.count()


class Redis:
    name = "Redis Streams"

    def _program(self) -> Path | None:
        on_path = shutil.which("redis-server")
        return Path(on_path) if on_path else first_existing([debian.unpacked() / "usr/bin/redis-server"])

    def missing(self) -> str | None:
        if self._program():
            return None
        return "no `redis-server` on the path or in the cache directory: `python -m benchmarks.peers install`"

    def install(self) -> None:
        debian.unpack("redis-server")

    def version(self) -> str:
        program = self._program()
        assert program
        said = command(program, "--version", environment=debian.environment())
        return said.partition("v=")[2].split()[0]

    @contextmanager
    def running(self, promise: Promise, folder: Path) -> Iterator[list[Contender]]:
        program, port, fsync = self._program(), free_port(), _FSYNC[promise]
        assert program
        flags = ["--appendonly", "yes", "--appendfsync", fsync, "--save", "", "--bind", "127.0.0.1"]
        words = [str(program), "--port", str(port), "--dir", str(folder), *flags]
        settings = f"appendonly yes, appendfsync {fsync}"
        with process(words, port, folder, debian.environment()) as measured:
            yield [Contender(self.name, settings, measured, lambda: RedisTopic(port))]


def _words(*words: bytes) -> bytes:
    """Return a command as Redis reads it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class RedisTopic:
    """One stream."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._key = b"bench-%d" % next(_numbers)

    def message(self) -> bytes:
        return _words(b"XADD", self._key, b"*", b"v", b"x" * MESSAGE_BYTES)

    def read(self, after: bytes, *waiting: bytes) -> bytes:
        count = b"%d" % _READ_MAX
        return _words(b"XREAD", b"COUNT", count, *waiting, b"STREAMS", self._key, after) + _words(b"ECHO", b"END")

    def producers(self, messages: int) -> Sequence[Stream]:
        return [Pipelined(connect(self._port), self.message(), messages, Occurrences(b"$").feed)]

    def consumers(self, messages: int) -> Sequence[Stream]:
        return [RedisReader(connect(self._port), self, messages)]

    def courier(self) -> Courier:
        consumer = connect(self._port)
        return Pair(connect(self._port), consumer, self.message(), WaitingReader(consumer, self).feed)

    def close(self) -> None:
        with connect(self._port) as control:
            control.sendall(_words(b"DEL", self._key))
            control.recv(100)


class Entries:
    """Collects the answer of one XREAD after another."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.last_id = b"0-0"

    def feed(self, data: memoryview) -> int | None:
        """Return how many entries the answer had if `data` completes it."""
        self._buffer += data
        if not self._buffer.endswith(_END):
            return None
        count = self._buffer.count(_FIELD)
        if count:
            end = self._buffer.rfind(_FIELD)
            self.last_id = bytes(self._buffer[self._buffer.rfind(b"\n", 0, end) + 1 : end])
        self._buffer.clear()
        return count


class RedisReader(Stream):
    """Reads a stream from its beginning, 1,000 entries at a time."""

    def __init__(self, connection: socket.socket, topic: RedisTopic, messages: int) -> None:
        super().__init__(connection)
        self._topic = topic
        self._left = messages
        self._entries = Entries()

    @property
    def done(self) -> bool:
        return self._left <= 0

    def begin(self) -> None:
        self.send(self._topic.read(self._entries.last_id))

    def feed(self, data: memoryview) -> None:
        if (count := self._entries.feed(data)) is not None:
            self._left -= count
            if not self.done:
                self.begin()


class WaitingReader:
    """Has an XREAD under way that waits for the next entry."""

    def __init__(self, connection: socket.socket, topic: RedisTopic) -> None:
        self._connection = connection
        self._topic = topic
        self._entries = Entries()
        self._wait()

    def feed(self, data: memoryview) -> int:
        count = self._entries.feed(data)
        if count is None:
            return 0
        self._wait()
        return count

    def _wait(self) -> None:
        self._connection.sendall(self._topic.read(self._entries.last_id, b"BLOCK", b"10000"))
