"""AlterPartitionReassignments, versions 0 to 1. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 0
_I = Struct(">i")
_T = Struct(">?")
_IH = Struct(">ih")
_H = Struct(">h")


class ReassignablePartition(msgspec.Struct):
    partition_index: int = 0
    replicas: list[int] | None = None


class ReassignableTopic(msgspec.Struct):
    name: str = ""
    partitions: list[ReassignablePartition] = []


class AlterPartitionReassignmentsRequest(msgspec.Struct):
    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True
    topics: list[ReassignableTopic] = []


class ReassignablePartitionResponse(msgspec.Struct):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None


class ReassignableTopicResponse(msgspec.Struct):
    name: str = ""
    partitions: list[ReassignablePartitionResponse] = []


class AlterPartitionReassignmentsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True
    error_code: int = 0
    error_message: str | None = None
    responses: list[ReassignableTopicResponse] = []


def _parse_reassignable_partition(reader: Reader, _version: int) -> ReassignablePartition:
    (partition_index,) = reader.unpack(_I)
    replicas = reader.nullable_int32s()
    reader.end()
    return ReassignablePartition(partition_index, replicas)


def _parse_reassignable_topic(reader: Reader, version: int) -> ReassignableTopic:
    name = reader.string()
    partitions = [_parse_reassignable_partition(reader, version) for _ in range(reader.count())]
    reader.end()
    return ReassignableTopic(name, partitions)


def parse_request(reader: Reader, version: int) -> AlterPartitionReassignmentsRequest:
    (timeout_ms,) = reader.unpack(_I)
    allow_replication_factor_change = True
    if version >= 1:
        (allow_replication_factor_change,) = reader.unpack(_T)
    topics = [_parse_reassignable_topic(reader, version) for _ in range(reader.count())]
    reader.end()
    return AlterPartitionReassignmentsRequest(timeout_ms, allow_replication_factor_change, topics)


def _encode_reassignable_partition_response(
    writer: Writer, value: ReassignablePartitionResponse, _version: int
) -> None:
    writer += _IH.pack(value.partition_index, value.error_code)
    writer.nullable_string(value.error_message)
    writer.end()


def _encode_reassignable_topic_response(writer: Writer, value: ReassignableTopicResponse, version: int) -> None:
    writer.string(value.name)
    writer.amount(value.partitions)
    for reassignable_partition_response in value.partitions:
        _encode_reassignable_partition_response(writer, reassignable_partition_response, version)
    writer.end()


def encode_response(writer: Writer, value: AlterPartitionReassignmentsResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    if version >= 1:
        writer += _T.pack(value.allow_replication_factor_change)
    writer += _H.pack(value.error_code)
    writer.nullable_string(value.error_message)
    writer.amount(value.responses)
    for reassignable_topic_response in value.responses:
        _encode_reassignable_topic_response(writer, reassignable_topic_response, version)
    writer.end()


RESPONSE = AlterPartitionReassignmentsResponse
