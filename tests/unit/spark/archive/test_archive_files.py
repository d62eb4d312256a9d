"""The files of an archive hold what the log holds, and say when they are damaged."""

from __future__ import annotations

import errno
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.spark.archive.archives import run_of, written

from flymq.model.delivery import TimestampType
from flymq.model.errors import ArchiveDamaged, ArchiveError
from flymq.record.batch import encode_batch
from flymq.record.header import assign
from flymq.record.reading import parse_records
from flymq.spark.archive.columns import SCHEMA, archive_columns
from flymq.spark.archive.files import read_piece, write_piece
from flymq.spark.archive.manifest import Piece


def test_columns_keep_everything_of_every_record() -> None:
    run = run_of(0, 30)
    columns = archive_columns(run, 0, 30).to_pylist()
    for row, record in zip(columns, parse_records(run), strict=True):
        assert row["offset"] == record.offset
        assert int(row["timestamp"].timestamp() * 1000) == record.timestamp_ms
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert [(header["key"], header["value"]) for header in row["headers"]] == list(record.headers)
        assert (row["timestamp_type"], row["leader_epoch"]) == (0, 3)


def test_the_type_of_time_and_the_leader_epoch_are_those_of_the_batch() -> None:
    run = bytearray()
    for base, kind, epoch in ((0, TimestampType.CREATE, 1), (2, TimestampType.LOG_APPEND, 4)):
        batch = encode_batch([(None, b"x"), (None, b"y")], timestamp_ms=9, timestamp_type=kind)
        assign(batch, 0, base_offset=base, leader_epoch=epoch)
        run += batch
    columns = archive_columns(run, 0, 4)
    assert columns.column("timestamp_type").to_pylist() == [0, 0, 1, 1]
    assert columns.column("leader_epoch").to_pylist() == [1, 1, 4, 4]


@pytest.mark.parametrize(("start", "end"), [(0, 30), (5, 25), (10, 20), (29, 30), (12, 13)])
def test_columns_are_cut_at_both_ends_of_a_range(start: int, end: int) -> None:
    assert archive_columns(run_of(0, 30), start, end).column("offset").to_pylist() == list(range(start, end))


def test_a_piece_is_read_as_it_was_written(tmp_path: Path) -> None:
    piece = written(tmp_path, 0, 1000)
    assert (piece.rows, piece.min_timestamp_ms, piece.max_timestamp_ms) == (1000, 0, 999)
    table = pa.Table.from_batches(read_piece(tmp_path, piece))
    assert table.equals(pa.Table.from_batches([archive_columns(run_of(0, 1000), 0, 1000)]))
    assert pq.read_schema(tmp_path / piece.file).equals(SCHEMA)


@pytest.mark.slow
def test_a_large_piece_has_row_groups_and_the_bounds_of_all_of_them(tmp_path: Path) -> None:
    batches = [
        archive_columns(run_of(at, at + 100_000, batch_records=50_000), 0, at + 100_000) for at in (0, 100_000, 200_000)
    ]
    piece = write_piece(tmp_path, Piece("orders", 0, 0, 300_000), "a", reversed(batches))
    assert (piece.rows, piece.min_timestamp_ms, piece.max_timestamp_ms) == (300_000, 0, 299_999)


def test_large_values_make_row_groups_of_few_rows(tmp_path: Path) -> None:
    batch = encode_batch([(None, bytes(1 << 20))] * 50, timestamp_ms=1)
    columns = archive_columns(batch, 0, 50)
    piece = write_piece(tmp_path, Piece("orders", 0, 0, 250), "a", [columns] * 5)
    assert pq.ParquetFile(tmp_path / piece.file).num_row_groups == 2


def test_a_range_without_records_has_no_file(tmp_path: Path) -> None:
    piece = write_piece(tmp_path, Piece("orders", 0, 5, 6), "a", [])
    assert (piece.rows, piece.file) == (0, "")
    assert list(tmp_path.rglob("*.parquet")) == []
    assert list(read_piece(tmp_path, piece)) == []


def test_nothing_is_left_of_a_file_whose_writing_failed(tmp_path: Path) -> None:
    def batches():
        yield archive_columns(run_of(0, 10), 0, 10)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ArchiveError, match="cannot be written: No space left on device"):
        write_piece(tmp_path, Piece("orders", 0, 0, 10), "a", batches())
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_file_that_was_cut_short_is_named_with_what_to_do(tmp_path: Path) -> None:
    piece = written(tmp_path, 0, 1000)
    path = tmp_path / piece.file
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArchiveDamaged) as caught:
        list(read_piece(tmp_path, piece))
    assert f"{path} was truncated" in caught.value.message
    assert "copy of the archive" in caught.value.hint


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    piece = written(tmp_path, 0, 1000)
    path = tmp_path / piece.file
    path.write_bytes(bytes(piece.size_bytes))
    with pytest.raises(ArchiveDamaged, match="cannot be read"):
        list(read_piece(tmp_path, piece))


def test_a_file_with_another_number_of_records_is_refused(tmp_path: Path) -> None:
    piece = msgspec.structs.replace(written(tmp_path, 0, 1000), rows=999)
    with pytest.raises(ArchiveDamaged, match="has 1000 records; its manifest says 999"):
        list(read_piece(tmp_path, piece))
