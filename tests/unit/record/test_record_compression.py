"""Packing and unpacking: what others write is read, what others read is written, and bombs are refused."""

from __future__ import annotations

import gzip
import random

import lz4.block
import lz4.frame
import pytest
import snappy
import zstandard
from aiokafka import codec as aiokafka_codec

from flymq.model.errors import DecompressedTooLarge, InvalidBatch, UnsupportedCompression
from flymq.record.compression import Compression, compress, compression_named, decompress

PACKED = [compression for compression in Compression if compression is not Compression.NONE]
TEXT = b"".join(b"%d: the quick brown fox, " % number for number in range(20_000))
NOISE = random.Random(3).randbytes(200_000)


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("data", [TEXT, NOISE, b"x", bytes(1 << 20)], ids=["text", "noise", "one byte", "zeros"])
def test_what_is_packed_comes_back(compression: Compression, data: bytes) -> None:
    assert decompress(compress(data, compression), compression) == data


@pytest.mark.parametrize("compression", Compression)
def test_any_buffer_can_be_packed_and_unpacked(compression: Compression) -> None:
    packed = compress(memoryview(bytearray(TEXT)), compression)
    assert decompress(memoryview(bytearray(packed)), compression) == TEXT


def test_other_libraries_read_what_we_write() -> None:
    assert gzip.decompress(compress(TEXT, Compression.GZIP)) == TEXT
    assert snappy.uncompress(bytes(compress(TEXT, Compression.SNAPPY))) == TEXT
    assert lz4.frame.decompress(compress(TEXT, Compression.LZ4)) == TEXT
    assert zstandard.decompress(bytes(compress(TEXT, Compression.ZSTD))) == TEXT


def test_lz4_blocks_are_independent_since_java_reads_no_others() -> None:
    info = lz4.frame.get_frame_info(bytes(compress(TEXT, Compression.LZ4)))
    assert info["block_linked"] is False


def test_zstd_frames_declare_their_size_since_some_clients_need_it() -> None:
    frame = zstandard.get_frame_parameters(bytes(compress(TEXT, Compression.ZSTD)))
    assert frame.content_size == len(TEXT)


def test_gzip_of_several_members_is_read() -> None:
    assert decompress(gzip.compress(b"one, ") + gzip.compress(b"two"), Compression.GZIP) == b"one, two"


def test_snappy_is_read_raw_and_in_the_blocks_that_java_writes() -> None:
    assert decompress(snappy.compress(TEXT), Compression.SNAPPY) == TEXT
    blocks = aiokafka_codec.snappy_encode(TEXT, xerial_compatible=True)
    assert blocks.startswith(b"\x82SNAPPY\0")
    assert decompress(blocks, Compression.SNAPPY) == TEXT
    swapped = blocks[:8] + bytes.fromhex("01000000 01000000") + blocks[16:]
    assert decompress(swapped, Compression.SNAPPY) == TEXT


@pytest.mark.parametrize("store_size", [True, False])
@pytest.mark.parametrize("block_linked", [True, False])
@pytest.mark.parametrize("block_size", [lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB])
def test_lz4_frames_of_all_kinds_are_read(store_size: bool, block_linked: bool, block_size: int) -> None:
    frame = lz4.frame.compress(
        TEXT + NOISE,
        store_size=store_size,
        block_linked=block_linked,
        block_size=block_size,
        block_checksum=True,
        content_checksum=True,
    )
    assert decompress(frame, Compression.LZ4) == TEXT + NOISE


@pytest.mark.parametrize("write_content_size", [True, False])
@pytest.mark.parametrize("write_checksum", [True, False])
@pytest.mark.parametrize("data", [b"", b"x" * 100, b"x" * 300, TEXT + NOISE, bytes(1 << 20)])
def test_zstd_frames_of_all_kinds_are_read(write_content_size: bool, write_checksum: bool, data: bytes) -> None:
    writer = zstandard.ZstdCompressor(write_content_size=write_content_size, write_checksum=write_checksum)
    stream = writer.compressobj()
    for frame in (writer.compress(data), stream.compress(data) + stream.flush()):
        assert decompress(frame, Compression.ZSTD) == data


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_frames_in_a_row_and_frames_to_skip_are_read(compression: Compression) -> None:
    frame = bytes(compress(TEXT, compression))
    skipped = bytes.fromhex("502a4d18 03000000") + b"abc"
    assert decompress(skipped + frame + skipped + frame, compression) == TEXT + TEXT


