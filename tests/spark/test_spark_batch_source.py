"""`spark.read.format("flymq")`: the columns, offsets and times that users of Spark's Kafka connector know."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from tests.spark.topics import read, values

from flymq import FlyMQClient, TopicPartition, generate_key
from flymq.testing import TestBroker

NOON_MS = 1_700_000_000_000


def fill(client: FlyMQClient, topic: str, count: int = 10) -> None:
    """In each of three partitions, records of one second each: p0-0, p0-1, …"""
    for partition in range(3):
        for number in range(count):
            client.produce(topic, f"p{partition}-{number}", partition=partition, timestamp=NOON_MS + 1000 * number)


def test_a_topic_has_the_columns_of_the_kafka_connector(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    client.produce(topic, b"\x00v", "k", partition=2, headers=[("h", b"1"), ("h", None)], timestamp=NOON_MS)
    client.produce(topic, None, "k", partition=2, timestamp=NOON_MS + 1)
    stamped = f"{topic}-stamped"
    client.create_topic(stamped, 1, settings={"message.timestamp.type": "append"})
    client.produce(stamped, "by the broker", timestamp=5)

    frame = read(spark, broker, f"{topic},{stamped}", includeHeaders="true")
    first, second, third = sorted(frame.collect(), key=lambda row: (row.topic, row.offset))

    assert [field.simpleString() for field in frame.schema] == [
        "key:binary",
        "value:binary",
        "topic:string",
        "partition:int",
        "offset:bigint",
        "timestamp:timestamp",
        "timestampType:int",
        "headers:array<struct<key:string,value:binary>>",
    ]
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition) == (b"k", b"\x00v", topic, 2)
    assert first.timestamp.replace(tzinfo=UTC) == datetime.fromtimestamp(NOON_MS / 1000, UTC)
    assert [(header.key, header.value and bytes(header.value)) for header in first.headers] == [
        ("h", b"1"),
        ("h", None),
    ]
    assert (second.value, second.offset, second.headers, second.timestampType) == (None, 1, [], 0)
    assert (third.key, third.timestampType, third.timestamp.year) == (None, 1, datetime.now(UTC).year)


def test_offsets_say_where_a_batch_begins_and_ends(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    fill(client, topic)
    start = json.dumps({topic: {"0": 8, "1": -2, "2": 9}})
    end = json.dumps({topic: {"0": 9, "1": 1, "2": -1}})
    assert values(read(spark, broker, topic, startingOffsets=start, endingOffsets=end)) == ["p0-8", "p1-0", "p2-9"]
    assert read(spark, broker, topic).count() == 30


def test_times_say_where_a_batch_begins_and_ends(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    fill(client, topic)
    frame = read(spark, broker, topic, startingTimestamp=NOON_MS + 8500, endingTimestamp=NOON_MS + 99_000)
    assert values(frame) == ["p0-9", "p1-9", "p2-9"]
    start = json.dumps({topic: {"0": NOON_MS + 9000, "1": NOON_MS + 99_000, "2": NOON_MS}})
    end = json.dumps({topic: {"0": NOON_MS + 99_000, "1": NOON_MS, "2": NOON_MS + 1000}})
    options = {"startingOffsetsByTimestamp": start, "endingOffsetsByTimestamp": end}
    with pytest.raises(Exception, match="no record with the timestamp of startingOffsetsByTimestamp or later"):
        read(spark, broker, topic, **options).count()
    frame = read(spark, broker, topic, **options, startingOffsetsByTimestampStrategy="latest")
    assert values(frame) == ["p0-9", "p2-0"]


def test_partitions_can_be_assigned_and_topics_found_by_a_pattern(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    fill(client, topic, 2)
    assigned = read(spark, broker, "", assign=json.dumps({topic: [1]}))
    assert values(assigned) == ["p1-0", "p1-1"]
    matching = read(spark, broker, "", subscribePattern=f"{topic[:-1]}.")
    assert matching.count() == 6


def test_filters_spare_what_they_leave_out_and_a_schema_picks_columns(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    fill(client, topic)
    source = spark.read.format("flymq").option("bootstrapServers", broker.address).option("subscribe", topic)
    pushed = source.option("filterPushdown", "true").load()
    picked = source.schema("offset long, value binary").load()
    assert picked.columns == ["offset", "value"]
    assert sorted(row.offset for row in picked.collect()) == sorted(list(range(10)) * 3)

    narrow = pushed.where("partition = 1 AND offset >= 3 AND timestamp >= '2023-11-14 22:13:27'")
    assert narrow.rdd.getNumPartitions() == 1
    assert values(narrow) == ["p1-7", "p1-8", "p1-9"]


def test_a_batch_is_cut_into_more_tasks_than_partitions(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    fill(client, topic)
    frame = read(spark, broker, topic, minPartitions=7)
    assert frame.rdd.getNumPartitions() == 7
    assert frame.select("partition", "offset").distinct().count() == 30
    assert read(spark, broker, topic, maxRecordsPerPartition=2).rdd.getNumPartitions() == 15


def test_records_of_open_and_aborted_transactions_are_seen_only_by_who_asks(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    client.produce(topic, "plain", "key")
    with client.transaction() as committed:
        committed.produce(topic, "committed", "key")
    aborted = client.begin_transaction()
    aborted.produce(topic, "aborted", "key")
    aborted.abort()
    client.produce(topic, "after", "key")
    left_open = client.begin_transaction()
    left_open.produce(topic, "open", "key")
    try:
        assert values(read(spark, broker, topic)) == ["after", "committed", "plain"]
        everything = read(spark, broker, topic, kafka__isolation__level="read_uncommitted")
        assert values(everything) == ["aborted", "after", "committed", "open", "plain"]
    finally:
        left_open.abort()


def test_an_encrypted_topic_is_decrypted_in_the_tasks_with_its_keys(
    spark: SparkSession, broker: TestBroker, topic: str
) -> None:
    old, new = generate_key(), generate_key()
    for key in (old, new):
        with FlyMQClient(broker.address, encryption_key=key) as sender:
            sender.produce(topic, "secret", headers={"kept": b"yes"})
    frame = read(spark, broker, topic, encryptionKey=new, decryptionKeys=old, includeHeaders="true")
    assert values(frame) == ["secret", "secret"]
    assert {header.key for row in frame.collect() for header in row.headers} == {"kept"}
    with pytest.raises(Exception, match=r"at offset 0: the message was encrypted with the key \w+, which this client"):
        read(spark, broker, topic, encryptionKey=new).count()


def test_a_task_that_finds_its_records_removed_says_so_or_reads_what_is_left(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    fill(client, topic)
    strict, lenient = read(spark, broker, topic), read(spark, broker, topic, failOnDataLoss="false")
    assert strict.count() == lenient.count() == 30  # Spark has planned both, and keeps the plan with the frame
    client.admin.delete_records({TopicPartition(topic, 1): 7})
    assert lenient.count() == 23
    with pytest.raises(
        Exception, match=rf"{topic}-1 starts at 7 and no longer has the offsets 0 to 9: .*failOnDataLoss"
    ):
        strict.count()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "nowhere"}, r"the topic 'nowhere' does not exist\. Create it"),
        (
            {"startingOfsets": "earliest"},
            r"unknown option 'startingofsets' for reading\. Did you mean startingOffsets\?",
        ),
        ({"startingOffsets": "latest"}, r"startingOffsets has a value that is not valid for a batch\. Start a batch"),
        ({"endingOffsets": "earliest"}, r"endingOffsets has a value that is not valid for a batch\. End a batch"),
        ({"startingOffsets": '{"TOPIC": {"0": 99, "1": 0, "2": 0}}'}, "offset 99 for .*-0, which has 0 to 1"),
        ({"bootstrapServers": "127.0.0.1:1"}, r"no broker at 127.0.0.1:1: .*\. Check the address"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line_with_what_to_do(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, options: dict[str, str], said: str
) -> None:
    client.produce(topic, "x", partition=0)
    chosen = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises(Exception, match=said):
        read(spark, broker, topic, **chosen).count()


def test_a_schema_that_topics_do_not_have_is_refused(spark: SparkSession, broker: TestBroker, topic: str) -> None:
    source = spark.read.format("flymq").option("bootstrapServers", broker.address).option("subscribe", topic)
    with pytest.raises(Exception, match=r"topics have no column 'amount'.*Select from key, value"):
        source.schema("amount double").load().count()
    with pytest.raises(Exception, match=r"the column value is binary, not string.*cast or decode it later"):
        source.schema("value string").load().count()
