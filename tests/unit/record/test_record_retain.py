"""Thinning a batch out, as compaction does."""

from __future__ import annotations

import pytest

from flymq.model.errors import CorruptBatch
from flymq.record.batch import encode_batch, parse_batch, retain
from flymq.record.compression import Compression
from flymq.record.control import Marker, MarkerType, encode_marker, parse_marker
from flymq.record.header import HEADER_SIZE, assign, check_batch, parse_header, set_log_append_time
from flymq.record.record import Record

pytestmark = pytest.mark.usefixtures("twin")

HEADERS = (("h", b"x" * 30),)


@pytest.fixture(params=Compression)
def batch(request: pytest.FixtureRequest) -> bytearray:
    """Ten records at offset 100 on, from a transactional producer."""
    records = [(b"key-%d" % index, b"value" * 9, HEADERS, 1_000 + index) for index in range(10)]
    made = encode_batch(
        records, compression=request.param, producer_id=5, producer_epoch=1, base_sequence=30, transactional=True
    )
    assign(made, 0, base_offset=100, leader_epoch=3)
    return made


def is_even(record: Record) -> bool:
    return record.offset % 2 == 0


def test_what_is_kept_keeps_its_offset_its_time_and_its_place(batch: bytearray) -> None:
    before = parse_header(batch)
    thinned = retain(batch, 0, is_even)
    assert parse_batch(thinned) == [record for record in parse_batch(batch) if is_even(record)]
    after = check_batch(thinned)
    assert after._replace(length=0, crc=0) == before._replace(length=0, crc=0, record_count=5)


def test_a_batch_that_lost_all_records_still_says_what_it_covered(batch: bytearray) -> None:
    before = parse_header(batch)
    emptied = retain(batch, 0, lambda record: False)
    assert len(emptied) == HEADER_SIZE
    assert parse_batch(emptied) == []
    after = check_batch(emptied)
    assert (after.base_offset, after.last_offset, after.record_count) == (100, 109, 0)
    assert (after.producer_id, after.last_sequence) == (before.producer_id, before.last_sequence)
    assert after.max_timestamp == before.max_timestamp
    assert retain(emptied, 0, is_even) == emptied


def test_a_batch_that_keeps_all_its_records_stays_the_same_bytes(batch: bytearray) -> None:
    run = b"before" + batch + b"after"
    assert retain(run, len(b"before"), lambda record: True) == batch


def test_a_delete_horizon_is_set_without_changing_the_records_times(batch: bytearray) -> None:
    marked = retain(batch, 0, lambda record: True, delete_horizon_ms=1 << 41)
    assert check_batch(marked).delete_horizon_ms == 1 << 41
    assert parse_header(batch).delete_horizon_ms is None
    assert parse_batch(marked) == parse_batch(batch)


def test_a_delete_horizon_outlives_the_next_compaction(batch: bytearray) -> None:
    marked = retain(batch, 0, is_even, delete_horizon_ms=123)
    again = retain(marked, 0, lambda record: record.offset > 104)
    assert check_batch(again).delete_horizon_ms == 123
    assert [record.offset for record in parse_batch(again)] == [106, 108]
    assert [record.timestamp_ms for record in parse_batch(again)] == [1_006, 1_008]


def test_the_time_of_appending_stays_that_of_the_batch(batch: bytearray) -> None:
    set_log_append_time(batch, 0, parse_header(batch), 77_000)
    thinned = retain(batch, 0, is_even)
    assert check_batch(thinned).max_timestamp == 77_000
    assert {record.timestamp_ms for record in parse_batch(thinned)} == {77_000}


def test_a_marker_keeps_its_meaning_under_a_delete_horizon() -> None:
    marker = Marker(MarkerType.COMMIT, producer_id=5, producer_epoch=1, coordinator_epoch=8, timestamp_ms=900)
    marked = retain(encode_marker(marker), 0, lambda record: True, delete_horizon_ms=5_000)
    assert parse_marker(marked) == marker
    assert check_batch(marked).delete_horizon_ms == 5_000


def test_a_damaged_batch_is_not_rewritten(batch: bytearray) -> None:
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        retain(batch, 0, is_even)
