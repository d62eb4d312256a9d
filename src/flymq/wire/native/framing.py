"""The frames of the native protocol.

+------------+---------------+------------+-----------------+-----------------------+
| magic 0xFB | version 0x01  | opcode: u8 | length: u32 BE  | payload: MessagePack  |
+------------+---------------+------------+-----------------+-----------------------+
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from flymq.model.errors import BrokenFrame, RequestTooLarge, UnsupportedVersion
from flymq.wire.framing import StreamCutter

MAGIC = 0xFB
VERSION = 0x01
HEADER = Struct(">BBBI")
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 7
_OPCODE_AT = 2

PAYLOAD_BYTES_MAX = 64 << 20


class Frame(NamedTuple):
    """One message, still encoded."""

    opcode: int
    payload: memoryview


class FrameCutter(StreamCutter[Frame]):
    """Splits the received bytes of one connection into frames."""

    __slots__ = ()

    def __init__(self, scratch: bytearray | None = None, *, body_bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
        super().__init__(scratch, HEADER_SIZE, body_bytes_max)

    def body_length(self, buffer: memoryview, position: int) -> int:
        magic, version, _, length = HEADER.unpack_from(buffer, position)
        if magic != MAGIC or version != VERSION:
            raise _not_a_frame(magic, version)
        if length > self.body_bytes_max:
            raise RequestTooLarge(f"the frame has {length} bytes, the limit is {self.body_bytes_max}")
        return int(length)

    def frame(self, buffer: memoryview, start: int, end: int) -> Frame:
        # On the hot path: half the cost of `Frame(…)`.
        return tuple.__new__(Frame, (buffer[start + _OPCODE_AT], buffer[start + HEADER_SIZE : end]))

    def check_head(self, head: bytes) -> None:
        version = head[1] if len(head) > 1 else VERSION
        if head[0] != MAGIC or version != VERSION:
            raise _not_a_frame(head[0], version)


def frame_header(opcode: int, length: int) -> bytes:
    return HEADER.pack(MAGIC, VERSION, opcode, length)


def _not_a_frame(magic: int, version: int) -> BrokenFrame | UnsupportedVersion:
    if magic != MAGIC:
        return BrokenFrame(f"a frame starts with {MAGIC:#04x}, not {magic:#04x}")
    return UnsupportedVersion(f"protocol version {version} is not supported; the supported version is {VERSION}")
