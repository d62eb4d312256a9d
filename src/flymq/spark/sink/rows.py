"""Rows of a DataFrame as records: the meaning of the columns.

| column | type | |
|---|---|---|
| value | string or binary | required; null is a tombstone |
| key | string or binary | records with the same key go to the same partition |
| topic | string | required without the option `topic` |
| partition | int | null: by the key, or any partition |
| headers | array of struct of key: string and value: binary | |
| timestamp | timestamp | only with `includeTimestamp` |

All other columns are ignored, so that a DataFrame that was read from a topic can be written as it is.
"""

from __future__ import annotations

from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from flymq.model.errors import InvalidColumns
from flymq.model.names import check_topic_name
from flymq.spark.options import WriteOptions
from flymq.spark.source.columns import HEADERS

_TEXT_OR_BYTES = (StringType(), BinaryType())

TYPES: dict[str, tuple[DataType, ...]] = {
    "value": _TEXT_OR_BYTES,
    "key": _TEXT_OR_BYTES,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS,),
    "timestamp": (TimestampType(),),
}


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Reject a DataFrame whose columns are missing or have the wrong type."""
    names = schema.fieldNames()
    if options.topic is not None:
        check_topic_name(options.topic)
    if "value" not in names:
        raise InvalidColumns(f"there is no column value to write, only {', '.join(names) or 'none'}")
    if options.topic is None and "topic" not in names:
        raise InvalidColumns(
            "neither the option topic nor a column topic is set", hint='Set .option("topic", "orders").'
        )
    if options.include_timestamp and "timestamp" not in names:
        raise InvalidColumns("includeTimestamp is set, but there is no column timestamp")
    for column in schema.fields:
        allowed = TYPES.get(column.name)
        if allowed is not None and not any(_same(column.dataType, type_) for type_ in allowed):
            wanted = " or ".join(type_.simpleString() for type_ in allowed)
            raise InvalidColumns(
                f"the column {column.name} is {column.dataType.simpleString()}, not {wanted}",
                hint=f"Cast it, as in CAST({column.name} AS {allowed[0].simpleString().upper()}).",
            )


def _same(found: DataType, wanted: DataType) -> bool:
    """Whether two types are equal except for nullability."""
    return found.simpleString() == wanted.simpleString()
