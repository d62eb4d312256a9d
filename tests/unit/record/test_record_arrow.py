"""Records as Arrow columns."""

from __future__ import annotations

from datetime import UTC, datetime
from types import ModuleType

import pyarrow as pa
import pytest

from flymq.model.errors import DecompressedTooLarge, InvalidBatch
from flymq.record.arrow import parse_columns, schema
from flymq.record.batch import encode_batch
from flymq.record.compression import Compression
from flymq.record.header import assign
from flymq.record.reading import parse_records
from flymq.record.shapes import Section

pytestmark = pytest.mark.usefixtures("twin")


def test_columns_hold_what_the_records_hold() -> None:
    run = bytearray()
    for start in range(0, 300, 100):
        batch = encode_batch(
            [
                (
                    None if index % 3 == 0 else b"key-%d" % index,
                    None if index % 7 == 0 else b"v" * index,
                    [(f"name-{place}", None if place == 1 else b"x" * place) for place in range(index % 12)],
                    1_000 + index,
                )
                for index in range(start, start + 100)
            ],
            compression=Compression.LZ4,
        )
        assign(batch, 0, base_offset=start, leader_epoch=0)
        run += batch
    columns = parse_columns(run, start_offset=7)
    columns.validate(full=True)
    assert columns.schema == schema()
    assert columns.to_pylist() == [
        {
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": content} for name, content in record.headers],
        }
        for record in parse_records(run, start_offset=7)
    ]
    assert columns.num_rows == 293


def test_a_run_without_records_gives_columns_without_rows() -> None:
    columns = parse_columns(b"")
    columns.validate(full=True)
    assert (columns.schema, columns.num_rows) == (schema(), 0)


def test_nulls_are_counted_and_leave_no_bytes() -> None:
    columns = parse_columns(encode_batch([(None, b"a"), (None, None), (b"k", b"")]))
    assert [columns.column(name).null_count for name in ("key", "value", "headers")] == [2, 1, 0]
    assert columns.column("key").to_pylist() == [None, None, b"k"]
    assert columns.column("value").to_pylist() == [b"a", None, b""]


def test_many_headers_make_the_columns_grow() -> None:
    headers = [(f"n{place}", b"x" * (place % 50) if place % 9 else None) for place in range(5_000)]
    columns = parse_columns(encode_batch([(b"k", b"v", headers), (b"k" * 10_000, None)]))
    columns.validate(full=True)
    read = [(header["key"], header["value"]) for header in columns.column("headers")[0].as_py()]
    assert read == headers
    assert columns.column("key")[1].as_py() == b"k" * 10_000


def test_timestamps_come_in_the_type_that_is_asked_for() -> None:
    microseconds = pa.timestamp("us", tz="UTC")
    columns = parse_columns(encode_batch([(None, b"", (), 1_500)]), timestamp_type=microseconds)
    assert columns.schema == schema(microseconds)
    assert columns.column("timestamp").to_pylist() == [datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)]


def test_a_time_that_does_not_fit_into_the_type_is_refused() -> None:
    batch = encode_batch([(None, b"", (), 1 << 62)])
    with pytest.raises(InvalidBatch):
        parse_columns(batch, timestamp_type=pa.timestamp("us", tz="UTC"))


def test_more_than_arrow_can_count_is_refused(twin: ModuleType) -> None:
    half = bytes(1 << 30)  # never touched, so it costs no memory
    section = Section(half, 0, 0, 0, 0, None)
    with pytest.raises(DecompressedTooLarge):
        twin.parse_columns([section, section], 0)
