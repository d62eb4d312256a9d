"""Topics as data frames, in the few words that the tests need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from flymq.testing import TestBroker


def read(spark: SparkSession, broker: TestBroker, topic: str, **options: Any) -> DataFrame:
    """A batch of one topic. Option names with dots are written with two underscores."""
    chosen = {"bootstrapServers": broker.address, "subscribe": topic, **_named(options)}
    return spark.read.format("flymq").options(**{name: value for name, value in chosen.items() if value}).load()


def read_stream(spark: SparkSession, broker: TestBroker, topic: str, **options: Any) -> DataFrame:
    """A stream of one topic, from its beginning unless options say otherwise."""
    chosen = {"bootstrapServers": broker.address, "subscribe": topic, "startingOffsets": "earliest", **_named(options)}
    return spark.readStream.format("flymq").options(**{name: value for name, value in chosen.items() if value}).load()


def write(frame: DataFrame, broker: TestBroker, topic: str | None = None, **options: Any) -> None:
    chosen = {"bootstrapServers": broker.address, **({"topic": topic} if topic else {}), **options}
    frame.write.format("flymq").options(**chosen).mode("append").save()


def start_copy(
    frame: DataFrame, broker: TestBroker, topic: str, checkpoint: Path, *, sink: str = "flymq", **options: Any
) -> StreamingQuery:
    """Begin to write a stream to a topic, or to those its rows name, up to what is there now."""
    chosen = {"bootstrapServers": broker.address, **({"topic": topic} if topic else {}), **options}
    writer = frame.writeStream.format(sink).options(**chosen).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def copy(frame: DataFrame, broker: TestBroker, topic: str, checkpoint: Path, **options: Any) -> StreamingQuery:
    """Write a stream to a topic, up to what is there now, and wait for it."""
    query = start_copy(frame, broker, topic, checkpoint, **options)
    query.awaitTermination()
    return query


def collected(frame: DataFrame, checkpoint: Path, each: Callable[[DataFrame], Any]) -> list[Any]:
    """Run a stream up to what is there now; return what `each` made of every micro-batch."""
    found: list[Any] = []
    query = frame.writeStream.foreachBatch(lambda batch, _: found.append(each(batch)))
    query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return found


def values(frame: DataFrame) -> list[str]:
    """The values of all rows as text, sorted."""
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def _named(options: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in options.items()}
