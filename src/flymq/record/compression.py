"""Compress and decompress the records of a batch, with a size limit that is checked before memory is allocated.

The output is what every Kafka client reads: gzip; raw Snappy; LZ4 frames with independent blocks, since Java supports
no others; Zstandard frames with their content size. Snappy is also read in the block format of Java's library:

    +-----------------+-----------------------+--------------------------------+
    | 82 'SNAPPY' 00  | version: u32, u32 BE  | length: u32 BE, raw Snappy … × |
    +-----------------+-----------------------+--------------------------------+
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum

import cramjam

from flymq.model.errors import DecompressedTooLarge, InvalidBatch, UnsupportedCompression
from flymq.record.frames import Blocks, lz4_bytes_max, zstd_bytes_max
from flymq.record.header import Buffer

DECOMPRESSED_BYTES_MAX = 128 << 20
"""Default limit of the decompressed size of a batch."""

GZIP_LEVEL = 6
LZ4_LEVEL = 1
ZSTD_LEVEL = 3

_GZIP_WINDOW_BITS = 31  # 15 bits, with gzip's header and trailer
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_SIZE = 16


class Compression(IntEnum):
    """Compression codec of a batch. The values are those in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compression_named(name: str) -> Compression:
    """Return the compression by its name in settings and the SDK."""
    try:
        return Compression[name.upper()]
    except KeyError:
        raise UnsupportedCompression(f"unknown compression {name!r}") from None


def compress(data: Buffer, compression: Compression, level: int | None = None) -> Buffer:
    """Return `data` compressed; `data` itself for NONE. Snappy has no levels."""
    return data if compression is Compression.NONE else _PACK[compression](data, level)


