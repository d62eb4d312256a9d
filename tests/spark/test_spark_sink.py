"""`df.write.format("flymq")` and `writeStream`: which rows become which records, and each of them once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.spark.topics import copy, read, read_stream, start_copy, values, write

from flymq import FlyMQClient, generate_key
from flymq.record.partitioning import partition_for_key
from flymq.spark.data_source import FlyMQDataSource
from flymq.spark.sink.writers import StreamWriter
from flymq.testing import TestBroker

cloudpickle.register_pickle_by_value(sys.modules[__name__])

HEADERS = "array<struct<key:string,value:binary>>"


def fill(client: FlyMQClient, topic: str, count: int = 300) -> list[str]:
    sent = [f"v{number}" for number in range(count)]
    client.produce_batch(topic, [(f"k{number}", value) for number, value in enumerate(sent)])
    return sorted(sent)


def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hand on all rows, then fail, if this is the first try of one of the tasks."""
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        raise RuntimeError("a task fails after it has written all its rows")


def always_fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise RuntimeError("every task fails after it has written all its rows")


def assert_no_transaction_is_open(client: FlyMQClient, topic: str) -> None:
    """A record written now is seen at once by who reads only what is committed."""
    for partition in range(3):
        offset = client.produce(topic, "end", partition=partition)
        assert client.consume(topic, offset, partition=partition).value == b"end"


# --- rows and records -----------------------------------------------------------------------------------------------


