"""ListOffsets, versions 1 to 11. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 6
_I = Struct(">i")
_Q = Struct(">q")
_B = Struct(">b")
_IHQQ = Struct(">ihqq")


class ListOffsetsPartition(msgspec.Struct):
    partition_index: int = 0
    current_leader_epoch: int = -1
    timestamp: int = 0


class ListOffsetsTopic(msgspec.Struct):
    name: str = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(msgspec.Struct):
    replica_id: int = 0
    isolation_level: int = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: int = 0


class ListOffsetsPartitionResponse(msgspec.Struct):
    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsTopicResponse(msgspec.Struct):
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    topics: list[ListOffsetsTopicResponse] = []


def _parse_list_offsets_partition(reader: Reader, version: int) -> ListOffsetsPartition:
    (partition_index,) = reader.unpack(_I)
    current_leader_epoch = -1
    if version >= 4:
        (current_leader_epoch,) = reader.unpack(_I)
    (timestamp,) = reader.unpack(_Q)
    reader.end()
    return ListOffsetsPartition(partition_index, current_leader_epoch, timestamp)


def _parse_list_offsets_topic(reader: Reader, version: int) -> ListOffsetsTopic:
    name = reader.string()
    partitions = [_parse_list_offsets_partition(reader, version) for _ in range(reader.count())]
    reader.end()
    return ListOffsetsTopic(name, partitions)


def parse_request(reader: Reader, version: int) -> ListOffsetsRequest:
    (replica_id,) = reader.unpack(_I)
    isolation_level = 0
    if version >= 2:
        (isolation_level,) = reader.unpack(_B)
    topics = [_parse_list_offsets_topic(reader, version) for _ in range(reader.count())]
    timeout_ms = 0
    if version >= 10:
        (timeout_ms,) = reader.unpack(_I)
    reader.end()
    return ListOffsetsRequest(replica_id, isolation_level, topics, timeout_ms)


def _encode_list_offsets_partition_response(writer: Writer, value: ListOffsetsPartitionResponse, version: int) -> None:
    writer += _IHQQ.pack(value.partition_index, value.error_code, value.timestamp, value.offset)
    if version >= 4:
        writer += _I.pack(value.leader_epoch)
    writer.end()


def _encode_list_offsets_topic_response(writer: Writer, value: ListOffsetsTopicResponse, version: int) -> None:
    writer.string(value.name)
    writer.amount(value.partitions)
    for list_offsets_partition_response in value.partitions:
        _encode_list_offsets_partition_response(writer, list_offsets_partition_response, version)
    writer.end()


def encode_response(writer: Writer, value: ListOffsetsResponse, version: int) -> None:
    if version >= 2:
        writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.topics)
    for list_offsets_topic_response in value.topics:
        _encode_list_offsets_topic_response(writer, list_offsets_topic_response, version)
    writer.end()


RESPONSE = ListOffsetsResponse
