"""Reading a run of batches."""

from __future__ import annotations

import pytest

from flymq.model.errors import CorruptBatch, DecompressedTooLarge
from flymq.record.batch import encode_batch
from flymq.record.compression import Compression
from flymq.record.control import Marker, MarkerType, encode_marker
from flymq.record.header import assign
from flymq.record.reading import end_offset, first_record_at, parse_pairs, parse_records, parse_rows

pytestmark = pytest.mark.usefixtures("twin")

Batch = tuple[bytearray, int]
"""A batch and how many offsets it takes."""


def data(*values: bytes, producer_id: int = -1, transactional: bool = False, time_ms: int = 0) -> Batch:
    batch = encode_batch(
        [(b"k", value) for value in values],
        timestamp_ms=time_ms,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        transactional=transactional,
    )
    return batch, len(values)


def marker(kind: MarkerType, producer_id: int) -> Batch:
    return encode_marker(Marker(kind, producer_id, 0, 0, 0)), 1


def log(*batches: Batch, base_offset: int = 0) -> bytes:
    run = bytearray()
    for batch, count in batches:
        assign(batch, 0, base_offset=base_offset, leader_epoch=0)
        run += batch
        base_offset += count
    return bytes(run)


def values(run: bytes, **options: object) -> list[bytes | None]:
    read = [value for _, value in parse_pairs(run, **options)]  # type: ignore[arg-type]
    assert [record.value for record in parse_records(run, **options)] == read  # type: ignore[arg-type]
    assert [value for *_, value in parse_rows(run, **options)] == read  # type: ignore[arg-type]
    return read


def test_a_run_gives_all_its_records_in_order() -> None:
    run = log(data(b"a", b"b", time_ms=5), data(b"c", time_ms=6), base_offset=40)
    assert parse_rows(run) == [(40, 5, b"k", b"a"), (41, 5, b"k", b"b"), (42, 6, b"k", b"c")]
    assert parse_pairs(run) == [(b"k", b"a"), (b"k", b"b"), (b"k", b"c")]
    assert [record.offset for record in parse_records(run)] == [40, 41, 42]


def test_reading_starts_in_the_middle_of_a_batch() -> None:
    run = log(data(b"a", b"b"), data(b"c", b"d", b"e"), base_offset=40)
    assert values(run, start_offset=43) == [b"d", b"e"]
    assert values(run, start_offset=42) == [b"c", b"d", b"e"]
    assert values(run, start_offset=45) == []


def test_a_batch_cut_off_at_the_end_is_left_for_the_next_read() -> None:
    run = log(data(b"a"), data(b"b"))
    assert values(run[:-1]) == [b"a"]
    assert values(run[:30]) == []
    assert end_offset(run[:-1]) == 1
    assert end_offset(run) == 2
    assert end_offset(b"") is None


def test_the_next_read_starts_after_a_batch_that_showed_nothing() -> None:
    run = log(data(b"a"), marker(MarkerType.COMMIT, 5))
    assert values(run) == [b"a"]
    assert end_offset(run) == 2


def test_a_damaged_batch_stops_the_read_by_name() -> None:
    run = bytearray(log(data(b"a"), data(b"b")))
    run[-1] ^= 1
    with pytest.raises(CorruptBatch):
        parse_records(run)


def test_any_buffer_can_be_read() -> None:
    run = log(data(b"a"))
    assert values(memoryview(run)) == values(bytearray(run)) == [b"a"]  # type: ignore[arg-type]


def test_an_aborted_transaction_is_left_out() -> None:
    run = log(
        data(b"aborted 1", producer_id=5, transactional=True),
        data(b"plain"),
        data(b"other", producer_id=6, transactional=True),
        data(b"aborted 2", producer_id=5, transactional=True),
        marker(MarkerType.ABORT, 5),
        marker(MarkerType.COMMIT, 6),
    )
    assert values(run, aborted=[(5, 0)]) == [b"plain", b"other"]
    assert values(run) == [b"aborted 1", b"plain", b"other", b"aborted 2"]


def test_the_producer_of_an_aborted_transaction_is_seen_again_in_its_next() -> None:
    run = log(
        data(b"committed", producer_id=5, transactional=True),
        marker(MarkerType.COMMIT, 5),
        data(b"aborted", producer_id=5, transactional=True),
        marker(MarkerType.ABORT, 5),
        data(b"committed again", producer_id=5, transactional=True),
        marker(MarkerType.COMMIT, 5),
    )
    assert values(run, aborted=[(5, 2)]) == [b"committed", b"committed again"]


def test_a_producer_can_abort_twice_in_one_run() -> None:
    run = log(
        data(b"aborted", producer_id=5, transactional=True),
        marker(MarkerType.ABORT, 5),
        data(b"seen", producer_id=5, transactional=True),
        marker(MarkerType.COMMIT, 5),
        data(b"aborted too", producer_id=5, transactional=True),
        marker(MarkerType.ABORT, 5),
    )
    assert values(run, aborted=[(5, 4), (5, 0)]) == [b"seen"]


def test_a_run_that_begins_inside_an_aborted_transaction_leaves_its_rest_out() -> None:
    run = log(
        data(b"aborted", producer_id=5, transactional=True),
        marker(MarkerType.ABORT, 5),
        data(b"seen", producer_id=5, transactional=True),
        base_offset=100,
    )
    assert values(run, aborted=[(5, 60)], start_offset=100) == [b"seen"]


def test_a_transaction_that_aborts_beyond_the_run_is_left_out() -> None:
    run = log(data(b"aborted", producer_id=5, transactional=True), data(b"plain"))
    assert values(run, aborted=[(5, 0)]) == [b"plain"]


def test_what_an_idempotent_producer_wrote_outside_of_transactions_is_seen() -> None:
    run = log(data(b"idempotent", producer_id=5), data(b"aborted", producer_id=5, transactional=True))
    assert values(run, aborted=[(5, 0)]) == [b"idempotent"]


def test_the_first_record_at_a_time_is_found_by_its_own_time() -> None:
    batch = encode_batch([(None, b"a", (), 10), (None, b"b", (), 30), (None, b"c", (), 20)])
    run = log((batch, 3), data(b"d", time_ms=25), marker(MarkerType.COMMIT, 1), data(b"e", time_ms=50))
    found = {time_ms: first_record_at(run, time_ms) for time_ms in (0, 10, 11, 31, 50, 51)}
    assert {time_ms: record and record.value for time_ms, record in found.items()} == {
        0: b"a",
        10: b"a",
        11: b"b",
        31: b"e",
        50: b"e",
        51: None,
    }


def test_the_bound_on_unpacking_holds_for_each_batch() -> None:
    batch = encode_batch([(None, bytes(5_000))], compression=Compression.ZSTD)
    assert len(parse_records(batch, decompressed_bytes_max=200_000)) == 1
    with pytest.raises(DecompressedTooLarge):
        parse_records(batch, decompressed_bytes_max=4_000)
