"""A load generator that is not the bottleneck: prepared bytes on many plain sockets, driven by one thread.

A `Stream` is one connection: it defines what to send and counts the responses, without decoding them if possible.
`drive` moves the bytes of all streams until each is done. Protocols differ only in their streams.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator, Sequence

_BUFFER_BYTES = 1 << 20
_QUIET_S = 30.0
"""Timeout without any received bytes: the load is stuck, which is a bug of the load or of the server."""


class Stream:
    """One connection of a load."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._unsent: deque[memoryview] = deque()

    @property
    def done(self) -> bool:
        """Whether everything was sent and all responses were received."""
        raise NotImplementedError

    def begin(self) -> None:
        """Send the first requests."""
        raise NotImplementedError

    def feed(self, data: memoryview) -> None:
        """Process received bytes, and send more requests."""
        raise NotImplementedError

    def send(self, data: bytes | bytearray | memoryview) -> None:
        self._unsent.append(memoryview(data))

    def flush(self) -> bool:
        """Send as much as the socket accepts; return whether something is left."""
        while self._unsent:
            try:
                sent = self.connection.send(self._unsent[0])
            except (BlockingIOError, ssl.SSLWantWriteError):
                return True
            if sent < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][sent:]
            else:
                self._unsent.popleft()
        return False


class FrameSizes:
    """Split a byte stream into length-prefixed frames, without keeping them."""

    def __init__(self, header_bytes: int, length_at: int) -> None:
        self._header_bytes = header_bytes
        self._length_at = length_at
        self._header = bytearray()
        self._body_left = 0
        self._size = 0

    def feed(self, data: memoryview) -> Iterator[int]:
        """Yield the size of each body that `data` completes."""
        position = 0
        while position < len(data):
            if self._body_left:
                taken = min(self._body_left, len(data) - position)
                self._body_left -= taken
                position += taken
            else:
                missing = self._header_bytes - len(self._header)
                self._header += data[position : position + missing]
                position += missing
                if len(self._header) < self._header_bytes:
                    return
                self._body_left = self._size = int.from_bytes(
                    self._header[self._length_at : self._length_at + 4], "big"
                )
                self._header.clear()
            if not self._body_left:
                yield self._size


class Occurrences:
    """Count a marker in a byte stream, also across reads."""

    def __init__(self, marker: bytes) -> None:
        self._marker = marker
        self._tail = b""

    def feed(self, data: memoryview) -> int:
        text = self._tail + data
        self._tail = text[-(len(self._marker) - 1) :] if len(self._marker) > 1 else b""
        return text.count(self._marker)


class Requests(Stream):
    """Repeats one prepared request, with a fixed number in flight."""

    def __init__(
        self, connection: socket.socket, request: bytes, count: int, *, inflight: int, frames: FrameSizes
    ) -> None:
        super().__init__(connection)
        self._request = request
        self._left = count
        self._unanswered = 0
        self._inflight = inflight
        self._frames = frames

    @property
    def done(self) -> bool:
        return not self._left and not self._unanswered

    def begin(self) -> None:
        self._top_up()

    def feed(self, data: memoryview) -> None:
        for _ in self._frames.feed(data):
            self._unanswered -= 1
        self._top_up()

    def _top_up(self) -> None:
        more = min(self._left, self._inflight - self._unanswered)
        for _ in range(more):
            self.send(self._request)
        self._left -= more
        self._unanswered += more


def connect(port: int, tls: ssl.SSLContext | None = None) -> socket.socket:
    """Return a local connection with TCP_NODELAY."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tls.wrap_socket(connection, server_hostname="localhost") if tls else connection


def drive(streams: Sequence[Stream]) -> float:
    """Move the bytes of all streams until each is done; return the seconds it took. Closes their connections."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            stream.connection.setblocking(False)
            selector.register(stream.connection, selectors.EVENT_READ, stream)
        started = time.perf_counter()
        for stream in streams:
            stream.begin()
            _watch(selector, stream, wants_room=stream.flush())
        while not all(stream.done for stream in streams):
            ready = selector.select(_QUIET_S)
            if not ready:
                raise TimeoutError(f"no response for {_QUIET_S:.0f} s")
            for key, _ in ready:
                stream = key.data
                _receive(stream, buffer)
                _watch(selector, stream, wants_room=stream.flush())
        elapsed = time.perf_counter() - started
    for stream in streams:
        stream.connection.close()
    return elapsed


def _watch(selector: selectors.BaseSelector, stream: Stream, *, wants_room: bool) -> None:
    events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wants_room else 0)
    if selector.get_key(stream.connection).events != events:
        selector.modify(stream.connection, events, stream)


def _receive(stream: Stream, buffer: memoryview) -> None:
    """Pass received bytes to the stream; TLS may buffer more than the socket shows, hence the loop."""
    encrypted = isinstance(stream.connection, ssl.SSLSocket)
    while True:
        try:
            received = stream.connection.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        if not received:
            raise ConnectionError("the server closed the connection")
        stream.feed(buffer[:received])
        if not encrypted:
            return
