"""OffsetFetch, versions 1 to 10. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Writer

COMPACT_FROM = 6
_16S = Struct(">16s")
_I = Struct(">i")
_T = Struct(">?")
_IQI = Struct(">iqi")
_H = Struct(">h")
_IQ = Struct(">iq")


class OffsetFetchRequestTopics(msgspec.Struct):
    name: str = ""
    topic_id: bytes = NO_ID
    partition_indexes: list[int] = []


class OffsetFetchRequestGroup(msgspec.Struct):
    group_id: str = ""
    member_id: str | None = None
    member_epoch: int = -1
    topics: list[OffsetFetchRequestTopics] | None = None


class OffsetFetchRequestTopic(msgspec.Struct):
    name: str = ""
    partition_indexes: list[int] = []


class OffsetFetchRequest(msgspec.Struct):
    group_id: str = ""
    topics: list[OffsetFetchRequestTopic] | None = None
    groups: list[OffsetFetchRequestGroup] = []
    require_stable: bool = False


class OffsetFetchResponsePartitions(msgspec.Struct):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = None
    error_code: int = 0


class OffsetFetchResponseTopics(msgspec.Struct):
    name: str = ""
    topic_id: bytes = NO_ID
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponseGroup(msgspec.Struct):
    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: int = 0


class OffsetFetchResponsePartition(msgspec.Struct):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = None
    error_code: int = 0


class OffsetFetchResponseTopic(msgspec.Struct):
    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    topics: list[OffsetFetchResponseTopic] = []
    error_code: int = 0
    groups: list[OffsetFetchResponseGroup] = []


def _parse_offset_fetch_request_topics(reader: Reader, version: int) -> OffsetFetchRequestTopics:
    name = ""
    if version <= 9:
        name = reader.string()
    topic_id = NO_ID
    if version >= 10:
        (topic_id,) = reader.unpack(_16S)
    partition_indexes = reader.int32s()
    reader.end()
    return OffsetFetchRequestTopics(name, topic_id, partition_indexes)


def _parse_offset_fetch_request_group(reader: Reader, version: int) -> OffsetFetchRequestGroup:
    group_id = reader.string()
    member_id: str | None = None
    if version >= 9:
        member_id = reader.nullable_string()
    member_epoch = -1
    if version >= 9:
        (member_epoch,) = reader.unpack(_I)
    topics = (
        None
        if (amount := reader.nullable_count()) < 0
        else [_parse_offset_fetch_request_topics(reader, version) for _ in range(amount)]
    )
    reader.end()
    return OffsetFetchRequestGroup(group_id, member_id, member_epoch, topics)


def _parse_offset_fetch_request_topic(reader: Reader, _version: int) -> OffsetFetchRequestTopic:
    name = reader.string()
    partition_indexes = reader.int32s()
    reader.end()
    return OffsetFetchRequestTopic(name, partition_indexes)


def parse_request(reader: Reader, version: int) -> OffsetFetchRequest:
    group_id = ""
    if version <= 7:
        group_id = reader.string()
    topics: list[OffsetFetchRequestTopic] | None = None
    if version <= 7:
        topics = (
            None
            if (amount := reader.nullable_count()) < 0
            else [_parse_offset_fetch_request_topic(reader, version) for _ in range(amount)]
        )
    groups: list[OffsetFetchRequestGroup] = []
    if version >= 8:
        groups = [_parse_offset_fetch_request_group(reader, version) for _ in range(reader.count())]
    require_stable = False
    if version >= 7:
        (require_stable,) = reader.unpack(_T)
    reader.end()
    return OffsetFetchRequest(group_id, topics, groups, require_stable)


def _encode_offset_fetch_response_partitions(
    writer: Writer, value: OffsetFetchResponsePartitions, _version: int
) -> None:
    writer += _IQI.pack(value.partition_index, value.committed_offset, value.committed_leader_epoch)
    writer.nullable_string(value.metadata)
    writer += _H.pack(value.error_code)
    writer.end()


def _encode_offset_fetch_response_topics(writer: Writer, value: OffsetFetchResponseTopics, version: int) -> None:
    if version <= 9:
        writer.string(value.name)
    if version >= 10:
        writer += _16S.pack(value.topic_id)
    writer.amount(value.partitions)
    for offset_fetch_response_partitions in value.partitions:
        _encode_offset_fetch_response_partitions(writer, offset_fetch_response_partitions, version)
    writer.end()


def _encode_offset_fetch_response_group(writer: Writer, value: OffsetFetchResponseGroup, version: int) -> None:
    writer.string(value.group_id)
    writer.amount(value.topics)
    for offset_fetch_response_topics in value.topics:
        _encode_offset_fetch_response_topics(writer, offset_fetch_response_topics, version)
    writer += _H.pack(value.error_code)
    writer.end()


def _encode_offset_fetch_response_partition(writer: Writer, value: OffsetFetchResponsePartition, version: int) -> None:
    writer += _IQ.pack(value.partition_index, value.committed_offset)
    if version >= 5:
        writer += _I.pack(value.committed_leader_epoch)
    writer.nullable_string(value.metadata)
    writer += _H.pack(value.error_code)
    writer.end()


def _encode_offset_fetch_response_topic(writer: Writer, value: OffsetFetchResponseTopic, version: int) -> None:
    writer.string(value.name)
    writer.amount(value.partitions)
    for offset_fetch_response_partition in value.partitions:
        _encode_offset_fetch_response_partition(writer, offset_fetch_response_partition, version)
    writer.end()


def encode_response(writer: Writer, value: OffsetFetchResponse, version: int) -> None:
    if version >= 3:
        writer += _I.pack(value.throttle_time_ms)
    if version <= 7:
        writer.amount(value.topics)
        for offset_fetch_response_topic in value.topics:
            _encode_offset_fetch_response_topic(writer, offset_fetch_response_topic, version)
    if 2 <= version <= 7:
        writer += _H.pack(value.error_code)
    if version >= 8:
        writer.amount(value.groups)
        for offset_fetch_response_group in value.groups:
            _encode_offset_fetch_response_group(writer, offset_fetch_response_group, version)
    writer.end()


RESPONSE = OffsetFetchResponse
