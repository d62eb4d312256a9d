"""Query topics with SQL: a view of each topic that a query uses, with the fields of its values as columns."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flymq.client.sync.client import FlyMQClient
from flymq.model.errors import FlyMQError, PipelineFailed, QueryFailed, TableNotFound
from flymq.spark.error_messages import failure_of
from flymq.spark.json_schema import infer_fields, quoted
from flymq.spark.sampling import sample

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RECORD_COLUMNS = ("key", "partition", "offset", "timestamp")
"""The columns of every view after those of the value; a field of the value with such a name is `value_<name>`."""

_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
_PART = re.compile(r"`((?:[^`]|``)*)`")


class TopicViews:
    """The topics of a broker in a session. `options` are those of the source: how its tasks connect to the broker."""

    def __init__(self, spark: SparkSession, client: FlyMQClient, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._client = client
        self._options = options

    def query(self, sql: str) -> DataFrame:
        """Return the result of a query (lazy), after creating a view of each topic that it uses.

        Only Spark's parser knows which names in a query are tables, and it reports missing ones one at a time. It has
        read nothing by then, so trying again is cheap.
        """
        from pyspark.errors import AnalysisException

        made: set[str] = set()
        while True:
            try:
                return self._spark.sql(sql)
            except AnalysisException as error:
                if error.getCondition() != _NOT_FOUND:
                    raise query_failure(error) from None
                topic = self._topic_of(error.getMessageParameters() or {})
                if topic in made:  # it is used where a view cannot be
                    raise query_failure(error) from None
                self.register(topic)
                made.add(topic)

    def register(self, topic: str) -> None:
        """Create a view of a topic. Its columns are inferred from its last records."""
        keys, values = sample(self._client, topic)
        source = self._spark.read.format("flymq").options(**self._options).option("subscribe", topic).load()
        _decoded(source, keys, values).createOrReplaceTempView(quoted(topic))

    def _topic_of(self, parameters: Mapping[str, str]) -> str:
        parts = [part.replace("``", "`") for part in _PART.findall(parameters.get("relationName", ""))]
        name = ".".join(parts)
        topics = self._client.list_topics()
        if name in topics and len(parts) == 1:
            return name
        if name in topics:
            raise TableNotFound(f"a table name with a dot must be quoted: {quoted(name)}")
        near = difflib.get_close_matches(name, topics, n=1)
        hint = f"Did you mean {quoted(near[0])}?" if near else None
        raise TableNotFound(f"there is no topic {name!r}", hint=hint)


def _decoded(source: DataFrame, keys: Sequence[bytes], values: Sequence[bytes]) -> DataFrame:
    """Return the columns of the value, if any, and those of the record."""
    from pyspark.sql import functions as sql

    record = [_as_text("key", keys), *(sql.col(name) for name in RECORD_COLUMNS if name != "key")]
    fields = infer_fields(values)
    if not fields:
        return source.select(_as_text("value", values), *record)
    struct = ", ".join(f"{quoted(name)} {kind}" for name, kind in fields.items())
    parsed = source.withColumn("value", sql.from_json(sql.col("value").cast("string"), struct))
    columns = [sql.col("value").getField(name).alias(_column_name(name)) for name in fields]
    return parsed.select(*columns, *record)


def _column_name(field: str) -> str:
    return f"value_{field}" if field.lower() in RECORD_COLUMNS else field


def _as_text(column: str, sample: Sequence[bytes]) -> Column:
    """Return a column as a string if the sample is UTF-8 text, otherwise as binary."""
    from pyspark.sql import functions as sql

    try:
        for data in sample:
            data.decode()
    except UnicodeDecodeError:
        return sql.col(column)
    return sql.col(column).cast("string").alias(column)


def query_failure(error: Exception) -> FlyMQError:
    """Return the error of a query in one sentence: FlyMQ's own error, or Spark's message."""
    failure = failure_of(error)
    return failure if type(failure) is not PipelineFailed else QueryFailed(failure.message)