def decompress(data: Buffer, compression: int, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Return `data` decompressed, or reject it if it would exceed `decompressed_bytes_max`."""
    if compression == Compression.NONE:
        return data
    unpack = _UNPACK.get(compression)
    if unpack is None:
        raise UnsupportedCompression(f"unknown compression {compression}")
    try:
        return unpack(data, decompressed_bytes_max)
    except (cramjam.DecompressionError, zlib.error) as fault:
        raise InvalidBatch(f"the records cannot be decompressed: {fault}") from fault


def decompressed_bytes_bound(data: Buffer, compression: int, decompressed_bytes_max: int) -> int:
    """Return to how many bytes `data` decompresses at most, without doing so; or reject it like `decompress`.

    For gzip it is the size at its end. That can be wrong, and then the data is not valid, or has several members, which
    no known producer writes: used as the limit of `decompress`, it holds either way.
    """
    if compression == Compression.NONE:
        size = len(data)
    elif compression == Compression.GZIP:
        size = int.from_bytes(data[-4:], "little")
    elif compression in _BOUND:
        try:
            size = _BOUND[compression](data, Blocks(decompressed_bytes_max))
        except cramjam.DecompressionError as fault:
            raise InvalidBatch(f"the records cannot be decompressed: {fault}") from fault
    else:
        raise UnsupportedCompression(f"unknown compression {compression}")
    _check_bound(size, decompressed_bytes_max)
    return size


def _check_bound(size: int, decompressed_bytes_max: int) -> None:
    if size > decompressed_bytes_max:
        raise DecompressedTooLarge(f"the records may decompress to more than {decompressed_bytes_max} bytes")


def _gzip(data: Buffer, level: int | None) -> Buffer:
    return zlib.compress(data, GZIP_LEVEL if level is None else level, _GZIP_WINDOW_BITS)


def _gunzip(data: Buffer, decompressed_bytes_max: int) -> Buffer:
    """Gzip has the size only at its end, where it can be wrong: decompress up to the limit."""
    parts: list[bytes] = []
    room = decompressed_bytes_max
    members = Blocks(decompressed_bytes_max)
    rest: Buffer = data
    while len(rest):
        members.count()
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        part = member.decompress(rest, room + 1)
        _check_bound(len(part), room)
        if not member.eof:
            raise InvalidBatch("the compressed records are truncated")
        room -= len(part)
        parts.append(part)
        rest = member.unused_data
    return b"".join(parts)


def _snappy(data: Buffer, _level: int | None) -> Buffer:
    return memoryview(cramjam.snappy.compress_raw(data))


def _unsnappy(data: Buffer, decompressed_bytes_max: int) -> Buffer:
    if not _is_xerial(data):
        return _unsnappy_block(data, decompressed_bytes_max)
    out = bytearray()
    for block in _xerial_blocks(data, Blocks(decompressed_bytes_max)):
        out += _unsnappy_block(block, decompressed_bytes_max - len(out))
    return out


def _snappy_bytes_max(data: Buffer, blocks: Blocks) -> int:
    """Raw Snappy starts with its size, and the library enforces it."""
    if not _is_xerial(data):
        return cramjam.snappy.decompress_raw_len(data)
    return sum(cramjam.snappy.decompress_raw_len(block) for block in _xerial_blocks(data, blocks))


def _is_xerial(data: Buffer) -> bool:
    return bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _xerial_blocks(data: Buffer, blocks: Blocks) -> Iterator[memoryview]:
    """Yield the blocks of Java's library. The version after the magic is ignored: some writers swap its bytes."""
    view = memoryview(data)
    at = _XERIAL_HEADER_SIZE
    while at < len(view):
        blocks.count()
        start = at + 4
        at = start + int.from_bytes(view[at:start])
        if at > len(view):
            raise InvalidBatch("the compressed records are truncated")
        yield view[start:at]


def _unsnappy_block(data: Buffer, decompressed_bytes_max: int) -> Buffer:
    _check_bound(cramjam.snappy.decompress_raw_len(data), decompressed_bytes_max)
    return memoryview(cramjam.snappy.decompress_raw(data))


def _lz4(data: Buffer, level: int | None) -> Buffer:
    frame = cramjam.lz4.Compressor(
        level=LZ4_LEVEL if level is None else level, content_checksum=False, block_linked=False
    )
    frame.compress(bytes(data))  # it takes nothing else
    return memoryview(frame.finish())


def _unlz4(data: Buffer, decompressed_bytes_max: int) -> Buffer:
    size_max = lz4_bytes_max(data, Blocks(decompressed_bytes_max))
    return _unpack_into(cramjam.lz4.decompress_into, data, size_max, decompressed_bytes_max)


def _zstd(data: Buffer, level: int | None) -> Buffer:
    return memoryview(cramjam.zstd.compress(data, ZSTD_LEVEL if level is None else level))


def _unzstd(data: Buffer, decompressed_bytes_max: int) -> Buffer:
    size_max = zstd_bytes_max(data, Blocks(decompressed_bytes_max))
    return _unpack_into(cramjam.zstd.decompress_into, data, size_max, decompressed_bytes_max)


def _unpack_into(
    unpack: Callable[[Buffer, bytearray], int], data: Buffer, size_max: int, decompressed_bytes_max: int
) -> Buffer:
    """Decompress into a buffer of the size that the blocks allow: a frame with a wrong size does not fit."""
    _check_bound(size_max, decompressed_bytes_max)
    out = bytearray(size_max)
    return memoryview(out)[: unpack(data, out)]


_PACK: dict[int, Callable[[Buffer, int | None], Buffer]] = {
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
_UNPACK: dict[int, Callable[[Buffer, int], Buffer]] = {
    Compression.GZIP: _gunzip,
    Compression.SNAPPY: _unsnappy,
    Compression.LZ4: _unlz4,
    Compression.ZSTD: _unzstd,
}
_BOUND: dict[int, Callable[[Buffer, Blocks], int]] = {
    Compression.SNAPPY: _snappy_bytes_max,
    Compression.LZ4: lz4_bytes_max,
    Compression.ZSTD: zstd_bytes_max,
}
