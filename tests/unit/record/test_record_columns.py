"""Columns to be written are not trusted: a row, an end or a bitmap that does not fit is refused, by both codecs."""

from __future__ import annotations

from array import array
from types import ModuleType

import pyarrow as pa
import pytest

from flymq.model.errors import EmptyBatch, InvalidBatch
from flymq.record.arrow import record_columns
from flymq.record.batch import encode_batch, encode_column_batch
from flymq.record.compression import Compression
from flymq.record.shapes import BinaryColumn, RecordColumns

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows(*numbers: int) -> bytes:
    return array("q", numbers).tobytes()


def ends(*numbers: int) -> bytes:
    return array("i", numbers).tobytes()


def test_a_batch_of_columns_is_the_batch_of_their_records(twin: ModuleType) -> None:
    columns = record_columns(
        pa.array(["a", None, "ccc"]),
        pa.array([b"k", b"", None]),
        pa.array([[("h", b"1"), ("h", None)], None, []], HEADERS),
        pa.array([5, -1, 9], pa.int64()),
    )
    records = [(b"k", b"a", [("h", b"1"), ("h", None)], 5), (b"", None, [], 7), (None, b"ccc", [], 9)]
    for compression in (Compression.NONE, Compression.ZSTD):
        expected = encode_batch(records, timestamp_ms=7, compression=compression, producer_id=3, base_sequence=4)
        made = encode_column_batch(
            columns, rows(0, 1, 2), timestamp_ms=7, compression=compression, producer_id=3, base_sequence=4
        )
        assert made == expected


def test_slices_of_arrays_are_written_as_what_they_show(twin: ModuleType) -> None:
    whole = pa.array([b"a", b"b", b"c", b"d"])
    headers = pa.array([[("x", b"0")], [("y", b"1")], [], [("z", b"3")]], HEADERS)
    columns = record_columns(whole[1:3], whole[2:4], headers[1:3])
    expected = encode_batch([(b"c", b"b", [("y", b"1")]), (b"d", b"c", [])], timestamp_ms=1)
    assert encode_column_batch(columns, rows(0, 1), timestamp_ms=1) == expected


def test_a_batch_of_no_rows_is_refused(twin: ModuleType) -> None:
    with pytest.raises(EmptyBatch):
        encode_column_batch(record_columns(pa.array([b"a"])), b"")


@pytest.mark.parametrize("row", [-1, 1, 1 << 40])
def test_a_row_outside_the_columns_is_refused(twin: ModuleType, row: int) -> None:
    with pytest.raises(IndexError, match="not in the columns"):
        encode_column_batch(record_columns(pa.array([b"a"])), rows(row))


@pytest.mark.parametrize(
    "column",
    [
        BinaryColumn(0, None, ends(0, 9), b"a"),
        BinaryColumn(0, None, ends(1, 0), b"a"),
        BinaryColumn(0, None, ends(-1, 0), b"a"),
        BinaryColumn(0, None, ends(0), b"a"),
        BinaryColumn(1, b"", ends(0, 1), b"a"),
    ],
)
def test_a_column_that_does_not_fit_its_data_is_refused(twin: ModuleType, column: BinaryColumn) -> None:
    with pytest.raises(ValueError, match="a column"):
        encode_column_batch(RecordColumns(1, column), rows(0))


def test_headers_that_do_not_fit_are_refused(twin: ModuleType) -> None:
    [name] = [BinaryColumn(0, None, ends(0, 1), b"n")]
    columns = RecordColumns(1, name, None, None, ends(0, 2), 1, name, name)
    with pytest.raises(ValueError, match="do not fit"):
        encode_column_batch(columns, rows(0))
    nameless = BinaryColumn(1, b"\0", ends(0, 0), b"")
    with pytest.raises(ValueError, match="no name"):
        encode_column_batch(columns._replace(header_ends=ends(0, 1), header_name=nameless), rows(0))


def test_times_too_far_apart_are_refused(twin: ModuleType) -> None:
    times = pa.array([-(1 << 62) * 2, (1 << 62)], pa.int64())
    with pytest.raises(InvalidBatch, match="time is out of range"):
        encode_column_batch(record_columns(pa.array([b"a", b"b"]), timestamp_ms=times), rows(0, 1))
