"""`spark.readStream.format("flymq")`: what is read when, and what happens to what cannot be read any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.topics import collected, read_stream, values

from flymq import FlyMQClient, TopicPartition
from flymq.spark.lag import LagListener
from flymq.spark.options import parse_read_options
from flymq.spark.source.columns import full_schema
from flymq.spark.source.stream_reader import IDLE_WAIT_MS, StreamReader
from flymq.testing import TestBroker, running_broker


def put(client: FlyMQClient, topic: str, *records: str) -> None:
    for partition, record in enumerate(records):
        client.produce(topic, record, partition=partition)


def test_a_restarted_query_goes_on_where_it_was_and_finds_new_partitions_from_their_beginning(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    put(client, topic, "a0", "a1")
    frame = read_stream(spark, broker, topic, groupId=f"{topic}-group")
    assert collected(frame, tmp_path, values) == [["a0", "a1"]]
    lag = client.admin.describe_group(f"{topic}-group").positions
    assert [(position.offset, position.lag) for position in lag] == [(1, 0), (1, 0), (0, 0)]

    client.admin.add_partitions(topic, 4)
    put(client, topic, "b0")
    with FlyMQClient(broker.address) as other:
        other.produce(topic, "b3", partition=3)
    assert collected(frame, tmp_path, values) == [["b0", "b3"]]
    assert collected(frame, tmp_path, values) == []


def test_a_listener_shows_the_lag_of_every_query_under_its_name(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    listener = LagListener(broker.address, prefix=topic)
    spark.streams.addListener(listener)
    try:
        put(client, topic, "a0", "a1")
        query = read_stream(spark, broker, topic).writeStream.queryName("lagging").format("noop")
        query.option("checkpointLocation", str(tmp_path)).trigger(once=True).start().awaitTermination()
        group = f"{topic}-lagging"
        until(lambda: group in [found.name for found in client.admin.list_groups()])
        lag = client.admin.describe_group(group).positions
        assert [(position.offset, position.lag) for position in lag] == [(1, 0), (1, 0), (0, 0)]
    finally:
        spark.streams.removeListener(listener)


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_a_new_query_begins_at_the_latest_unless_told_otherwise(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    put(client, topic, "before")
    frame = read_stream(spark, broker, topic, startingOffsets="")
    assert collected(frame, tmp_path, values) == [[]]
    put(client, topic, "after")
    assert collected(frame, tmp_path, values) == [["after"]]


def test_a_micro_batch_takes_no_more_than_its_limit_in_proportion(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    for partition, count in enumerate((20, 10, 0)):
        client.produce_batch(topic, [f"{partition}"] * count, partition=partition)
    frame = read_stream(spark, broker, topic, maxOffsetsPerTrigger=15)

    def sizes(batch: DataFrame) -> dict[int, int]:
        return {row.partition: row["count"] for row in batch.groupBy("partition").count().collect()}

    assert collected(frame, tmp_path, sizes) == [{0: 10, 1: 5}, {0: 10, 1: 5}]


def test_a_query_waits_for_its_least_number_of_records_but_not_for_ever(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    put(client, topic, "at once")  # the first micro-batch waits for nothing
    patient, hasty = (
        read_stream(spark, broker, topic, minOffsetsPerTrigger=100, maxTriggerDelay=delay)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / delay))
        .start()
        for delay in ("1h", "1ms")
    )
    try:
        patient.processAllAvailable()
        hasty.processAllAvailable()
        put(client, topic, "later")
        until(lambda: rows_in(hasty) == 2)
        assert rows_in(patient) == 1
    finally:
        patient.stop()
        hasty.stop()


def rows_in(query: StreamingQuery) -> int:
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def test_removed_records_fail_a_query_or_are_passed_over(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    put(client, topic, "0")
    strict = read_stream(spark, broker, topic)
    assert collected(strict, tmp_path, values) == [["0"]]
    for number in range(1, 6):
        client.produce(topic, str(number), partition=0)
    client.admin.delete_records({TopicPartition(topic, 0): 4})
    with pytest.raises(Exception, match=rf"{topic}-0 no longer has the offsets 1 to 3: .*Set failOnDataLoss to false"):
        collected(strict, tmp_path, values)
    lenient = read_stream(spark, broker, topic, failOnDataLoss="false")
    assert collected(lenient, tmp_path, values) == [["4", "5"]]


def test_a_topic_made_anew_fails_a_query_or_is_read_from_its_beginning(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    put(client, topic, *["old"] * 3)
    put(client, topic, *["old"] * 3)
    strict = read_stream(spark, broker, topic)
    assert collected(strict, tmp_path, values) == [["old"] * 6]
    client.delete_topic(topic)
    with pytest.raises(Exception, match=rf"the topic '{topic}' does not exist"):
        collected(strict, tmp_path, values)
    lenient = read_stream(spark, broker, topic, failOnDataLoss="false")
    assert collected(lenient, tmp_path, values) == []
    client.create_topic(topic, partitions=3)
    put(client, topic, "new")
    with pytest.raises(Exception, match=rf"{topic}-\d was read up to 2, but now ends at \d: "):
        collected(strict, tmp_path, values)
    assert collected(lenient, tmp_path, values) == [["new"]]


def test_a_stream_has_no_end_and_its_errors_say_what_to_do(
    spark: SparkSession, broker: TestBroker, topic: str, tmp_path: Path
) -> None:
    frame = read_stream(spark, broker, topic, endingOffsets='{"x": {"0": 1}}')
    with pytest.raises(Exception, match="only for batch queries"):
        collected(frame, tmp_path / "end", values)
    with pytest.raises(Exception, match=r"the topic 'nowhere' does not exist\. Create it"):
        collected(read_stream(spark, broker, "nowhere"), tmp_path / "nowhere", values)


def test_a_query_outlives_a_restart_of_its_broker(spark: SparkSession, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with running_broker(data_dir) as first:
        with FlyMQClient(first.address) as client:
            client.create_topic("lasting", partitions=2)
            put(client, "lasting", "before")
        frame = read_stream(spark, first, "lasting")
        query = frame.writeStream.format("memory").queryName("lasting").start()
        query.processAllAvailable()
    try:
        with running_broker(data_dir, {"listener.port": first.port}), FlyMQClient(first.address) as client:
            put(client, "lasting", "after", "after too")
            query.processAllAvailable()
            assert values(spark.table("lasting")) == ["after", "after too", "before"]
    finally:
        query.stop()


def test_an_idle_query_waits_at_the_broker_until_something_comes(
    broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    options = parse_read_options({"bootstrapServers": broker.address, "subscribe": topic})
    reader = StreamReader(options, full_schema(include_headers=False))
    start = reader.initialOffset()
    began_s = time.monotonic()
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    assert time.monotonic() - began_s >= 0.9 * IDLE_WAIT_MS / 1000

    soon = threading.Timer(0.05, client.produce, (topic, "at last"), {"partition": 1})
    soon.start()
    while (found := reader.latestOffset(start, reader.getDefaultReadLimit())) == start:
        continue  # a busy machine may take longer than one wait
    soon.join()
    assert found == {topic: {"0": 0, "1": 1, "2": 0}}
