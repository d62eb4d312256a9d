"""OffsetCommit, versions 2 to 10. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Writer

COMPACT_FROM = 8
_IQ = Struct(">iq")
_I = Struct(">i")
_16S = Struct(">16s")
_Q = Struct(">q")
_IH = Struct(">ih")


class OffsetCommitRequestPartition(msgspec.Struct):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = None


class OffsetCommitRequestTopic(msgspec.Struct):
    name: str = ""
    topic_id: bytes = NO_ID
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(msgspec.Struct):
    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    retention_time_ms: int = -1
    group_instance_id: str | None = None
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(msgspec.Struct):
    partition_index: int = 0
    error_code: int = 0


class OffsetCommitResponseTopic(msgspec.Struct):
    name: str = ""
    topic_id: bytes = NO_ID
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    topics: list[OffsetCommitResponseTopic] = []


def _parse_offset_commit_request_partition(reader: Reader, version: int) -> OffsetCommitRequestPartition:
    partition_index, committed_offset = reader.unpack(_IQ)
    committed_leader_epoch = -1
    if version >= 6:
        (committed_leader_epoch,) = reader.unpack(_I)
    committed_metadata = reader.nullable_string()
    reader.end()
    return OffsetCommitRequestPartition(partition_index, committed_offset, committed_leader_epoch, committed_metadata)


def _parse_offset_commit_request_topic(reader: Reader, version: int) -> OffsetCommitRequestTopic:
    name = ""
    if version <= 9:
        name = reader.string()
    topic_id = NO_ID
    if version >= 10:
        (topic_id,) = reader.unpack(_16S)
    partitions = [_parse_offset_commit_request_partition(reader, version) for _ in range(reader.count())]
    reader.end()
    return OffsetCommitRequestTopic(name, topic_id, partitions)


def parse_request(reader: Reader, version: int) -> OffsetCommitRequest:
    group_id = reader.string()
    (generation_id_or_member_epoch,) = reader.unpack(_I)
    member_id = reader.string()
    retention_time_ms = -1
    if version <= 4:
        (retention_time_ms,) = reader.unpack(_Q)
    group_instance_id: str | None = None
    if version >= 7:
        group_instance_id = reader.nullable_string()
    topics = [_parse_offset_commit_request_topic(reader, version) for _ in range(reader.count())]
    reader.end()
    return OffsetCommitRequest(
        group_id, generation_id_or_member_epoch, member_id, retention_time_ms, group_instance_id, topics
    )


def _encode_offset_commit_response_partition(
    writer: Writer, value: OffsetCommitResponsePartition, _version: int
) -> None:
    writer += _IH.pack(value.partition_index, value.error_code)
    writer.end()


def _encode_offset_commit_response_topic(writer: Writer, value: OffsetCommitResponseTopic, version: int) -> None:
    if version <= 9:
        writer.string(value.name)
    if version >= 10:
        writer += _16S.pack(value.topic_id)
    writer.amount(value.partitions)
    for offset_commit_response_partition in value.partitions:
        _encode_offset_commit_response_partition(writer, offset_commit_response_partition, version)
    writer.end()


def encode_response(writer: Writer, value: OffsetCommitResponse, version: int) -> None:
    if version >= 3:
        writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.topics)
    for offset_commit_response_topic in value.topics:
        _encode_offset_commit_response_topic(writer, offset_commit_response_topic, version)
    writer.end()


RESPONSE = OffsetCommitResponse
