"""Topics as the tables that a user's SQL sees, and the result of that SQL as records.

The table `topic` has the columns of the format "flymq" (key, value, topic, partition, offset, timestamp, headers) and,
where a schema is given, `data`: the value read as JSON. A result is written by its columns: `value` as it is if it has
one, otherwise all columns together as one JSON object; `key`, `headers`, `partition` and `timestamp` beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flymq.model.errors import InvalidPipeline
from flymq.spark.jobs.failures import first_sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLE = "topic"
_BESIDE_THE_VALUE = ("key", "headers", "partition", "topic")


def with_data(records: DataFrame, schema: str | None) -> DataFrame:
    """Return the records with the column `data`. A value that is no such JSON has nulls there."""
    if schema is None:
        return records
    from pyspark.errors import PySparkException
    from pyspark.sql.functions import from_json

    try:
        return records.withColumn("data", from_json(records["value"].cast("string"), schema))
    except PySparkException as error:
        raise InvalidPipeline(
            f"the schema {schema!r} cannot be read: {first_sentence(error)}",
            hint="Write it as in a table, such as 'user STRING, amount DOUBLE'.",
        ) from error


def query(records: DataFrame, sql: str) -> DataFrame:
    """Return the result of a query over the table `topic`."""
    from pyspark.errors import AnalysisException, ParseException

    records.createOrReplaceTempView(TABLE)
    try:
        return records.sparkSession.sql(sql)
    except (AnalysisException, ParseException) as error:
        hint = f"The table is {TABLE}; its columns are {', '.join(records.columns)}."
        raise InvalidPipeline(f"the SQL cannot be used: {first_sentence(error)}", hint=hint) from error


def as_records(result: DataFrame) -> DataFrame:
    """Return the result with a `value`, and a `key` that is text or bytes."""
    from pyspark.sql.functions import struct, to_json

    if "value" not in result.columns:
        within = [name for name in result.columns if name not in _BESIDE_THE_VALUE]
        if not within:
            raise InvalidPipeline(f"the result has only {', '.join(result.columns)}", hint="Select a value, too.")
        result = result.withColumn("value", to_json(struct(*within)))
    for name in ("key", "value"):
        if name in result.columns and dict(result.dtypes)[name] not in ("string", "binary"):
            result = result.withColumn(name, result[name].cast("string"))
    return result
