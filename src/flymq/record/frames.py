"""The maximum decompressed size of a compressed frame, found by walking its blocks without decompressing them.

The declared size of a frame can be wrong, and frames can be concatenated; but each format limits the decompressed size
of a block. So a decompression bomb is recognised before any memory is allocated for it. Blocks are counted too: a
megabyte of empty ones yields nothing, and takes longer to walk than most data takes to decompress.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flymq.model.errors import DecompressedTooLarge, InvalidBatch
from flymq.record.header import Buffer

_SKIPPABLE_MAGIC = 0x184D2A5  # its low 4 bits are free
_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_BYTES_MAX = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_RATIO_MAX = 255
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES_MAX = 128 << 10
_ZSTD_STORED, _ZSTD_REPEATED = 0, 1

_BLOCKS_MIN = 1 << 10
_BLOCK_BYTES_USUAL_MIN = 1 << 10

_Frame: TypeAlias = tuple[int, int]
"""The maximum decompressed size of a frame, and the position after it."""


class Blocks:
    """Counts the blocks, frames or members of compressed data, up to a limit."""

    def __init__(self, decompressed_bytes_max: int) -> None:
        self._left = _BLOCKS_MIN + decompressed_bytes_max // _BLOCK_BYTES_USUAL_MIN

    def count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise DecompressedTooLarge("the compressed records consist of too many small blocks")


def lz4_bytes_max(data: Buffer, blocks: Blocks) -> int:
    """Return the maximum decompressed size of these LZ4 frames."""
    return _bytes_max(data, _LZ4_MAGIC, _walk_lz4, blocks)


def zstd_bytes_max(data: Buffer, blocks: Blocks) -> int:
    """Return the maximum decompressed size of these Zstandard frames."""
    return _bytes_max(data, _ZSTD_MAGIC, _walk_zstd, blocks)


def _bytes_max(data: Buffer, magic: int, walk: Callable[[Buffer, int, Blocks], _Frame], blocks: Blocks) -> int:
    total = at = 0
    while at < len(data):
        blocks.count()
        found = _number(data, at, 4)
        if found == magic:
            frame_bytes_max, at = walk(data, at + 4, blocks)
            total += frame_bytes_max
        elif found >> 4 == _SKIPPABLE_MAGIC:
            at += 8 + _number(data, at + 4, 4)
        else:
            raise InvalidBatch("the compressed records do not start like a frame of their codec")
    return total


def _walk_lz4(data: Buffer, at: int, blocks: Blocks) -> _Frame:
    flags, descriptor = _number(data, at, 1), _number(data, at + 1, 1)
    block_bytes_max = _LZ4_BLOCK_BYTES_MAX.get(descriptor >> 4 & 7)
    if flags >> 6 != 1 or block_bytes_max is None:
        raise InvalidBatch("the LZ4 frame has an unknown version")
    at += 2
    content_size = _number(data, at, 8) if flags & 0x08 else None
    at += (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0) + 1
    checksum_size = 4 if flags & 0x10 else 0
    total = 0
    while word := _number(data, at, 4):
        blocks.count()
        size = word & 0x7FFFFFFF
        is_stored = word >> 31
        total += size if is_stored else min(block_bytes_max, size * _LZ4_RATIO_MAX)
        at += 4 + size + checksum_size
    end = at + (8 if flags & 0x04 else 4)
    return total if content_size is None else min(total, content_size), end


def _walk_zstd(data: Buffer, at: int, blocks: Blocks) -> _Frame:
    flags = _number(data, at, 1)
    is_single_segment = flags >> 5 & 1
    at += 1 + (1 - is_single_segment) + (0, 1, 2, 4)[flags & 3]
    content_size_bytes = (is_single_segment, 2, 4, 8)[flags >> 6]
    content_size = _number(data, at, content_size_bytes) + (256 if content_size_bytes == 2 else 0)
    at += content_size_bytes
    total = is_last = 0
    while not is_last:
        blocks.count()
        word = _number(data, at, 3)
        is_last, kind, size = word & 1, word >> 1 & 3, word >> 3
        total += size if kind in (_ZSTD_STORED, _ZSTD_REPEATED) else _ZSTD_BLOCK_BYTES_MAX
        at += 3 + (1 if kind == _ZSTD_REPEATED else size)
    end = at + (4 if flags & 0x04 else 0)
    return min(total, content_size) if content_size_bytes else total, end


def _number(data: Buffer, at: int, size: int) -> int:
    if at + size > len(data):
        raise InvalidBatch("the compressed records are truncated")
    return int.from_bytes(data[at : at + size], "little")
