"""DescribeTopicPartitions, version 0. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Writer

COMPACT_FROM = 0
_I = Struct(">i")
_HIII = Struct(">hiii")
_H = Struct(">h")
_16ST = Struct(">16s?")


class TopicRequest(msgspec.Struct):
    name: str = ""


class Cursor(msgspec.Struct):
    topic_name: str = ""
    partition_index: int = 0


class DescribeTopicPartitionsRequest(msgspec.Struct):
    topics: list[TopicRequest] = []
    response_partition_limit: int = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(msgspec.Struct):
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = []
    isr_nodes: list[int] = []
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None
    offline_replicas: list[int] = []


class DescribeTopicPartitionsResponseTopic(msgspec.Struct):
    error_code: int = 0
    name: str | None = None
    topic_id: bytes = NO_ID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: int = -2147483648


class DescribeTopicPartitionsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None


def _parse_topic_request(reader: Reader, _version: int) -> TopicRequest:
    name = reader.string()
    reader.end()
    return TopicRequest(name)


def _parse_cursor(reader: Reader, _version: int) -> Cursor:
    topic_name = reader.string()
    (partition_index,) = reader.unpack(_I)
    reader.end()
    return Cursor(topic_name, partition_index)


def parse_request(reader: Reader, version: int) -> DescribeTopicPartitionsRequest:
    topics = [_parse_topic_request(reader, version) for _ in range(reader.count())]
    (response_partition_limit,) = reader.unpack(_I)
    cursor = _parse_cursor(reader, version) if reader.is_present() else None
    reader.end()
    return DescribeTopicPartitionsRequest(topics, response_partition_limit, cursor)


def _encode_describe_topic_partitions_response_partition(
    writer: Writer, value: DescribeTopicPartitionsResponsePartition, _version: int
) -> None:
    writer += _HIII.pack(value.error_code, value.partition_index, value.leader_id, value.leader_epoch)
    writer.int32s(value.replica_nodes)
    writer.int32s(value.isr_nodes)
    writer.nullable_int32s(value.eligible_leader_replicas)
    writer.nullable_int32s(value.last_known_elr)
    writer.int32s(value.offline_replicas)
    writer.end()


def _encode_describe_topic_partitions_response_topic(
    writer: Writer, value: DescribeTopicPartitionsResponseTopic, version: int
) -> None:
    writer += _H.pack(value.error_code)
    writer.nullable_string(value.name)
    writer += _16ST.pack(value.topic_id, value.is_internal)
    writer.amount(value.partitions)
    for describe_topic_partitions_response_partition in value.partitions:
        _encode_describe_topic_partitions_response_partition(
            writer, describe_topic_partitions_response_partition, version
        )
    writer += _I.pack(value.topic_authorized_operations)
    writer.end()


def _encode_cursor(writer: Writer, value: Cursor, _version: int) -> None:
    writer.string(value.topic_name)
    writer += _I.pack(value.partition_index)
    writer.end()


def encode_response(writer: Writer, value: DescribeTopicPartitionsResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.topics)
    for describe_topic_partitions_response_topic in value.topics:
        _encode_describe_topic_partitions_response_topic(writer, describe_topic_partitions_response_topic, version)
    writer.presence(value.next_cursor)
    if value.next_cursor is not None:
        _encode_cursor(writer, value.next_cursor, version)
    writer.end()


RESPONSE = DescribeTopicPartitionsResponse
