"""The check of new batches: both codecs agree, what was encoded passes, and what passes can be read."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.model.errors import InvalidBatch, InvalidRecord
from flymq.record import _plain
from flymq.record.batch import encode_batch, parse_batch
from flymq.record.compression import Compression, compress, decompress, decompressed_bytes_bound
from flymq.record.framing import Framing, check_framing
from flymq.record.header import HEADER_SIZE, check_batch, renew_checksum
from flymq.record.shapes import Section
from flymq.storage.batch_validation import check_cost

_fast = pytest.importorskip("flymq.record._fast")

fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), fields), max_size=10).map(tuple)
times = st.integers(-1, 1 << 45)
records = st.lists(st.tuples(fields, fields, headers, times), min_size=1, max_size=30)

RECORDS = [
    (b"key", b"value", (("name", b"content"), ("größe", None), ("€𐍈", b"")), 1_000),
    (None, b"v" * 200, (), 1_000_000),
    (b"k" * 70, None, (("", b""),) * 3, 900),
    (b"", b"", (), -1),
]
PIECES = [
    b"\x00",
    b"\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x1f",
    b"\x80\x80\x80\x80\x00",
    b"\x80" * 5 + b"\x00",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\x80",
    b"\xe2\x82",
]
"""Awkward numbers, and bytes that look like UTF-8 but are not."""


def outcome(check: Any, *arguments: Any) -> Any:
    """Return what the check found, or the words with which it refused."""
    try:
        return check(*arguments)
    except InvalidBatch as refusal:
        return type(refusal), str(refusal), getattr(refusal, "indexes", None)


def mutate(data: bytes, chance: Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(5):
            case 0 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 1:
                piece = chance.choice(PIECES)
                out[at : at + chance.choice((0, len(piece)))] = piece
            case 2:
                del out[at : at + chance.randint(1, 9)]
            case 3:
                out[at:at] = out[at : at + chance.randint(1, 30)]
            case _:
                del out[max(at, len(out) - 20) :]
    return bytes(out)


@given(records, st.sampled_from(Compression))
def test_whatever_is_encoded_passes_with_its_latest_time_and_the_number_of_missing_keys(
    entries: list[Any], compression: Compression
) -> None:
    batch = encode_batch(entries, compression=compression, timestamp_ms=77)
    header = check_batch(batch)
    found = check_framing(batch, header, 1 << 20)
    assert found == Framing(header.max_timestamp, sum(key is None for key, *_ in entries))


@given(records)
def test_both_codecs_check_valid_records_alike(entries: list[Any]) -> None:
    payload, base_timestamp, _ = _fast.encode_records(entries, 0, 5)
    arguments = payload, len(entries), base_timestamp
    assert _fast.check_records(*arguments) == _plain.check_records(*arguments)


@pytest.mark.parametrize("seed", range(6))
def test_both_codecs_check_mutated_records_alike_and_readers_take_what_passes(seed: int) -> None:
    chance = Random(seed)
    payload = bytes(_plain.encode_records(RECORDS, 0, 5)[0])
    reasons = set()
    passed = 0
    for _ in range(3_000):
        mutated = mutate(payload, chance)
        count = chance.choice((4, 4, 4, 3, 5, 0, (1 << 31) - 1))
        base_timestamp = chance.choice((5, 5, 0, (1 << 63) - 1, -(1 << 63)))
        expected = outcome(_plain.check_records, mutated, count, base_timestamp)
        assert outcome(_fast.check_records, mutated, count, base_timestamp) == expected
        if isinstance(expected[0], int):
            passed += 1
            section = Section(mutated, count, 0, max(count - 1, 0), base_timestamp, None)
            assert len(_plain.parse_records([section], 0)) == count
        else:
            reasons.add(expected[1].split(": ")[-1])
            assert expected[0] in (InvalidBatch, InvalidRecord)
    assert passed > 50
    assert len(reasons) >= 9, reasons


@given(st.binary(max_size=300), st.integers(0, 40))
def test_both_codecs_check_noise_alike(payload: bytes, count: int) -> None:
    expected = outcome(_plain.check_records, payload, count, 0)
    assert outcome(_fast.check_records, payload, count, 0) == expected


@given(st.binary(max_size=6))
def test_both_codecs_accept_the_same_header_names(name: bytes) -> None:
    payload = record_with_header_name(name)
    expected = outcome(_plain.check_records, payload, 1, 0)
    assert outcome(_fast.check_records, payload, 1, 0) == expected


def test_both_codecs_know_every_short_sequence_of_utf8() -> None:
    for first in range(0x80, 0x100):
        for second in (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF):
            for rest in (b"", b"\x80", b"\xbf\x80", b"\x80\x41"):
                payload = record_with_header_name(bytes((first, second)) + rest)
                expected = outcome(_plain.check_records, payload, 1, 0)
                assert outcome(_fast.check_records, payload, 1, 0) == expected


def record_with_header_name(name: bytes) -> bytes:
    body = b"\x00\x00\x00\x01\x01\x02" + bytes((2 * len(name),)) + name + b"\x01"
    return bytes((2 * len(body),)) + body


@given(records, st.integers(1, 8))
def test_both_codecs_name_the_same_records_without_a_key(entries: list[Any], limit: int) -> None:
    payload, base_timestamp, _ = _fast.encode_records(entries, 0, 5)
    section = Section(payload, len(entries), 0, len(entries) - 1, base_timestamp, None)
    expected = [index for index, (key, *_) in enumerate(entries) if key is None][:limit]
    assert _fast.keyless_records(section, limit) == _plain.keyless_records(section, limit) == expected


PACKED = [each for each in Compression if each is not Compression.NONE]


@given(st.binary(max_size=2_000), st.sampled_from(PACKED))
def test_data_never_decompresses_to_more_than_its_bound(data: bytes, compression: Compression) -> None:
    packed = compress(data, compression)
    bound = decompressed_bytes_bound(packed, compression, 1 << 20)
    assert decompress(packed, compression, bound) == data
    assert len(data) <= bound


@pytest.mark.parametrize("compression", PACKED)
@pytest.mark.parametrize("seed", range(2))
def test_the_bound_of_mutated_data_holds_or_it_is_refused_by_name(compression: Compression, seed: int) -> None:
    chance = Random(seed)
    packed = bytes(compress(b"some text, and more of it; " * 200, compression))
    refused = 0
    for _ in range(400):
        mutated = mutate(packed, chance)
        try:
            bound = decompressed_bytes_bound(mutated, compression, 1 << 20)
            assert len(decompress(mutated, compression, bound)) <= bound
        except InvalidBatch:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("compression", Compression)
def test_mutated_batches_pass_as_records_that_can_be_read_or_are_refused_by_name(compression: Compression) -> None:
    chance = Random(compression)
    batch = bytes(encode_batch(RECORDS * 3, compression=compression))
    for _ in range(400):
        changed = bytearray(batch[:HEADER_SIZE] + mutate(batch[HEADER_SIZE:], chance))
        changed[8:12] = (len(changed) - 12).to_bytes(4)
        renew_checksum(changed, 0, len(changed))
        assert check_cost(changed) >= 0
        try:
            check_framing(changed, check_batch(changed), 1 << 20)
        except InvalidBatch:
            continue
        assert len(parse_batch(changed)) == 12


@given(records, st.integers(-5, 10), st.integers(-5, 10), st.integers(1, 8))
def test_both_codecs_name_the_same_untimely_records(
    entries: list[Any], earliest_ms: int, latest_ms: int, limit: int
) -> None:
    payload, base_timestamp, _ = _fast.encode_records(entries, 0, 5)
    section = Section(payload, len(entries), 0, len(entries) - 1, base_timestamp, None)
    found = _plain.untimely_records(section, earliest_ms, latest_ms, limit)
    assert _fast.untimely_records(section, earliest_ms, latest_ms, limit) == found
    times = [row.timestamp_ms for row in _plain.parse_records([section], 0)]
    assert (
        found
        == [index for index, time in enumerate(times) if time != -1 and not earliest_ms <= time <= latest_ms][:limit]
    )
