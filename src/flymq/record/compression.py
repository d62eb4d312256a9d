"""Pack and unpack the records of a batch, within a bound that holds before memory is spent.

What we write is what every Kafka client reads: gzip; raw Snappy; LZ4 frames of independent blocks, since Java knows no
others; Zstandard frames that declare their size. Snappy is also read in the blocks that Java's library writes:

    +-----------------+-----------------------+--------------------------------+
    | 82 'SNAPPY' 00  | version: u32, u32 BE  | length: u32 BE, raw Snappy … × |
    +-----------------+-----------------------+--------------------------------+
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum

import cramjam

from flymq.model.errors import DecompressedTooLarge, InvalidBatch, UnsupportedCompression
from flymq.record.frames import lz4_bytes_max, zstd_bytes_max
from flymq.record.header import Buffer

DECOMPRESSED_BYTES_MAX = 128 << 20
"""What one batch may unpack to, unless the caller says otherwise."""

GZIP_LEVEL = 6
LZ4_LEVEL = 1
ZSTD_LEVEL = 3

_GZIP_WINDOW_BITS = 31  # 15 bits, with gzip's header and trailer
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_SIZE = 16


class Compression(IntEnum):
    """How the records of a batch are packed. The values are those of the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compression_named(name: str) -> Compression:
    """Return the compression that settings and SDK users call `name`."""
    try:
        return Compression[name.upper()]
    except KeyError:
        raise UnsupportedCompression(f"no compression is named {name!r}") from None


def compress(data: Buffer, compression: Compression) -> Buffer:
    """Return `data` packed; `data` itself when there is nothing to do."""
    return data if compression is Compression.NONE else _PACK[compression](data)


def decompress(data: Buffer, compression: int, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Return `data` unpacked, or refuse it when that would take more than `decompressed_bytes_max`."""
    if compression == Compression.NONE:
        return data
    unpack = _UNPACK.get(compression)
    if unpack is None:
        raise UnsupportedCompression(f"compression {compression} is not known")
    try:
        return unpack(data, decompressed_bytes_max)
    except (cramjam.DecompressionError, zlib.error) as fault:
        raise InvalidBatch(f"the compressed records cannot be unpacked: {fault}") from fault


def _check_bound(size: int, decompressed_bytes_max: int) -> None:
    if size > decompressed_bytes_max:
        raise DecompressedTooLarge(f"the records may unpack to more than {decompressed_bytes_max} bytes")


def _gzip(data: Buffer) -> Buffer:
    return zlib.compress(data, GZIP_LEVEL, _GZIP_WINDOW_BITS)


def _gunzip(data: Buffer, decompressed_bytes_max: int) -> Buffer:
    """Gzip names its size only at its end, where it can lie: unpack until the bound."""
    parts: list[bytes] = []
    room = decompressed_bytes_max
    rest: Buffer = data
    while len(rest):
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        part = member.decompress(rest, room + 1)
        _check_bound(len(part), room)
        if not member.eof:
            raise InvalidBatch("the compressed records are cut short")
        room -= len(part)
        parts.append(part)
        rest = member.unused_data
    return b"".join(parts)


def _snappy(data: Buffer) -> Buffer:
    return memoryview(cramjam.snappy.compress_raw(data))


def _unsnappy(data: Buffer, decompressed_bytes_max: int) -> Buffer:
    if bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
        return _unsnappy_blocks(memoryview(data)[_XERIAL_HEADER_SIZE:], decompressed_bytes_max)
    return _unsnappy_block(data, decompressed_bytes_max)


def _unsnappy_blocks(data: memoryview, decompressed_bytes_max: int) -> Buffer:
    """Read what Java writes. The version after the magic is not looked at: some writers swap its bytes."""
    out = bytearray()
    at = 0
    while at < len(data):
        start = at + 4
        at = start + int.from_bytes(data[at:start])
        if at > len(data):
            raise InvalidBatch("the compressed records are cut short")
        out += _unsnappy_block(data[start:at], decompressed_bytes_max - len(out))
    return out


def _unsnappy_block(data: Buffer, decompressed_bytes_max: int) -> Buffer:
    """Raw Snappy begins with its size, and the library holds it to that."""
    _check_bound(cramjam.snappy.decompress_raw_len(data), decompressed_bytes_max)
    return memoryview(cramjam.snappy.decompress_raw(data))


def _lz4(data: Buffer) -> Buffer:
    frame = cramjam.lz4.Compressor(level=LZ4_LEVEL, content_checksum=False, block_linked=False)
    frame.compress(bytes(data))  # it takes nothing else
    return memoryview(frame.finish())


def _unlz4(data: Buffer, decompressed_bytes_max: int) -> Buffer:
    return _unpack_into(cramjam.lz4.decompress_into, data, lz4_bytes_max(data), decompressed_bytes_max)


def _zstd(data: Buffer) -> Buffer:
    return memoryview(cramjam.zstd.compress(data, ZSTD_LEVEL))


def _unzstd(data: Buffer, decompressed_bytes_max: int) -> Buffer:
    return _unpack_into(cramjam.zstd.decompress_into, data, zstd_bytes_max(data), decompressed_bytes_max)


def _unpack_into(
    unpack: Callable[[Buffer, bytearray], int], data: Buffer, size_max: int, decompressed_bytes_max: int
) -> Buffer:
    """Unpack into a buffer of the size that the blocks allow: a frame that lied about it does not fit."""
    _check_bound(size_max, decompressed_bytes_max)
    out = bytearray(size_max)
    return memoryview(out)[: unpack(data, out)]


_PACK: dict[int, Callable[[Buffer], Buffer]] = {
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
