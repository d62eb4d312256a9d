"""Values become columns, and what cannot be decoded becomes a row or a dead letter, never a failed query."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from pyspark.sql import SparkSession
from tests.spark.topics import copy, read, read_stream

from flymq import FlyMQClient
from flymq.model.errors import InvalidColumns
from flymq.spark.values import dead_letters, decode_avro, decode_json, decode_messagepack
from flymq.testing import TestBroker

SCHEMA = "id long, name string"
AVRO = {
    "type": "record",
    "name": "Person",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}


def avro(value: object) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, AVRO, value)
    return stream.getvalue()


def test_json_messagepack_and_avro_become_columns_and_bad_values_say_why(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str
) -> None:
    ada = {"id": 1, "name": "Ada"}
    encoders: list[Callable[[Any], bytes]] = [lambda value: json.dumps(value).encode(), msgspec.msgpack.encode, avro]
    for partition, encode in enumerate(encoders):
        for value in (encode(ada), b"\xc1 broken", None):
            client.produce(topic, value, partition=partition)
    client.produce(topic, b'{"id": "one"}', partition=0)
    client.produce(topic, msgspec.msgpack.encode({"id": "one"}), partition=1)
    frame = read(spark, broker, topic)
    decoders = (
        lambda part: decode_json(part, SCHEMA),
        lambda part: decode_messagepack(part, SCHEMA),
        lambda part: decode_avro(part, AVRO),
    )
    for partition, decode in enumerate(decoders):
        decoded = decode(frame.where(f"partition = {partition}")).orderBy("offset").collect()
        assert decoded[0].data.asDict() == ada
        assert [row.data for row in decoded[1:]] == [None] * (len(decoded) - 1)
        bad = [row.error is not None for row in decoded]
        assert bad == [False, True, False, *[True] * (len(decoded) - 3)]


def test_bad_values_go_to_a_dead_letter_topic_in_the_same_transaction(
    spark: SparkSession, broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    good, bad = f"{topic}-good", f"{topic}-bad"
    for name in (good, bad):
        client.create_topic(name, partitions=1)
    client.produce(topic, '{"id": 1, "name": "Ada"}', "k1", partition=2)
    client.produce(topic, "not json", "k2", partition=2, headers={"kept": b"yes"})
    decoded = decode_json(read_stream(spark, broker, topic, includeHeaders="true"), SCHEMA)
    upper = decoded.where("error IS NULL").selectExpr(f"'{good}' AS topic", "key", "upper(data.name) AS value")
    both = upper.selectExpr("topic", "key", "CAST(value AS BINARY) AS value", "NULL AS headers")
    copy(both.unionByName(dead_letters(decoded, bad)), broker, "", tmp_path)

    assert client.consume(good).value == b"ADA"
    letter = client.consume(bad)
    assert (letter.key, letter.value) == (b"k2", b"not json")
    headers = dict(letter.headers)
    assert headers["flymq-error"] == b"not JSON of struct<id:bigint,name:string>"
    assert (headers["flymq-topic"], headers["flymq-partition"], headers["flymq-offset"]) == (topic.encode(), b"2", b"1")
    assert headers["kept"] == b"yes"


def test_a_frame_without_values_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidColumns, match="no column value to decode, only id"):
        decode_json(spark.range(1), SCHEMA)