def test_rows_become_records_with_key_headers_partition_and_time(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    other = f"{topic}-other"
    client.create_topic(other, partitions=5)
    rows = [
        (topic, "text", None, 2, [("h", b"1"), ("h", None)], 1_000),
        (other, "by key", "key", None, None, None),
        (other, None, "key", None, [], 2_000),
    ]
    schema = f"topic string, value string, key string, partition int, headers {HEADERS}, ms bigint"
    frame = spark.createDataFrame(rows, schema).selectExpr("*", "timestamp_millis(ms) AS timestamp")
    write(frame.drop("ms"), broker, includeTimestamp="true")

    first = client.consume(topic, 0, partition=2)
    assert (first.key, first.value, first.timestamp) == (None, b"text", 1_000)
    assert list(first.headers) == [("h", b"1"), ("h", None)]
    home = partition_for_key(b"key", 5)
    second, third = client.fetch(other, home)
    assert (second.key, second.value, list(second.headers)) == (b"key", b"by key", [])
    assert second.timestamp > 1_600_000_000_000
    assert (third.value, third.timestamp) == (None, 2_000)


def test_what_was_read_can_be_written_as_it_is_in_large_batches_and_packed(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    big = f"{topic}-big"
    client.create_topic(big, partitions=3)
    made = spark.range(20_000).selectExpr("CAST(id AS STRING) AS key", "repeat(CAST(id AS STRING), 20) AS value")
    write(made, broker, topic, compression="zstd", batchBytes=50_000)
    write(read(spark, broker, topic), broker, big)
    expected = [f"{number}" * 20 for number in range(20_000)]
    assert values(read(spark, broker, big)) == sorted(expected)


def test_values_are_encrypted_in_the_tasks(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    key = generate_key()
    write(spark.createDataFrame([("secret",)], "value string"), broker, topic, encryptionKey=key)
    assert values(read(spark, broker, topic, encryptionKey=key)) == ["secret"]
    assert b"secret" not in b"".join(bytes(row.value) for row in read(spark, broker, topic).collect())


def test_keys_are_not_in_the_plans_that_spark_shows(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    key = generate_key()
    client.produce(topic, "x")
    secrets = {"encryptionKey": key, "decryptionKeys": key, "encryptionRequired": "false"}
    frame = read(spark, broker, topic, **secrets)
    stream = start_copy(read_stream(spark, broker, topic, **secrets), broker, topic, tmp_path, **secrets)
    stream.awaitTermination()
    shown = frame._jdf.queryExecution().toString() + stream._jsq.explainInternal(True)
    assert "flymq" in shown
    assert key not in shown


@pytest.mark.parametrize(
    ("column", "options", "said"),
    [
        ("'v' AS vlaue", {}, "there is no column value to write, only vlaue"),
        ("'v' AS value", {"topic": ""}, "neither the option topic nor a column topic is set"),
        ("1 AS value", {}, r"the column value is int, not string or binary\. Cast it"),
        ("'v' AS value", {"ackz": "all"}, r"unknown option 'ackz' for writing\. Did you mean acks\?"),
        ("'v' AS value", {"topic": "not/allowed"}, "contains an invalid character"),
        ("repeat('v', 2000000) AS value", {}, r"Send a smaller message, or raise the topic's"),
        ("'v' AS value", {"bootstrapServers": "127.0.0.1:1", "requestTimeoutMs": "300"}, "no broker at"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line_with_what_to_do(
    spark: SparkSession, broker: TestBroker, topic: str, column: str, options: dict[str, str], said: str
) -> None:
    chosen = {name: value for name, value in {"topic": topic, **options}.items() if value}
    with pytest.raises(Exception, match=said):
        write(spark.range(1).selectExpr(column), broker, **chosen)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, broker: TestBroker, topic: str) -> None:
    frame = spark.createDataFrame([("v",)], "value string")
    with pytest.raises(Exception, match=r"a topic cannot be overwritten\. Use .mode"):
        frame.write.format("flymq").options(bootstrapServers=broker.address, topic=topic).mode("overwrite").save()


# --- once -----------------------------------------------------------------------------------------------------------


def test_a_task_that_fails_once_leaves_each_row_once(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    source = f"{topic}-source"
    client.create_topic(source, partitions=3)
    sent = fill(client, source)
    frame = read(spark, broker, source)
    write(frame.mapInArrow(fail_once, frame.schema), broker, topic)
    assert values(read(spark, broker, topic)) == sent

    stream = read_stream(spark, broker, source)
    copy(stream.mapInArrow(fail_once, stream.schema), broker, topic, tmp_path)
    assert values(read(spark, broker, topic)) == sorted(sent * 2)
    assert_no_transaction_is_open(client, topic)


def test_a_write_that_fails_leaves_nothing(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    frame = spark.range(100, numPartitions=2).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(Exception, match="every task fails"):
        write(frame.mapInArrow(always_fail, frame.schema), broker, topic)
    assert read(spark, broker, topic).count() == 0
    assert_no_transaction_is_open(client, topic)


def test_at_least_once_shows_what_a_failed_task_wrote(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    frame = spark.range(100, numPartitions=2).selectExpr("CAST(id AS STRING) AS value")
    write(frame.mapInArrow(fail_once, frame.schema), broker, topic, delivery="at_least_once")
    found = values(read(spark, broker, topic))
    assert set(found) == {str(number) for number in range(100)}
    assert len(found) >= 100


def test_a_restart_that_repeats_a_committed_batch_writes_nothing_twice(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    source = f"{topic}-source"
    client.create_topic(source, partitions=3)
    sent = fill(client, source)
    stream = read_stream(spark, broker, source, maxOffsetsPerTrigger=150)
    copy(stream, broker, topic, tmp_path)
    assert values(read(spark, broker, topic)) == sent

    forget_last_commit(tmp_path)
    more = fill(client, source, 10)
    copy(stream, broker, topic, tmp_path)
    assert values(read(spark, broker, topic)) == sorted(sent + more)
    assert_no_transaction_is_open(client, topic)


def forget_last_commit(checkpoint: Path) -> None:
    """Leave a checkpoint as a crash between the sink's commit and Spark's own does."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink()


class CommitFailsOnce(FlyMQDataSource):
    """The sink, but the driver fails right after the first batch was committed."""

    @classmethod
    def name(cls) -> str:
        return "flymq_commit_fails"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        marker = Path(self.options.pop("marker"))
        writer = super().streamWriter(schema, overwrite)
        commit = writer.commit

        def commit_and_fail(messages: Any, batchId: int) -> None:  # noqa: N803
            commit(messages, batchId)
            if not marker.exists():
                marker.touch()
                raise RuntimeError("the driver fails after the commit")

        writer.commit = commit_and_fail  # type: ignore[method-assign]
        return writer


def test_a_commit_that_fails_after_its_success_is_not_undone_and_not_repeated(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    spark.dataSource.register(CommitFailsOnce)
    source = f"{topic}-source"
    client.create_topic(source, partitions=3)
    sent = fill(client, source)
    stream = read_stream(spark, broker, source)
    options = {"sink": "flymq_commit_fails", "marker": str(tmp_path / "marker")}
    query = start_copy(stream, broker, topic, tmp_path / "checkpoint", **options)
    with pytest.raises(Exception, match="the driver fails after the commit"):
        query.awaitTermination()
    assert values(read(spark, broker, topic)) == sent
    copy(stream, broker, topic, tmp_path / "checkpoint", **options)
    assert values(read(spark, broker, topic)) == sent
    assert_no_transaction_is_open(client, topic)


def test_a_named_write_is_done_once(spark: SparkSession, broker: TestBroker, topic: str) -> None:
    frame = spark.createDataFrame([("v",)], "value string")
    for version in (0, 0, 1, 0):
        write(frame, broker, topic, txnAppId=topic[:40], txnVersion=version)
    assert values(read(spark, broker, topic)) == ["v", "v"]
