"""Avro schemas become Spark types, and values written with them rows."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from flymq.model.errors import InvalidOption
from flymq.spark.values.avro import avro_decoder, spark_type
from flymq.spark.values.decoding import decode_batch

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "L"]}},
    ],
}


def written(value: Any, schema: Any = ORDER) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def test_a_record_has_the_type_of_its_fields() -> None:
    assert spark_type(ORDER).simpleString() == (
        "struct<id:bigint,note:string,tags:array<string>,counts:map<string,int>,"
        "at:timestamp,price:decimal(8,2),size:string>"
    )


@pytest.mark.parametrize(
    ("schema", "said"),
    [("{", "not valid JSON"), (["int", "string"], "one type"), ("duration", "not supported in Spark")],
)
def test_a_schema_without_a_counterpart_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        spark_type(f'"{schema}"' if schema == "duration" else schema)


def test_values_become_rows_and_bad_ones_say_why() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    good = b"\x00\x00\x00\x00\x07" + written({"id": 5}, schema)
    batch = pa.RecordBatch.from_pydict({"value": pa.array([good, None, b"\x00\x00\x00\x00\x07", good + b"x"])})
    decoded = decode_batch(batch, to_arrow_type(spark_type(schema)), avro_decoder(schema, prefix_bytes=5))
    assert decoded.column("data").to_pylist() == [{"id": 5}, None, None, None]
    errors = decoded.column("error").to_pylist()
    assert errors[:2] == [None, None]
    assert errors[2].startswith("EOFError")
    assert errors[3] == "ValueError: 1 bytes are left after the value"


def test_a_value_of_another_type_than_its_column_is_bad_alone() -> None:
    rows = {b"1": {"id": 1}, b"2": {"id": "two"}, b"3": {"id": 3}}
    batch = pa.RecordBatch.from_pydict({"value": pa.array(list(rows))})
    decoded = decode_batch(batch, pa.struct([("id", pa.int64())]), rows.__getitem__)
    assert decoded.column("data").to_pylist() == [{"id": 1}, None, {"id": 3}]
    assert [error is None for error in decoded.column("error").to_pylist()] == [True, False, True]
