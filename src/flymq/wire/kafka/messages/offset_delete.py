"""OffsetDelete, version 0. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 1
_I = Struct(">i")
_IH = Struct(">ih")
_HI = Struct(">hi")


class OffsetDeleteRequestPartition(msgspec.Struct):
    partition_index: int = 0


class OffsetDeleteRequestTopic(msgspec.Struct):
    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequest(msgspec.Struct):
    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponsePartition(msgspec.Struct):
    partition_index: int = 0
    error_code: int = 0


class OffsetDeleteResponseTopic(msgspec.Struct):
    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponse(msgspec.Struct):
    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponseTopic] = []


def _parse_offset_delete_request_partition(reader: Reader, _version: int) -> OffsetDeleteRequestPartition:
    (partition_index,) = reader.unpack(_I)
    reader.end()
    return OffsetDeleteRequestPartition(partition_index)


def _parse_offset_delete_request_topic(reader: Reader, version: int) -> OffsetDeleteRequestTopic:
    name = reader.string()
    partitions = [_parse_offset_delete_request_partition(reader, version) for _ in range(reader.count())]
    reader.end()
    return OffsetDeleteRequestTopic(name, partitions)


def parse_request(reader: Reader, version: int) -> OffsetDeleteRequest:
    group_id = reader.string()
    topics = [_parse_offset_delete_request_topic(reader, version) for _ in range(reader.count())]
    reader.end()
    return OffsetDeleteRequest(group_id, topics)


def _encode_offset_delete_response_partition(
    writer: Writer, value: OffsetDeleteResponsePartition, _version: int
) -> None:
    writer += _IH.pack(value.partition_index, value.error_code)
    writer.end()


def _encode_offset_delete_response_topic(writer: Writer, value: OffsetDeleteResponseTopic, version: int) -> None:
    writer.string(value.name)
    writer.amount(value.partitions)
    for offset_delete_response_partition in value.partitions:
        _encode_offset_delete_response_partition(writer, offset_delete_response_partition, version)
    writer.end()


def encode_response(writer: Writer, value: OffsetDeleteResponse, version: int) -> None:
    writer += _HI.pack(value.error_code, value.throttle_time_ms)
    writer.amount(value.topics)
    for offset_delete_response_topic in value.topics:
        _encode_offset_delete_response_topic(writer, offset_delete_response_topic, version)
    writer.end()


RESPONSE = OffsetDeleteResponse
