"""Garbage is answered with a named error, the same from both codecs, and never with anything else."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.model.errors import CorruptBatch, InvalidBatch
from flymq.record import _plain
from flymq.record.arrow import parse_columns
from flymq.record.batch import encode_batch, parse_batch
from flymq.record.compression import Compression, decompress
from flymq.record.control import Marker, MarkerType, encode_marker, parse_marker
from flymq.record.header import HEADER_SIZE, MAGIC, MAGIC_AT, check_batch, renew_checksum, split_batches
from flymq.record.reading import end_offset, first_record_at, parse_pairs, parse_records, parse_rows
from flymq.record.shapes import Section

_fast = pytest.importorskip("flymq.record._fast")

FUNCTIONS = ["parse_records", "parse_pairs", "parse_rows", "parse_columns"]
RECORDS = [
    (b"key", b"value", (("name", b"content"), ("größe", None)), 1_000),
    (None, b"v" * 200, (), 1_000_000),
    (b"k" * 70, None, (("", b""),) * 3, 900),
    (b"", b"", (), -1),
]
NUMBERS = [
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"\x80" * 9 + b"\x02",
]


def mutate(data: bytes, chance: Random) -> bytes:
    """Return `data` with a few bytes flipped, set to awkward numbers, taken out, doubled or cut off."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(out):
                out[at] = chance.randrange(256)
            case 2:
                number = chance.choice(NUMBERS)
                out[at : at + chance.choice((0, len(number)))] = number
            case 3:
                del out[at : at + chance.randint(1, 9)]
            case 4:
                out[at:at] = out[at : at + chance.randint(1, 30)]
            case _:
                del out[max(at, len(out) - 20) :]
    return bytes(out)


def outcome(parse: Callable[..., Any], *arguments: Any) -> Any:
    """Return what parsing gave, or the words with which it refused."""
    try:
        result = parse(*arguments)
    except InvalidBatch as refusal:
        return type(refusal), str(refusal)
    return [tuple(item) for item in result] if parse.__name__ == "parse_records" else result


@pytest.mark.parametrize("seed", range(4))
def test_both_codecs_refuse_mutated_records_alike(seed: int) -> None:
    chance = Random(seed)
    payload = bytes(_plain.encode_records(RECORDS, 0, 5)[0])
    refused = 0
    for _ in range(1_500):
        section = Section(
            payload=mutate(payload, chance),
            record_count=chance.choice((4, 4, 4, 3, 5, 0, 1 << 31)),
            base_offset=chance.choice((0, 70, (1 << 63) - 5)),
            last_offset_delta=chance.choice((3, 3, 4, 2)),
            base_timestamp=chance.choice((5, 0, (1 << 63) - 1, -(1 << 63))),
            append_time_ms=chance.choice((None, None, 9)),
        )
        sections = [section] * chance.choice((1, 2))
        start_offset = chance.choice((0, 0, 71, 1_000))
        for name in FUNCTIONS:
            expected = outcome(getattr(_plain, name), sections, start_offset)
            assert outcome(getattr(_fast, name), sections, start_offset) == expected
            refused += isinstance(expected, tuple) and isinstance(expected[0], type)
    assert refused > 1_000


@pytest.mark.parametrize("seed", range(2))
def test_both_codecs_give_a_mutated_batch_its_place_or_refuse_it_alike(seed: int) -> None:
    chance = Random(seed)
    batch = bytes(encode_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=0))
    kinds = set()
    for _ in range(1_500):
        changed = bytearray(mutate(batch, chance))
        if len(changed) >= HEADER_SIZE and chance.random() < 0.7:  # else hardly any gets past the checksum
            renew_checksum(changed, 0, len(changed))
        place = (chance.choice((0, 0, 1, 61)), chance.choice((0, 5, (1 << 63) - 1)), chance.choice((-1, 0, 1 << 30)))
        expected = outcome(_plain.assign_batch, changed, *place)
        assert outcome(_fast.assign_batch, changed, *place) == expected
        kinds.add(expected[0] if isinstance(expected[0], type) else "assigned")
    assert {"assigned", InvalidBatch, CorruptBatch} <= kinds


@given(st.binary(max_size=300), st.integers(0, 40))
def test_both_codecs_treat_noise_alike(payload: bytes, record_count: int) -> None:
    section = Section(payload, record_count, 0, max(record_count - 1, 0), 0, None)
    for name in FUNCTIONS:
        expected = outcome(getattr(_plain, name), [section], 0)
        assert outcome(getattr(_fast, name), [section], 0) == expected


def read_everything(run: bytes) -> None:
    """Put `run` through every reader; what they raise must be a refusal by name."""
    for read in (
        check_batch,
        parse_batch,
        parse_marker,
        parse_records,
        parse_pairs,
        parse_rows,
        parse_columns,
        end_offset,
        lambda data: first_record_at(data, 1_000),
        lambda data: parse_records(data, start_offset=2, aborted=[(5, 0)]),
        lambda data: list(split_batches(data)),
    ):
        try:
            read(run)
        except InvalidBatch:
            continue


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("sealed", [True, False], ids=["with a right checksum", "with a wrong checksum"])
def test_every_reader_refuses_mutated_batches_by_name(compression: Compression, sealed: bool) -> None:
    chance = Random(compression)
    batch = bytes(encode_batch(RECORDS * 3, compression=compression, producer_id=5, transactional=True))
    for _ in range(250):
        mutated = bytearray(mutate(batch, chance))
        if sealed and len(mutated) >= HEADER_SIZE:
            mutated[8:12] = (len(mutated) - 12).to_bytes(4)
            mutated[MAGIC_AT] = MAGIC
            renew_checksum(mutated, 0, len(mutated))
        read_everything(bytes(mutated))


def test_every_reader_refuses_mutated_markers_by_name() -> None:
    chance = Random(1)
    batch = bytes(encode_marker(Marker(MarkerType.ABORT, 5, 0, 0, 0)))
    for _ in range(500):
        mutated = bytearray(batch[:HEADER_SIZE] + mutate(batch[HEADER_SIZE:], chance))
        mutated[8:12] = (len(mutated) - 12).to_bytes(4)
        renew_checksum(mutated, 0, len(mutated))
        read_everything(bytes(mutated))


@given(st.binary(max_size=200))
def test_every_reader_refuses_noise_by_name(noise: bytes) -> None:
    read_everything(noise)


@pytest.mark.parametrize("compression", [item for item in Compression if item is not Compression.NONE])
@pytest.mark.parametrize("seed", range(2))
def test_mutated_compressed_data_is_refused_by_name(compression: Compression, seed: int) -> None:
    chance = Random(seed)
    packed = bytes(encode_batch(RECORDS * 20, compression=compression))[HEADER_SIZE:]
    refused = 0
    for _ in range(400):
        try:
            unpacked = decompress(mutate(packed, chance), compression, 1 << 20)
        except InvalidBatch:
            refused += 1
        else:
            assert len(unpacked) <= 1 << 20
    assert refused > 100
