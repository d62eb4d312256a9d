"""How much a compressed frame can unpack to at most, found by walking its blocks without unpacking them.

The size a frame declares can lie, and frames can follow one another; blocks cannot: each format bounds what one block
yields. So a few bytes that would unpack to gigabytes are recognised before any memory is spent on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flymq.model.errors import InvalidBatch
from flymq.record.header import Buffer

_SKIPPABLE_MAGIC = 0x184D2A5  # its low 4 bits are free
_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_BYTES_MAX = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_RATIO_MAX = 255
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES_MAX = 128 << 10

_Blocks = Iterator[tuple[int, int]]
"""(most bytes a block can yield, position after it)."""


def lz4_bytes_max(data: Buffer, enough: int) -> int:
    """Return a bound on the unpacked size of LZ4 frames; stops counting above `enough`."""
    return _bytes_max(data, enough, _LZ4_MAGIC, _lz4_blocks)


def zstd_bytes_max(data: Buffer, enough: int) -> int:
    """Return a bound on the unpacked size of Zstandard frames; stops counting above `enough`."""
    return _bytes_max(data, enough, _ZSTD_MAGIC, _zstd_blocks)


def _bytes_max(data: Buffer, enough: int, magic: int, blocks: Callable[[Buffer, int], _Blocks]) -> int:
    total = at = 0
    while at < len(data):
        found = _number(data, at, 4)
        at += 4
        if found == magic:
            for block_bytes_max, after in blocks(data, at):
                at = after
                total += block_bytes_max
                if total > enough:
                    return total
        elif found >> 4 == _SKIPPABLE_MAGIC:
            at += 4 + _number(data, at, 4)
        else:
            raise InvalidBatch("the compressed records do not start like a frame of their codec")
    return total


def _lz4_blocks(data: Buffer, at: int) -> _Blocks:
    flags, descriptor = _number(data, at, 1), _number(data, at + 1, 1)
    size_max = _LZ4_BLOCK_BYTES_MAX.get(descriptor >> 4 & 7)
    if flags >> 6 != 1 or size_max is None:
        raise InvalidBatch("the LZ4 frame is of an unknown version")
    checksum_size = 4 if flags & 0x10 else 0
    at += 3 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    while word := _number(data, at, 4):
        size = word & 0x7FFFFFFF
        at += 4 + size + checksum_size
        is_stored = word >> 31
        yield size if is_stored else min(size_max, size * _LZ4_RATIO_MAX), at
    yield 0, at + (8 if flags & 0x04 else 4)


def _zstd_blocks(data: Buffer, at: int) -> _Blocks:
    flags = _number(data, at, 1)
    is_single_segment = flags >> 5 & 1
    content_size_bytes = (is_single_segment, 2, 4, 8)[flags >> 6]
    dictionary_id_bytes = (0, 1, 2, 4)[flags & 3]
    at += 1 + (1 - is_single_segment) + dictionary_id_bytes + content_size_bytes
    is_last = 0
    while not is_last:
        word = _number(data, at, 3)
        is_last, kind, size = word & 1, word >> 1 & 3, word >> 3
        if kind == 0:  # stored as it is
            at, bytes_max = at + 3 + size, size
        elif kind == 1:  # one byte, repeated
            at, bytes_max = at + 4, size
        else:
            at, bytes_max = at + 3 + size, _ZSTD_BLOCK_BYTES_MAX
        yield bytes_max, at
    yield 0, at + (4 if flags & 0x04 else 0)


def _number(data: Buffer, at: int, size: int) -> int:
    if at + size > len(data):
        raise InvalidBatch("the compressed records are cut short")
    return int.from_bytes(data[at : at + size], "little")
