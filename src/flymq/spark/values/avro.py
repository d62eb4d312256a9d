"""Avro schemas as Spark types, and an Avro decoder."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from flymq.model.errors import InvalidOption

AvroSchema: TypeAlias = str | dict[str, Any] | list[Any]
"""A schema as JSON text, or parsed."""

_PRIMITIVES: dict[str, DataType] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    "fixed": BinaryType(),
}
_LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "uuid": StringType(),
}


def avro_decoder(schema: AvroSchema, *, prefix_bytes: int = 0) -> Callable[[bytes], Any]:
    """Return a decoder for one value."""
    try:
        from fastavro import parse_schema, schemaless_reader
    except ImportError:
        raise InvalidOption(
            "Avro needs the package fastavro", hint="Install it with pip install 'flymq[avro]'."
        ) from None
    parsed = parse_schema(_loaded(schema))

    def decode(value: bytes) -> Any:
        stream = io.BytesIO(value)
        stream.seek(prefix_bytes)
        decoded = schemaless_reader(stream, parsed, None)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left after the value")
        return decoded

    return decode


def spark_type(schema: AvroSchema) -> DataType:
    """Return the Spark type of a schema; everything is nullable. A union must be a type and null."""
    return _type(_loaded(schema))


def _loaded(schema: AvroSchema) -> Any:
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except ValueError as error:
        raise InvalidOption(f"the Avro schema is not valid JSON: {error}") from None


def _type(schema: Any) -> DataType:
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        if len(others) != 1:
            raise InvalidOption(f"the Avro union {schema} is not supported: a column has one type")
        return _type(others[0])
    if isinstance(schema, str):
        schema = {"type": schema}
    kind = schema.get("type")
    if isinstance(kind, dict | list):
        return _type(kind)
    if kind == "record":
        return StructType([StructField(field["name"], _type(field["type"])) for field in schema["fields"]])
    if kind == "array":
        return ArrayType(_type(schema["items"]))
    if kind == "map":
        return MapType(StringType(), _type(schema["values"]))
    if schema.get("logicalType") == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if schema.get("logicalType") in _LOGICAL:
        return _LOGICAL[schema["logicalType"]]
    if kind not in _PRIMITIVES:
        raise InvalidOption(f"the Avro type {kind!r} is not supported in Spark")
    return _PRIMITIVES[kind]
