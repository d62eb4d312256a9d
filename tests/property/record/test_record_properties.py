"""Whatever the records: they come back, and the compiled codec and the plain one cannot be told apart."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.model.errors import InvalidBatch
from flymq.record import _plain
from flymq.record.batch import encode_batch, parse_batch, retain
from flymq.record.compression import Compression
from flymq.record.header import HEADER_SIZE, assign, parse_header
from flymq.record.partitioning import partition_for_key
from flymq.record.record import Record
from flymq.record.shapes import RecordColumns, Section

_fast = pytest.importorskip("flymq.record._fast")

fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), fields), max_size=10).map(tuple)
times = st.integers(-1, 1 << 45)
records = st.lists(st.tuples(fields, fields, headers, times), min_size=1, max_size=30)


def section_of(entries: list[Any]) -> Section:
    payload, base_timestamp, _ = _fast.encode_records(entries, 0, 5)
    return Section(payload, len(entries), 1_000, len(entries) - 1, base_timestamp, None)


def record_columns_of(entries: list[Any]) -> RecordColumns:
    read = _plain.parse_columns([section_of(entries)] if entries else [], 0)
    return RecordColumns(
        read.row_count,
        read.value,
        read.key,
        read.timestamp_ms,
        read.header_ends,
        read.header_count,
        read.header_name,
        read.header_value,
    )


@given(records, st.sampled_from(Compression), st.integers(0, 1 << 62))
def test_records_come_back_from_a_batch(entries: list[Any], compression: Compression, base_offset: int) -> None:
    batch = encode_batch(entries, compression=compression, timestamp_ms=77)
    assign(batch, 0, base_offset=base_offset, leader_epoch=0)
    expected = [
        Record(key, value, own_headers, 77 if time_ms == -1 else time_ms, base_offset + index)
        for index, (key, value, own_headers, time_ms) in enumerate(entries)
    ]
    assert parse_batch(batch) == expected
    header = parse_header(batch)
    assert header.base_timestamp == expected[0].timestamp_ms
    assert header.max_timestamp == max(record.timestamp_ms for record in expected)


@given(records, st.integers(0, 100))
def test_both_codecs_write_the_same_bytes(entries: list[Any], headroom: int) -> None:
    written = _fast.encode_records(entries, headroom, 5)
    assert written == _plain.encode_records(entries, headroom, 5)
    as_fast = [_fast.Record(*entry) for entry in entries]
    as_plain = [_plain.Record(*entry) for entry in entries]
    assert _fast.encode_records(as_fast, headroom, 5) == written
    assert _plain.encode_records(as_plain, headroom, 5) == written


@given(records, st.data())
def test_rows_of_columns_become_the_bytes_of_their_records(entries: list[Any], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(entries) - 1), min_size=1, max_size=40))
    columns = record_columns_of(entries)
    expected = _plain.encode_records([entries[row] for row in rows], 61, 5)
    for codec in (_fast, _plain):
        assert codec.encode_columns(columns, array("q", rows).tobytes(), 61, 5) == expected


@given(st.lists(fields), st.integers(1, 50))
def test_both_codecs_hash_keys_to_their_partitions(keys: list[bytes | None], partition_count: int) -> None:
    columns = record_columns_of([(key, b"") for key in keys])
    for codec in (_fast, _plain):
        hashes = array("i", bytes(codec.hash_keys(columns.key, len(keys))))
        for key, number in zip(keys, hashes, strict=True):
            assert number == -1 if key is None else number % partition_count == partition_for_key(key, partition_count)


@given(records, st.integers(990, 1_040))
def test_both_codecs_read_the_same(entries: list[Any], start_offset: int) -> None:
    sections = [section_of(entries), section_of(entries)._replace(base_offset=2_000, append_time_ms=9)]
    read = _fast.parse_records(sections, start_offset)
    assert list(map(tuple, read)) == list(map(tuple, _plain.parse_records(sections, start_offset)))
    assert _fast.parse_pairs(sections, start_offset) == [(record.key, record.value) for record in read]
    assert _plain.parse_pairs(sections, start_offset) == [(record.key, record.value) for record in read]
    rows = [(record.offset, record.timestamp_ms, record.key, record.value) for record in read]
    assert _fast.parse_rows(sections, start_offset) == _plain.parse_rows(sections, start_offset) == rows
    assert _fast.parse_columns(sections, start_offset) == _plain.parse_columns(sections, start_offset)


@given(records, st.integers(0, 2**30 - 1), st.sampled_from(Compression), st.none() | st.integers(0, 1 << 45))
def test_thinning_a_batch_changes_nothing_but_what_is_left(
    entries: list[Any], chosen: int, compression: Compression, horizon_ms: int | None
) -> None:
    batch = encode_batch(entries, compression=compression)
    assign(batch, 0, base_offset=500, leader_epoch=1)
    thinned = retain(batch, 0, lambda record: bool(chosen >> (record.offset - 500) & 1), delete_horizon_ms=horizon_ms)
    assert parse_batch(thinned) == [record for record in parse_batch(batch) if chosen >> (record.offset - 500) & 1]
    assert parse_header(thinned).last_offset == parse_header(batch).last_offset
    assert parse_header(thinned).max_timestamp == parse_header(batch).max_timestamp
    assert parse_header(thinned).delete_horizon_ms == horizon_ms


@given(st.lists(st.tuples(fields, fields, headers, times, st.integers(0, 1 << 30)), max_size=20))
def test_both_codecs_keep_offsets_and_times_alike(entries: list[Any]) -> None:
    kept = _fast.encode_kept([_fast.Record(*entry) for entry in entries], HEADER_SIZE, 7, 1 << 40)
    assert kept == _plain.encode_kept([_plain.Record(*entry) for entry in entries], HEADER_SIZE, 7, 1 << 40)


@given(st.binary(max_size=300))
def test_both_codecs_hash_a_key_alike(key: bytes) -> None:
    assert _fast.murmur2(key) == _plain.murmur2(key)


few_keys = st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 40])
keyed = st.lists(st.tuples(few_keys, fields, headers, times), min_size=1, max_size=30)


@given(st.lists(keyed, min_size=1, max_size=5), st.booleans(), times)
def test_both_codecs_keep_the_same_records_of_each_key(
    batches: list[list[Any]], drop_tombstones: bool, base_timestamp: int
) -> None:
    sections, base_offset = [], 0
    for entries in batches:
        sections.append(section_of(entries)._replace(base_offset=base_offset))
        base_offset += len(entries)
    fast, plain = _fast.LastOffsets(), _plain.LastOffsets()
    for section in sections:
        fast.add(section)
        plain.add(section)
    assert len(fast) == len(plain)
    for section in sections:
        assert fast.count_kept(section, drop_tombstones) == plain.count_kept(section, drop_tombstones)
        for base in (section.base_timestamp, base_timestamp):
            kept = fast.retain(section, drop_tombstones, 7, base)
            assert kept == plain.retain(section, drop_tombstones, 7, base)
            count, _ = plain.count_kept(section, drop_tombstones)
            left = _fast.parse_records([section._replace(payload=kept[7:], record_count=count, base_timestamp=base)], 0)
            read = {record.offset: record for record in _fast.parse_records([section], 0)}
            assert all(record == read[record.offset] for record in left)


@given(st.lists(keyed, min_size=1, max_size=1), st.binary(min_size=1, max_size=20), st.integers(0, 200))
def test_both_codecs_refuse_the_same_batches_and_take_none_of_their_keys(
    batches: list[list[Any]], noise: bytes, at: int
) -> None:
    section = section_of(batches[0])
    payload = bytearray(section.payload)
    payload[at : at + len(noise)] = noise
    section = section._replace(payload=payload)
    fast, plain = _fast.LastOffsets(), _plain.LastOffsets()
    for call in (
        lambda last: last.add(section),
        lambda last: last.count_kept(section, False),
        lambda last: last.retain(section, False, 0, 9),
    ):
        assert outcome(call, fast) == outcome(call, plain)
    assert len(fast) == len(plain)


def outcome(call: Any, codec: Any) -> Any:
    try:
        return call(codec)
    except InvalidBatch as error:
        return error.message


@given(records, times, st.integers(0, 1_040))
def test_both_codecs_find_the_same_record_by_time(entries: list[Any], time_ms: int, start_offset: int) -> None:
    section = section_of(entries)
    assert _fast.find_time(section, time_ms, start_offset) == _plain.find_time(section, time_ms, start_offset)
    assert _fast.find_latest_time(section, start_offset) == _plain.find_latest_time(section, start_offset)


def test_many_keys_have_their_own_offsets() -> None:
    last = _fast.LastOffsets()
    count = 20_000
    for base_offset in (0, count):
        section = section_of([(b"%d" % number, b"v", (), 5) for number in range(count)])
        last.add(section._replace(base_offset=base_offset))
    assert len(last) == count
    assert last.count_kept(section._replace(base_offset=0), False) == (0, 0)
    assert last.count_kept(section._replace(base_offset=count), False) == (count, 0)


def test_digests_of_keys_are_the_published_ones_of_siphash() -> None:
    secrets = 0x0706050403020100, 0x0F0E0D0C0B0A0908
    assert _fast.sip_hash(b"", *secrets).hex() == "a3817f04ba25a8e66df67214c7550293"
    assert _fast.sip_hash(bytes(range(15)), *secrets).hex() == "5493e99933b0a8117e08ec0f97cfc3d9"
