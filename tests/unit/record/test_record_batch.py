"""Records to a batch and back."""

from __future__ import annotations

import copy
import pickle
from types import ModuleType
from typing import Any

import pytest

from flymq.model.delivery import TimestampType
from flymq.model.errors import EmptyBatch, InvalidBatch, MessageTooLarge
from flymq.record.batch import encode_batch, parse_batch
from flymq.record.compression import Compression
from flymq.record.header import assign, check_batch, renew_checksum

pytestmark = pytest.mark.usefixtures("twin")

HEADERS = (("trace", b"\x01\x02"), ("trace", None), ("größe", b""))


def test_records_come_back_as_they_were(twin: ModuleType) -> None:
    records = [
        twin.Record(b"key", b"value", HEADERS, 1_000),
        twin.Record(None, b"no key", (), 999),
        twin.Record(b"tombstone", None, (), 1_001),
        twin.Record(b"", b"", (), 1_000),
    ]
    batch = encode_batch(records)
    assign(batch, 0, base_offset=70, leader_epoch=1)
    expected = [
        twin.Record(record.key, record.value, record.headers, record.timestamp_ms, 70 + index)
        for index, record in enumerate(records)
    ]
    assert parse_batch(batch) == expected
    header = check_batch(batch)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_001)


@pytest.mark.parametrize("compression", Compression)
def test_every_compression_gives_the_records_back(compression: Compression, twin: ModuleType) -> None:
    pairs = [(b"key-%d" % index, b"value " * 20) for index in range(50)]
    batch = encode_batch(pairs, timestamp_ms=5, compression=compression)
    assert check_batch(batch).compression == compression
    assert parse_batch(batch) == [twin.Record(*pair, (), 5, offset) for offset, pair in enumerate(pairs)]


def test_records_that_do_not_get_smaller_are_left_as_they_are() -> None:
    batch = encode_batch([(None, b"x")], compression=Compression.ZSTD)
    assert check_batch(batch).compression == Compression.NONE
    assert batch == encode_batch([(None, b"x")])


def test_tuples_stand_for_records(twin: ModuleType) -> None:
    as_tuples: list[Any] = [(b"k", b"v"), (b"k", b"v", [("h", b"x")]), (b"k", b"v", (), 9)]
    as_records = [
        twin.Record(b"k", b"v", (), 7),
        twin.Record(b"k", b"v", (("h", b"x"),), 7),
        twin.Record(b"k", b"v", (), 9),
    ]
    assert encode_batch(as_tuples, timestamp_ms=7) == encode_batch(as_records)
    assert encode_batch(iter(as_tuples), timestamp_ms=7) == encode_batch(as_records)


def test_a_record_without_a_time_gets_the_one_given_for_the_batch(twin: ModuleType) -> None:
    batch = encode_batch([twin.Record(b"k", b"v"), twin.Record(b"k", b"v", (), 20)], timestamp_ms=10)
    assert [record.timestamp_ms for record in parse_batch(batch)] == [10, 20]


def test_times_before_the_first_record_s_are_kept() -> None:
    times = [5_000, 0, 1 << 40, 4_999]
    batch = encode_batch([(None, b"", (), time_ms) for time_ms in times])
    assert [record.timestamp_ms for record in parse_batch(batch)] == times
    assert check_batch(batch).max_timestamp == 1 << 40


def test_with_log_append_time_all_records_have_the_time_of_the_batch() -> None:
    batch = encode_batch(
        [(None, b"a", (), 1), (None, b"b", (), 2)], timestamp_ms=50, timestamp_type=TimestampType.LOG_APPEND
    )
    assert check_batch(batch).max_timestamp == 50
    assert [record.timestamp_ms for record in parse_batch(batch)] == [50, 50]


def test_a_batch_without_records_is_refused() -> None:
    with pytest.raises(EmptyBatch):
        encode_batch([])


def test_a_batch_of_two_gibibytes_is_refused() -> None:
    half = bytes(1 << 30)  # never touched, so it costs no memory
    with pytest.raises(MessageTooLarge):
        encode_batch([(None, half), (None, half)])


@pytest.mark.parametrize(
    "record",
    [
        ("key", b"value"),
        (b"key", "value"),
        (b"key", 5),
        (b"key",),
        (b"key", b"value", (), 5, 5),
        b"value",
        None,
        (b"key", b"value", {"h": b"x"}),
        (b"key", b"value", [("h",)]),
        (b"key", b"value", [(b"h", b"x")]),
        (b"key", b"value", [("h", "x")]),
        (b"key", b"value", [["h", b"x"]]),
        (b"key", b"value", (), "now"),
        (b"key", b"value", (), None),
    ],
)
def test_what_is_no_record_is_a_type_error(record: Any) -> None:
    with pytest.raises(TypeError):
        encode_batch([(b"fine", b"fine"), record])


@pytest.mark.parametrize("time_ms", [1 << 63, -(1 << 63) - 1, 1 << 80])
def test_a_time_that_does_not_fit_into_64_bits_is_refused(time_ms: int, twin: ModuleType) -> None:
    with pytest.raises(InvalidBatch):
        encode_batch([(None, b"", (), time_ms)])
    with pytest.raises(InvalidBatch):
        encode_batch([twin.Record(None, b"", (), time_ms)])
    with pytest.raises(InvalidBatch):
        encode_batch([(None, b"")], timestamp_ms=time_ms)


def test_times_too_far_apart_for_one_batch_are_refused() -> None:
    with pytest.raises(InvalidBatch):
        encode_batch([(None, b"", (), -(1 << 62)), (None, b"", (), (1 << 63) - 1)])


def test_offsets_beyond_63_bits_are_refused() -> None:
    batch = encode_batch([(None, b"a"), (None, b"b")])
    assign(batch, 0, base_offset=(1 << 63) - 1, leader_epoch=0)
    with pytest.raises(InvalidBatch):
        parse_batch(batch)


def test_bytes_behind_the_last_record_are_refused() -> None:
    batch = encode_batch([(None, b"a"), (None, b"b")])
    batch[57:61] = (1).to_bytes(4)  # the count says one record less
    renew_checksum(batch, 0, len(batch))
    with pytest.raises(InvalidBatch, match="bytes are left"):
        parse_batch(batch)


def test_a_batch_is_found_behind_others(twin: ModuleType) -> None:
    first, second = encode_batch([(None, b"first")]), encode_batch([(None, b"second")])
    assert parse_batch(first + second, len(first)) == [twin.Record(None, b"second", (), -1, 0)]


def test_a_record_is_a_value(twin: ModuleType) -> None:
    record = twin.Record(b"k", b"v", (("h", None),), 5, 6)
    same = twin.Record(key=b"k", value=b"v", headers=(("h", None),), timestamp_ms=5, offset=6)
    assert record == same
    assert hash(record) == hash(same)
    assert record != twin.Record(b"k", b"v", (("h", None),), 5, 7)
    assert record != (b"k", b"v", (("h", None),), 5, 6)
    assert repr(record) == "Record(key=b'k', value=b'v', headers=(('h', None),), timestamp_ms=5, offset=6)"
    assert tuple(record) == (b"k", b"v", (("h", None),), 5, 6)
    assert pickle.loads(pickle.dumps(record)) == record
    assert copy.copy(record) == record
    with pytest.raises(AttributeError):
        record.key = b"other"
    match record:
        case twin.Record(key, value):
            assert (key, value) == (b"k", b"v")
        case _:
            pytest.fail("a record takes part in pattern matching")
