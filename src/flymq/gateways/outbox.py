"""What a connection has to send, in order: bytes through the transport, large slices of a log by sendfile.

sendfile moves pages from the cache to the socket without a copy through Python, but it cannot share a socket with a
transport that has bytes left to send. So: the transport's buffer is kept empty before a slice goes out, and while the
socket is full the kernel tells us by a second descriptor of it, since the loop allows only one owner of each.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Sequence

from flymq.broker.replicas.partition import Slice
from flymq.storage.segments.segment import LogSlice

SENDFILE_BYTES_MIN = 256 << 10  # below, one read and one send cost less (measured; docs/performance.md)
_SENDFILE_BYTES_MAX = 4 << 20  # at once, so that one reader does not hold up the loop

Buffer = bytes | bytearray | memoryview


class Outbox:
    """The sending half of one connection."""

    def __init__(self, transport: asyncio.Transport) -> None:
        # pause_writing as soon as the socket takes no more, resume_writing when everything is out.
        transport.set_write_buffer_limits(high=1, low=0)
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._can_sendfile = transport.get_extra_info("sslcontext") is None
        self._queue: deque[Buffer | LogSlice] = deque()
        self._position = 0  # how much of the slice in front is sent
        self._watched_fd = -1
        self._is_watching = False

    @property
    def is_empty(self) -> bool:
        return not self._queue and not self._transport.get_write_buffer_size()

    @property
    def held_bytes(self) -> int:
        """Memory of what is not sent yet; a slice in a file takes none."""
        return self._transport.get_write_buffer_size() + sum(
            len(item) for item in self._queue if not isinstance(item, LogSlice)
        )

    def send(self, pieces: Sequence[Buffer | Slice]) -> None:
        """Send the pieces after all that was given before."""
        small: list[Buffer] = []
        for piece in pieces:
            if isinstance(piece, (bytes, bytearray, memoryview)):
                small.append(piece)
            elif isinstance(piece, LogSlice) and self._can_sendfile and piece.length >= SENDFILE_BYTES_MIN:
                self._queue.append(b"".join(small))
                self._queue.append(piece)
                small = []
            else:
                small.append(piece.read())
        if small and not self._queue:
            self._transport.write(small[0] if len(small) == 1 else b"".join(small))
            return
        if small:
            self._queue.append(b"".join(small))
        self.pump()

    def pump(self) -> None:
        """Send what can be sent. Called again when the transport has drained or the socket takes more."""
        if self._is_watching:
            return
        while self._queue and not self._transport.is_closing():
            item = self._queue[0]
            if not isinstance(item, LogSlice):
                self._queue.popleft()
                if item:
                    self._transport.write(item)
            elif self._transport.get_write_buffer_size():
                return  # resume_writing comes when it is empty
            elif not self._send_some(item):
                return

    def _send_some(self, item: LogSlice) -> bool:
        """Send a part of the slice in front; False when the socket is full."""
        if self._watched_fd < 0:
            self._watched_fd = os.dup(self._transport.get_extra_info("socket").fileno())
        left = item.length - self._position
        try:
            sent = os.sendfile(
                self._watched_fd, item.file.fileno(), item.position + self._position, min(left, _SENDFILE_BYTES_MAX)
            )
        except BlockingIOError:
            self._watch()
            return False
        except OSError:
            self._transport.abort()
            return False
        if sent == 0:  # the file is shorter than it was: the rest of the promised bytes will never come
            self._transport.abort()
            return False
        self._position += sent
        if self._position == item.length:
            self._queue.popleft()
            self._position = 0
        return True

    def _watch(self) -> None:
        self._is_watching = True
        self._loop.add_writer(self._watched_fd, self._writable)

    def _writable(self) -> None:
        self._unwatch()
        self.pump()

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
