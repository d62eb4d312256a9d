"""Split a byte stream into length-prefixed frames. No I/O here: bytes in, frames out.

Made for `asyncio.BufferedProtocol`: the socket writes into `get_buffer()` and `buffer_updated(n)` yields the frames
that are complete. They are views, not copies:

* A frame that arrives whole is a view of the scratch memory. All connections of one loop share one scratch, since a
  loop reads one socket at a time; so an idle connection holds no buffer, and the view is valid only until control
  returns to the loop. To keep the frame longer, copy it (`keep`).
* A small frame that is incomplete at the end of a read is saved, and prepended to the next read, which also has the
  frames behind it: a copy is cheaper than a separate read for the rest of each incomplete frame.
* A large one moves to its own memory, into which the rest is received directly. That memory is never reused, so its
  view may be kept.

A protocol defines the size of its header, its body length (`body_length`), and its frame type (`frame`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

FrameT = TypeVar("FrameT")

SCRATCH_BYTES = 256 << 10


class StreamCutter(Generic[FrameT]):
    """The receiving half of one connection.

    Frames are yielded up to the first invalid one; then the error is raised. After that the start of the next frame is
    unknown, so the connection must be closed.
    """

    __slots__ = ("_begun", "_body", "_head", "_header_size", "_need", "_scratch", "_used", "body_bytes_max")

    def __init__(self, scratch: bytearray | None, header_size: int, body_bytes_max: int) -> None:
        self._scratch = memoryview(bytearray(SCRATCH_BYTES) if scratch is None else scratch)
        assert len(self._scratch) > header_size
        self.body_bytes_max = body_bytes_max
        self._header_size = header_size
        self._head = b""  # the first part of an incomplete small frame
        self._body: memoryview | None = None  # the buffer of an incomplete large frame
        self._used = 0  # received bytes of it
        self._need = 0  # its total size, including the header
        self._begun = 0  # number of frames that were incomplete at the end of a read

    # --- defined by each protocol

    def body_length(self, buffer: memoryview, position: int) -> int:
        """Return the number of bytes after the header at `position`, or raise an error if it is invalid."""
        raise NotImplementedError

    def frame(self, buffer: memoryview, start: int, end: int) -> FrameT:
        """Return the frame in these bytes, which include its header."""
        raise NotImplementedError

    def check_head(self, head: bytes) -> None:
        """Reject the first bytes of an invalid header, without waiting for the rest."""

    # --- receive

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        if self._body is not None:
            return self._body[self._used :]
        head = self._head
        if not head:
            return self._scratch
        self._scratch[: len(head)] = head
        return self._scratch[len(head) :]

    def buffer_updated(self, count: int) -> Generator[FrameT]:
        """Process the `count` bytes just received and yield the frames they complete.

        Iterate to the end, or close the iterator: then the frames behind the last one are kept for `resume`.
        """
        if self._body is not None:
            return self._continue_body(count)
        end = len(self._head) + count
        if not self._head:
            self._begun += 1
        self._head = b""
        return self._cut(end)

    def resume(self) -> Generator[FrameT]:
        """Yield the frames that were kept."""
        self.get_buffer()
        return self.buffer_updated(0)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[FrameT]:
        """Process bytes that were received elsewhere and yield the frames they complete. Iterate to the end."""
        rest = memoryview(data)
        while rest:
            room = self.get_buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            yield from self.buffer_updated(count)
            rest = rest[count:]

    def keep(self, view: memoryview) -> memoryview:
        """Return a part of a frame that stays valid: itself if it has its own memory, else a copy."""
        return memoryview(bytes(view)) if view.obj is self._scratch.obj else view

    @property
    def wanted_bytes(self) -> int:
        """The size of an incomplete large frame, which may not be received yet; 0 for a small one."""
        return 0 if self._body is None else self._need

    @property
    def begun(self) -> int:
        """Differs from one incomplete frame to the next."""
        return self._begun

    @property
    def received_bytes(self) -> int:
        """Received bytes of an incomplete frame."""
        return len(self._head) if self._body is None else self._used

    @property
    def is_between_frames(self) -> bool:
        """Whether the stream can end here without truncating a frame."""
        return self._body is None and not self._head

    def _cut(self, end: int) -> Generator[FrameT]:
        scratch, header_size = self._scratch, self._header_size
        position = 0
        while end - position >= header_size:
            size = header_size + self.body_length(scratch, position)
            if position + size > end:
                if size > len(scratch) // 2:
                    if position:
                        self._begun += 1
                    self._start_body(position, end, size)
                    return
                break
            start, position = position, position + size
            try:
                yield self.frame(scratch, start, position)
            except GeneratorExit:  # in the middle of a read: the scratch belongs to another connection next
                self._head = bytes(scratch[position:end])
                raise
        if position < end:
            if position:
                self._begun += 1
            self._head = bytes(scratch[position:end])
            self.check_head(self._head)

    def _start_body(self, position: int, end: int, need: int) -> None:
        used = end - position
        # The length cannot be trusted: memory grows with the received bytes, at most doubling.
        body = memoryview(bytearray(min(need, max(2 * used, len(self._scratch)))))
        body[:used] = self._scratch[position:end]
        self._body, self._used, self._need = body, used, need

    def _continue_body(self, count: int) -> Generator[FrameT]:
        body = self._body
        assert body is not None
        self._used += count
        if self._used == self._need:
            self._body = None
            yield self.frame(body, 0, self._need)
        elif self._used == len(body):
            # A new buffer, since the loop still holds a view of the old one, which therefore cannot be resized.
            self._body = memoryview(bytearray(min(self._need, 2 * self._used)))
            self._body[: self._used] = body
