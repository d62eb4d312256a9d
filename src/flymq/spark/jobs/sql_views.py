"""A topic as a table for a user's SQL, and the result of that SQL as records.

The table has the topic's name and the columns of the format "flymq" (key, value, topic, partition, offset, timestamp,
headers). With a schema, the fields of JSON values are columns too; a field with the name of another column is
`value_<name>`. A result is written by its columns: `value` if there is one, otherwise all columns as one JSON object;
`key`, `headers` and `partition` as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flymq.model.errors import InvalidPipeline
from flymq.spark.error_messages import first_sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BESIDE_THE_VALUE = ("key", "headers", "partition")
_FIELDS = "_fields"


def with_fields(records: DataFrame, schema: str | None) -> DataFrame:
    """Return the records with the fields of their JSON values as columns; null where a value does not match."""
    if schema is None:
        return records
    from pyspark.errors import PySparkException
    from pyspark.sql.functions import col, from_json

    try:
        parsed = records.withColumn(_FIELDS, from_json(records["value"].cast("string"), schema))
        names = parsed.select(f"{_FIELDS}.*").columns
    except PySparkException as error:
        raise InvalidPipeline(
            f"the schema {schema!r} is not valid: {first_sentence(error)}",
            hint="Write it as DDL, such as 'user STRING, amount DOUBLE'.",
        ) from error
    taken = {name.lower() for name in records.columns}
    fields = [col(_FIELDS).getField(name).alias(f"value_{name}" if name.lower() in taken else name) for name in names]
    return parsed.select(*fields, *records.columns)


def query(records: DataFrame, table: str, sql: str) -> DataFrame:
    """Return the result of a query over these records as a table."""
    from pyspark.errors import AnalysisException, ParseException

    records.createOrReplaceTempView(f"`{table}`")
    try:
        return records.sparkSession.sql(sql)
    except (AnalysisException, ParseException) as error:
        hint = f"The table is `{table}`; its columns are {', '.join(records.columns)}."
        raise InvalidPipeline(f"the SQL is not valid: {first_sentence(error)}", hint=hint) from error


def as_records(result: DataFrame) -> DataFrame:
    """Return the result with a `value`, and a `key` that is a string or binary."""
    from pyspark.sql.functions import struct, to_json

    if "value" not in result.columns:
        within = [name for name in result.columns if name not in _BESIDE_THE_VALUE]
        if not within:
            raise InvalidPipeline(f"the result has only {', '.join(result.columns)}", hint="Select a value too.")
        result = result.withColumn("value", to_json(struct(*within)))
    for name in ("key", "value"):
        if name in result.columns and dict(result.dtypes)[name] not in ("string", "binary"):
            result = result.withColumn(name, result[name].cast("string"))
    return result
