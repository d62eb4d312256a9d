"""Values as columns: JSON, MessagePack or Avro, with a record that cannot be decoded as a row that says why.

Each function adds two columns to a data frame that has the column `value`:

    data    a struct of the fields of the schema; null where the value is null or cannot be decoded
    error   why it cannot be decoded; null where it can

So no record fails a query. `dead_letters` turns the bad rows into records of another topic, with the reason in a
header; written with the good ones by one query, they are committed together.
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
"""The header of a dead letter that says what was wrong with it; where it came from is in the other three."""

Decode = Callable[[bytes], Any]

_BAD_JSON = "_bad_json"


def decode_json(frame: DataFrame, schema: StructType | str) -> DataFrame:
    """Add what JSON values hold of these fields, decoded by Spark itself. Fields that are missing are null."""
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
    """Add what MessagePack values, which are maps, hold of these fields. Fields that are missing are null."""
    return _decoded(frame, _struct(schema), _parse_map)


def decode_avro(frame: DataFrame, schema: AvroSchema, *, prefix_bytes: int = 0) -> DataFrame:
    """Add what Avro values, written with this schema of a record, hold. Needs the package fastavro.

    `prefix_bytes` are skipped: 5 where a schema registry's clients have written its number before each value.
    """
    fields = spark_type(schema)
    if not isinstance(fields, StructType):
        raise InvalidOption("values are decoded by the Avro schema of a record", hint='Give a schema of type "record".')
    return _decoded(frame, fields, avro_decoder(schema, prefix_bytes=prefix_bytes))


def dead_letters(frame: DataFrame, topic: str) -> DataFrame:
    """Return the rows that could not be decoded as records for another topic: as they were, with the reason."""
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
        except Exception as fault:  # whatever a decoder makes of bytes that are not its own
            error = f"{type(fault).__name__}: {fault}"
        rows.append(row)
        errors.append(error)
    data = _array(rows, errors, type_)
    names = [*batch.schema.names, DATA, ERROR]
    return pa.RecordBatch.from_arrays([*batch.columns, data, pa.array(errors, pa.string())], names=names)


def _array(rows: list[Any], errors: list[str | None], type_: pa.DataType) -> pa.Array:
    """Return the rows as a column; those that are not of its type become null, and say so in `errors`."""
    try:
        return pa.array(rows, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass  # some row is of another type: find out which
    for index, row in enumerate(rows):
        try:
            pa.array([row], type_)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as fault:
            rows[index] = None
            errors[index] = f"{type(fault).__name__}: {fault}"
    return pa.array(rows, type_)
