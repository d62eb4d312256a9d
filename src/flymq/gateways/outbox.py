"""The send queue of a connection: bytes through the transport, large slices of a log by sendfile.

A slice that sendfile cannot send (TLS, a file without a descriptor) is read piece by piece as the transport drains, so
that it is never completely in memory.

sendfile moves pages from the page cache to the socket without a copy through Python, but it must not interleave with
bytes that the transport has buffered. So the buffer of the transport is empty before a slice is sent, and while the
socket is full it is watched by a duplicated descriptor, since the event loop allows only one owner of each.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from flymq.broker.service.records import Slice
from flymq.host.time_slices import TimeSlice
from flymq.model.errors import StorageError

SLICE_BYTES_MIN = 256 << 10  # below, one read and one send cost less (measured; docs/performance.md)
_SENDFILE_BYTES_MAX = 4 << 20  # per call, so that one reader does not block the event loop
_READ_BYTES_MAX = 1 << 20  # in memory at a time
_PIECE_COST = 2 << 10  # a small piece takes as long as this many bytes

Buffer = bytes | bytearray | memoryview
_BUFFERS = (bytes, bytearray, memoryview)


class FileSlice(Protocol):
    """A part of a file to send."""

    position: int
    length: int

    @property
    def descriptor(self) -> int | None: ...

    def read(self) -> Buffer: ...

    def read_part(self, start: int, bytes_max: int) -> bytes: ...


class Outbox:
    """The sending half of one connection."""

    def __init__(self, transport: asyncio.Transport, when_sent: Callable[[], None] = lambda: None) -> None:
        """`when_sent` is called when a later turn has sent the last piece."""
        # pause_writing as soon as the socket is full, resume_writing when the buffer is empty.
        transport.set_write_buffer_limits(high=1, low=0)
        self._transport = transport
        self._when_sent = when_sent
        self._loop = asyncio.get_running_loop()
        self._can_sendfile = transport.get_extra_info("sslcontext") is None
        self._queue: deque[Buffer | FileSlice] = deque()
        self._position = 0  # bytes sent of the first slice
        self._watched_fd = -1
        self._is_watching = False
        self._has_turn = False

    @property
    def is_empty(self) -> bool:
        return not self._queue and not self._transport.get_write_buffer_size()

    @property
    def held_bytes(self) -> int:
        """Memory of unsent bytes; a slice of a file takes none."""
        return self._transport.get_write_buffer_size() + sum(
            len(item) for item in self._queue if isinstance(item, _BUFFERS)
        )

    @property
    def progress(self) -> tuple[int, int, int]:
        """Differs from its last value if something was sent or added."""
        return len(self._queue), self._position, self._transport.get_write_buffer_size()

    def send(self, pieces: Sequence[Buffer | Slice]) -> None:
        """Add pieces to the end of the queue. What cannot be sent now is not read from its file."""
        if len(pieces) == 1 and not self._queue and isinstance(first := pieces[0], _BUFFERS):
            self._transport.write(first)
            return
        for piece in pieces:
            self._queue.append(piece if isinstance(piece, _BUFFERS) or not piece.in_memory else piece.data)
        self.pump()

    def pump(self) -> None:
        """Send as much as possible, in turns with other connections.

        Called again when the transport has drained or the socket is writable.
        """
        if self._is_watching or self._has_turn:
            return
        turn = TimeSlice()
        while self._queue and not self._transport.is_closing():
            if self._transport.get_write_buffer_size():
                return  # resume_writing is called when it is empty
            if not self._send_first():
                return
            if turn.is_over:
                self._has_turn = True
                self._loop.call_soon(self._next_turn)
                return

    def _next_turn(self) -> None:
        self._has_turn = False
        self._pump_later()

    def _pump_later(self) -> None:
        self.pump()
        if self.is_empty:
            self._when_sent()

    def _send_first(self) -> bool:
        """Send the small pieces at the front of the queue in one write, or a part of a large slice; False if the
        socket is full."""
        gathered: list[Buffer] = []
        left = _READ_BYTES_MAX
        queue = self._queue
        while queue and left > 0:
            item = queue[0]
            if isinstance(item, _BUFFERS):
                gathered.append(item)
            elif item.length >= SLICE_BYTES_MIN:
                break
            else:
                try:
                    gathered.append(item.read())
                except (OSError, StorageError):
                    self._transport.abort()
                    return False
            left -= len(gathered[-1]) + _PIECE_COST
            queue.popleft()
        if gathered:
            self._transport.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))
            return True
        return isinstance(item, _BUFFERS) or self._send_some(item)

    def _send_some(self, item: FileSlice) -> bool:
        """Send a part of the first slice; False if the socket is full."""
        descriptor = item.descriptor if self._can_sendfile else None
        try:
            sent = self._read_and_write(item) if descriptor is None else self._sendfile(item, descriptor)
        except BlockingIOError:
            self._watch()
            return False
        except (OSError, StorageError):
            self._transport.abort()
            return False
        if sent == 0:  # the file was truncated: the rest of the announced bytes cannot be sent
            self._transport.abort()
            return False
        self._position += sent
        if self._position == item.length:
            self._queue.popleft()
            self._position = 0
        return True

    def _sendfile(self, item: FileSlice, descriptor: int) -> int:
        if self._watched_fd < 0:
            self._watched_fd = os.dup(self._transport.get_extra_info("socket").fileno())
        bytes_max = min(item.length - self._position, _SENDFILE_BYTES_MAX)
        return os.sendfile(self._watched_fd, descriptor, item.position + self._position, bytes_max)

    def _read_and_write(self, item: FileSlice) -> int:
        piece = item.read_part(self._position, _READ_BYTES_MAX)
        self._transport.write(piece)
        return len(piece)

    def _watch(self) -> None:
        self._is_watching = True
        self._loop.add_writer(self._watched_fd, self._writable)

    def _writable(self) -> None:
        self._unwatch()
        self._pump_later()

    def _unwatch(self) -> None:
        if self._is_watching:
            self._is_watching = False
            self._loop.remove_writer(self._watched_fd)

    def close(self) -> None:
        self._unwatch()
        self._queue.clear()
        if self._watched_fd >= 0:
            os.close(self._watched_fd)
            self._watched_fd = -1