@pytest.mark.parametrize("compression", PACKED)
def test_unpacking_is_refused_above_the_bound_and_done_up_to_it(compression: Compression) -> None:
    packed = compress(TEXT, compression)
    room = 64 << 10 if compression is Compression.LZ4 else 0  # our LZ4 frames are bounded by their blocks
    assert decompress(packed, compression, len(TEXT) + room) == TEXT
    with pytest.raises(DecompressedTooLarge):
        decompress(packed, compression, len(TEXT) - 1)


@pytest.mark.parametrize("compression", PACKED)
def test_the_bound_holds_for_all_parts_together(compression: Compression) -> None:
    part = bytes(compress(bytes(100_000), compression))
    if compression is Compression.SNAPPY:
        block = len(part).to_bytes(4) + part
        parts = b"\x82SNAPPY\0" + bytes(8) + block * 20
    else:
        parts = part * 20
    assert len(decompress(parts, compression, 4_000_000)) == 2_000_000
    with pytest.raises(DecompressedTooLarge):
        decompress(parts, compression, 1_000_000)


def zstd_bomb(declared: bytes = b"") -> bytes:
    """Return 160 KB that would unpack to 5 GB: 128 KB of one repeated byte in each block of 4 bytes."""
    repeated, last = 1 << 1, 1
    size = 128 << 10
    block = (size << 3 | repeated).to_bytes(3, "little") + b"x"
    end = (repeated | last).to_bytes(3, "little") + b"x"
    header = b"\x00\x58" if not declared else b"\x80\x58" + declared
    return bytes.fromhex("28b52ffd") + header + block * 40_000 + end


def lz4_bomb(declared: int = 0) -> bytes:
    """Return 1 MB that would unpack to 256 MB: 4 MB of zeros in each block."""
    packed = lz4.block.compress(bytes(4 << 20), store_size=False)
    block = len(packed).to_bytes(4, "little") + packed
    frame = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False)
    return frame.begin(declared) + block * 64 + bytes(4)


@pytest.mark.parametrize(
    ("compression", "bomb"),
    [
        (Compression.ZSTD, zstd_bomb()),
        (Compression.LZ4, lz4_bomb()),
        (Compression.SNAPPY, bytes.fromhex("ffffffff0f") + b"\0x"),
        (Compression.SNAPPY, b"\x82SNAPPY\0" + bytes(8) + (7).to_bytes(4) + bytes.fromhex("ffffffff0f") + b"\0x"),
        (Compression.GZIP, gzip.compress(bytes(129 << 20), 1)),
    ],
    ids=["zstd", "lz4", "snappy", "snappy blocks", "gzip"],
)
def test_a_bomb_is_refused(compression: Compression, bomb: bytes) -> None:
    with pytest.raises(DecompressedTooLarge):
        decompress(bomb, compression)


@pytest.mark.parametrize(
    ("compression", "liar"),
    [
        (Compression.ZSTD, zstd_bomb(declared=(1_000).to_bytes(4, "little"))),
        (Compression.LZ4, lz4_bomb(declared=1_000)),
    ],
    ids=["zstd", "lz4"],
)
def test_a_bomb_that_declares_a_small_size_gets_no_more_than_that(compression: Compression, liar: bytes) -> None:
    with pytest.raises(InvalidBatch):
        decompress(liar, compression)


@pytest.mark.parametrize("compression", PACKED)
def test_what_is_cut_short_is_refused(compression: Compression) -> None:
    packed = bytes(compress(TEXT[:5_000], compression))
    for size in [*range(1, 40), len(packed) // 2, len(packed) - 1]:
        with pytest.raises(InvalidBatch):
            decompress(packed[:size], compression)


@pytest.mark.parametrize("compression", PACKED)
def test_noise_is_refused(compression: Compression) -> None:
    chance = random.Random(5)
    for size in (1, 4, 5, 20, 400):
        with pytest.raises(InvalidBatch):
            decompress(b"\xff\xff" + chance.randbytes(size), compression)


@pytest.mark.parametrize("compression", [5, 6, 7])
def test_a_compression_that_is_not_known_is_refused(compression: int) -> None:
    with pytest.raises(UnsupportedCompression):
        decompress(b"data", compression)


def test_compressions_are_found_by_name() -> None:
    assert [compression_named(name) for name in ("none", "gzip", "snappy", "LZ4", "zstd")] == list(Compression)
    with pytest.raises(UnsupportedCompression):
        compression_named("brotli")
