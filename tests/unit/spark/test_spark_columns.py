"""Fetched batches become the wanted columns of the records within a range."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from tests.unit.storage.batches import poison

from flymq.client.encryption import Cipher, generate_key
from flymq.model.delivery import TimestampType
from flymq.model.errors import InvalidColumns, UnreadableBatch, WrongEncryptionKey
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.record.control import Marker, MarkerType, encode_marker
from flymq.record.header import assign
from flymq.spark.source.columns import RangeColumns, check_schema, full_schema
from flymq.spark.source.corrupt_batches import parse_run
from flymq.spark.source.fetching import Run
from flymq.spark.source.planning import OffsetRange

ALL = full_schema(include_headers=True)


def run_of(*batches: bytearray, start_offset: int = 0, aborted: tuple[tuple[int, int], ...] = ()) -> Run:
    offset = 0
    for batch in batches:
        assign(batch, 0, base_offset=offset, leader_epoch=0)
        offset += 3
    return Run(memoryview(b"".join(batches)), start_offset, aborted)


def batch_of(letter: str, **settings: object) -> bytearray:
    return encode_batch([(None, f"{letter}{n}".encode()) for n in range(3)], timestamp_ms=7, **settings)  # type: ignore[arg-type]


def parse(run: Run, *, end: int, schema: StructType = ALL, cipher: Cipher | None = None) -> list[dict[str, object]]:
    columns = RangeColumns(schema, OffsetRange("t", 4, run.start_offset, end), cipher)
    return [row for batch in columns.parse(run) for row in batch.to_pylist()]


def test_a_range_begins_and_ends_within_batches() -> None:
    rows = parse(run_of(batch_of("a"), batch_of("b"), batch_of("c"), start_offset=2), end=7)
    assert [row["value"] for row in rows] == [b"a2", b"b0", b"b1", b"b2", b"c0"]
    assert [row["offset"] for row in rows] == [2, 3, 4, 5, 6]
    assert {(row["topic"], row["partition"]) for row in rows} == {("t", 4)}


def test_the_kind_of_time_is_that_of_each_batch() -> None:
    stamped = batch_of("b", timestamp_type=TimestampType.LOG_APPEND)
    rows = parse(run_of(batch_of("a"), stamped, batch_of("c")), end=9)
    assert [row["timestampType"] for row in rows] == [0, 0, 0, 1, 1, 1, 0, 0, 0]


def test_aborted_records_and_markers_are_left_out() -> None:
    dropped = batch_of("a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    marker = encode_marker(Marker(MarkerType.ABORT, 5, 0, 0, 7))
    rows = parse(run_of(dropped, marker, batch_of("c"), aborted=((5, 0),)), end=9)
    assert [row["value"] for row in rows] == [b"c0", b"c1", b"c2"]


def test_only_the_wanted_columns_are_made_in_the_wanted_order() -> None:
    schema = StructType([ALL["timestamp"], ALL["value"]])
    columns = RangeColumns(schema, OffsetRange("t", 0, 0, 3), None)
    [batch] = columns.parse(run_of(batch_of("a")))
    assert batch.schema.names == ["timestamp", "value"]
    assert batch.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")


def test_values_are_decrypted_and_an_unreadable_one_is_named() -> None:
    cipher = Cipher(generate_key())
    value, headers = cipher.encrypt(b"secret", [("kept", b"1")])
    sealed = encode_batch([(None, b"x", [], 7)] * 2 + [(None, value, headers, 7)])
    with pytest.raises(WrongEncryptionKey, match="t-4 at offset 2: "):
        parse(run_of(sealed), end=3, cipher=Cipher(generate_key(), required=False))
    rows = parse(run_of(sealed, start_offset=2), end=3, cipher=cipher)
    assert [(row["value"], row["headers"]) for row in rows] == [(b"secret", [{"key": "kept", "value": b"1"}])]


def test_columns_that_topics_do_not_have_are_refused() -> None:
    check_schema(ALL)
    with pytest.raises(InvalidColumns, match="no column 'amount'"):
        check_schema(StructType().add("amount", "double"))
    with pytest.raises(InvalidColumns, match="the column offset is bigint, not int"):
        check_schema(StructType().add("offset", "integer"))


def test_a_batch_that_cannot_be_decoded_is_named_or_left_out() -> None:
    run = run_of(batch_of("a"), bytearray(poison(3)), batch_of("c"), bytearray(poison(3)))
    name = TopicPartition("t", 4)

    def values(run: Run) -> list[object]:
        return [row["value"] for row in parse(run, end=12)]

    with pytest.raises(UnreadableBatch, match="t-4 at offset 3: ") as caught:
        parse_run(run, name, values, fail_on_data_loss=True)
    assert "failOnDataLoss" in caught.value.hint
    left = parse_run(run, name, values, fail_on_data_loss=False)
    assert left == [b"a0", b"a1", b"a2", b"c0", b"c1", b"c2"]
