"""ConsumerGroupHeartbeat, versions 0 to 1. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Writer

COMPACT_FROM = 0
_16S = Struct(">16s")
_I = Struct(">i")
_IH = Struct(">ih")
_II = Struct(">ii")


class TopicPartitions(msgspec.Struct):
    topic_id: bytes = NO_ID
    partitions: list[int] = []


class ConsumerGroupHeartbeatRequest(msgspec.Struct):
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None


class Assignment(msgspec.Struct):
    topic_partitions: list[TopicPartitions] = []


class ConsumerGroupHeartbeatResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


def _parse_topic_partitions(reader: Reader, _version: int) -> TopicPartitions:
    (topic_id,) = reader.unpack(_16S)
    partitions = reader.int32s()
    reader.end()
    return TopicPartitions(topic_id, partitions)


def parse_request(reader: Reader, version: int) -> ConsumerGroupHeartbeatRequest:
    group_id = reader.string()
    member_id = reader.string()
    (member_epoch,) = reader.unpack(_I)
    instance_id = reader.nullable_string()
    rack_id = reader.nullable_string()
    (rebalance_timeout_ms,) = reader.unpack(_I)
    subscribed_topic_names = (
        None if (amount := reader.nullable_count()) < 0 else [reader.string() for _ in range(amount)]
    )
    subscribed_topic_regex: str | None = None
    if version >= 1:
        subscribed_topic_regex = reader.nullable_string()
    server_assignor = reader.nullable_string()
    topic_partitions = (
        None
        if (amount := reader.nullable_count()) < 0
        else [_parse_topic_partitions(reader, version) for _ in range(amount)]
    )
    reader.end()
    return ConsumerGroupHeartbeatRequest(
        group_id,
        member_id,
        member_epoch,
        instance_id,
        rack_id,
        rebalance_timeout_ms,
        subscribed_topic_names,
        subscribed_topic_regex,
        server_assignor,
        topic_partitions,
    )


def _encode_topic_partitions(writer: Writer, value: TopicPartitions, _version: int) -> None:
    writer += _16S.pack(value.topic_id)
    writer.int32s(value.partitions)
    writer.end()


def _encode_assignment(writer: Writer, value: Assignment, version: int) -> None:
    writer.amount(value.topic_partitions)
    for topic_partitions in value.topic_partitions:
        _encode_topic_partitions(writer, topic_partitions, version)
    writer.end()


def encode_response(writer: Writer, value: ConsumerGroupHeartbeatResponse, version: int) -> None:
    writer += _IH.pack(value.throttle_time_ms, value.error_code)
    writer.nullable_string(value.error_message)
    writer.nullable_string(value.member_id)
    writer += _II.pack(value.member_epoch, value.heartbeat_interval_ms)
    writer.presence(value.assignment)
    if value.assignment is not None:
        _encode_assignment(writer, value.assignment, version)
    writer.end()


RESPONSE = ConsumerGroupHeartbeatResponse
