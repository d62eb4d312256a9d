"""Decode values to columns: JSON, MessagePack or Avro. A record that cannot be decoded gets an error column.

Each function adds two columns to a DataFrame with the column `value`:

    data    a struct with the fields of the schema; null if the value is null or cannot be decoded
    error   why it cannot be decoded; null if it can

So no record fails a query. `dead_letters` turns the bad rows into records for another topic, with the reason in a
header; if one query writes both good and bad rows, they are committed together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from msgspec import msgpack
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from flymq.model.errors import InvalidColumns, InvalidOption
from flymq.spark.source.columns import HEADERS
from flymq.spark.values.avro import AvroSchema, avro_decoder, spark_type

DATA, ERROR = "data", "error"

ERROR_HEADER = "flymq-error"
"""The header of a dead letter with the error; the other three have its origin."""

Decode = Callable[[bytes], Any]

_BAD_JSON = "_bad_json"


def decode_json(frame: DataFrame, schema: StructType | str) -> DataFrame:
    """Decode JSON values with this schema, with Spark's own decoder. Missing fields are null."""
    fields = _struct(schema)
    _check(frame)
    wanted = StructType([*fields.fields, StructField(_BAD_JSON, StringType())])
    text = F.col("value").cast("string")
    parsed = F.from_json(text, wanted, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD_JSON})
    frame = frame.withColumn(_BAD_JSON, parsed)
    is_bad = F.col("value").isNotNull() & (F.col(_BAD_JSON).isNull() | F.col(f"{_BAD_JSON}.{_BAD_JSON}").isNotNull())
    good = F.struct(*[F.col(f"`{_BAD_JSON}`.`{field.name}`") for field in fields.fields])
    frame = frame.withColumn(DATA, F.when(~is_bad & F.col("value").isNotNull(), good))
    frame = frame.withColumn(ERROR, F.when(is_bad, F.lit(f"not JSON of {fields.simpleString()}")))
    return frame.drop(_BAD_JSON)


def decode_messagepack(frame: DataFrame, schema: StructType | str) -> DataFrame:
    """Decode MessagePack values, which must be maps, with this schema. Missing fields are null."""
    return _decoded(frame, _struct(schema), _parse_map)


def decode_avro(frame: DataFrame, schema: AvroSchema, *, prefix_bytes: int = 0) -> DataFrame:
    """Decode Avro values that were written with this record schema. Requires the package fastavro.

    `prefix_bytes` are skipped: 5 for values of schema registry clients, which start with the schema id.
    """
    fields = spark_type(schema)
    if not isinstance(fields, StructType):
        raise InvalidOption("the Avro schema must be a record", hint='Use a schema of type "record".')
    return _decoded(frame, fields, avro_decoder(schema, prefix_bytes=prefix_bytes))


def dead_letters(frame: DataFrame, topic: str) -> DataFrame:
    """Return the rows that could not be decoded as records for another topic, with the reason in a header."""
    origin = {"topic": F.col("topic"), "partition": F.col("partition"), "offset": F.col("offset")}
    known = {name: column for name, column in origin.items() if name in frame.columns}
    added = [_header(f"flymq-{name}", column) for name, column in known.items()]
    headers = F.array(_header(ERROR_HEADER, F.col(ERROR)), *added)
    if "headers" in frame.columns:
        headers = F.concat(F.coalesce(F.col("headers"), F.array().cast(HEADERS)), headers)
    keys = ["key"] if "key" in frame.columns else []
    return frame.where(F.col(ERROR).isNotNull()).select(
        F.lit(topic).alias("topic"), *keys, "value", headers.cast(HEADERS).alias("headers")
    )


def _parse_map(value: bytes) -> dict[str, Any]:
    return msgpack.decode(value, type=dict[str, Any])


def _header(name: str, content: Any) -> Any:
    return F.struct(F.lit(name).alias("key"), content.cast("string").cast("binary").alias("value"))


def _struct(schema: StructType | str) -> StructType:
    if isinstance(schema, StructType):
        return schema
    parsed = StructType.fromDDL(schema)
    assert isinstance(parsed, StructType)
    return parsed


def _check(frame: DataFrame) -> None:
    if "value" not in frame.columns:
        raise InvalidColumns(f"there is no column value to decode, only {', '.join(frame.columns)}")


def _decoded(frame: DataFrame, fields: StructType, decode: Decode) -> DataFrame:
    _check(frame)
    schema = StructType([*frame.schema.fields, StructField(DATA, fields), StructField(ERROR, StringType())])
    type_ = to_arrow_type(fields, timezone="UTC")

    def decode_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield decode_batch(batch, type_, decode)

    return frame.mapInArrow(decode_batches, schema)


def decode_batch(batch: pa.RecordBatch, type_: pa.DataType, decode: Decode) -> pa.RecordBatch:
    """Return the batch with the columns `data` and `error`."""
    rows: list[Any] = []
    errors: list[str | None] = []
    for value in batch.column("value").cast(pa.binary()).to_pylist():
        row, error = None, None
        try:
            row = None if value is None else decode(value)
        except Exception as fault:  # a decoder can raise anything for bytes of another format
            error = f"{type(fault).__name__}: {fault}"
        rows.append(row)
        errors.append(error)
    data = _array(rows, errors, type_)
    names = [*batch.schema.names, DATA, ERROR]
    return pa.RecordBatch.from_arrays([*batch.columns, data, pa.array(errors, pa.string())], names=names)


def _array(rows: list[Any], errors: list[str | None], type_: pa.DataType) -> pa.Array:
    """Return the rows as a column; those of another type become null, with a message in `errors`."""
    try:
        return pa.array(rows, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass  # some row has another type: find out which
    for index, row in enumerate(rows):
        try:
            pa.array([row], type_)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as fault:
            rows[index] = None
            errors[index] = f"{type(fault).__name__}: {fault}"
    return pa.array(rows, type_)
