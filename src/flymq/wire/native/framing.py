"""Cut a byte stream into frames. No I/O here: bytes in, frames out.

    +------------+---------------+------------+-----------------+-----------------------+
    | magic 0xFB | version 0x01  | opcode: u8 | length: u32 BE  | payload: MessagePack  |
    +------------+---------------+------------+-----------------+-----------------------+

Made for `asyncio.BufferedProtocol`: the socket writes into `get_buffer()` and `buffer_updated(n)` yields the frames
that are complete. Payloads are views, not copies:

* A frame that arrives whole is a view of the scratch memory. All connections of one loop share one scratch, since a
  loop reads one socket at a time; so an idle connection holds no buffer, and the view is valid only until control
  returns to the loop. Whoever needs the payload longer copies it (`keep`).
* A small frame cut by the end of a read is put aside and back in front of the next read, together with which the frames
  behind it come: a copy costs less than reading each cut frame's rest on its own.
* A large one moves to memory of its own, into which the rest is received directly. That memory is never used again, so
  its view may be kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from flymq.model.errors import BrokenFrame, RequestTooLarge, UnsupportedVersion

MAGIC = 0xFB
VERSION = 0x01
HEADER = Struct(">BBBI")
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 7
_OPCODE_AT = 2

PAYLOAD_BYTES_MAX = 64 << 20
SCRATCH_BYTES = 256 << 10


class Frame(NamedTuple):
    """One message, still encoded."""

    opcode: int
    payload: memoryview


class FrameCutter:
    """The receiving half of one connection.

    Frames are yielded up to the place where the stream breaks; then the error is raised. After that the place of the
    next frame is unknown, so the connection must close.
    """

    __slots__ = ("_body", "_head", "_need", "_scratch", "_used", "payload_bytes_max")

    def __init__(self, scratch: bytearray | None = None, *, payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
        self.payload_bytes_max = payload_bytes_max
        self._scratch = memoryview(bytearray(SCRATCH_BYTES) if scratch is None else scratch)
        assert len(self._scratch) > HEADER_SIZE
        self._head = b""  # the beginning of a small frame that a read ended within
        self._body: memoryview | None = None  # the large frame that a read ended within
        self._used = 0  # bytes of it that are there
        self._need = 0  # bytes of it when it is whole, header included

    def get_buffer(self) -> memoryview:
        """Return the memory the next bytes belong into; never empty."""
        if self._body is not None:
            return self._body[self._used :]
        head = self._head
        if not head:
            return self._scratch
        self._scratch[: len(head)] = head
        return self._scratch[len(head) :]

    def buffer_updated(self, count: int) -> Iterator[Frame]:
        """Take the `count` bytes just received and yield the frames they complete. Iterate to the end."""
        if self._body is not None:
            return self._continue_body(count)
        end = len(self._head) + count
        self._head = b""
        return self._cut(end)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """Take bytes that were received elsewhere and yield the frames they complete. Iterate to the end."""
        rest = memoryview(data)
        while rest:
            room = self.get_buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            yield from self.buffer_updated(count)
            rest = rest[count:]

    def keep(self, payload: memoryview) -> memoryview:
        """Return a payload that stays valid: itself if it has its own memory, else a copy."""
        return memoryview(bytes(payload)) if payload.obj is self._scratch.obj else payload

    @property
    def held_bytes(self) -> int:
        """Memory taken by a frame that is not complete yet."""
        return len(self._head) if self._body is None else len(self._body)

    @property
    def is_between_frames(self) -> bool:
        """Whether the stream may end here without cutting a frame."""
        return self._body is None and not self._head

    def _cut(self, end: int) -> Iterator[Frame]:
        scratch = self._scratch
        position = 0
        while end - position >= HEADER_SIZE:
            opcode, length = self._parse_header(position)
            start = position + HEADER_SIZE
            if start + length > end:
                if HEADER_SIZE + length > len(scratch) // 2:
                    self._start_body(position, end, HEADER_SIZE + length)
                    return
                break
            position = start + length
            yield Frame(opcode, scratch[start:position])
        if position < end:
            self._head = bytes(scratch[position:end])
            _check_magic(self._head)

    def _parse_header(self, position: int) -> tuple[int, int]:
        magic, version, opcode, length = HEADER.unpack_from(self._scratch, position)
        if magic != MAGIC or version != VERSION:
            raise _not_a_frame(magic, version)
        if length > self.payload_bytes_max:
            raise RequestTooLarge(f"a frame of {length} bytes; at most {self.payload_bytes_max} are accepted")
        return opcode, length

    def _start_body(self, position: int, end: int, need: int) -> None:
        used = end - position
        # The length is only a claim: memory grows with what really arrives, at most doubling.
        body = memoryview(bytearray(min(need, max(2 * used, len(self._scratch)))))
        body[:used] = self._scratch[position:end]
        self._body, self._used, self._need = body, used, need

    def _continue_body(self, count: int) -> Iterator[Frame]:
        body = self._body
        assert body is not None
        self._used += count
        if self._used == self._need:
            self._body = None
            yield Frame(body[_OPCODE_AT], body[HEADER_SIZE:])
        elif self._used == len(body):
            # A new piece of memory, since the loop still holds a view of the old one and forbids to resize it.
            self._body = memoryview(bytearray(min(self._need, 2 * self._used)))
            self._body[: self._used] = body


def frame_header(opcode: int, length: int) -> bytes:
    return HEADER.pack(MAGIC, VERSION, opcode, length)


def _check_magic(head: bytes) -> None:
    """Refuse a wrong stream at its first byte, without waiting for a whole header."""
    version = head[1] if len(head) > 1 else VERSION
    if head[0] != MAGIC or version != VERSION:
        raise _not_a_frame(head[0], version)


def _not_a_frame(magic: int, version: int) -> BrokenFrame | UnsupportedVersion:
    if magic != MAGIC:
        return BrokenFrame(f"a frame starts with {MAGIC:#04x}, this one with {magic:#04x}")
    return UnsupportedVersion(f"version {version} of the protocol; this end speaks version {VERSION}")
