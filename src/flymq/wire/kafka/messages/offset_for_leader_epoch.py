"""OffsetForLeaderEpoch, versions 2 to 4. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 4
_III = Struct(">iii")
_I = Struct(">i")
_HIIQ = Struct(">hiiq")


class OffsetForLeaderPartition(msgspec.Struct):
    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0


class OffsetForLeaderTopic(msgspec.Struct):
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(msgspec.Struct):
    replica_id: int = -2
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(msgspec.Struct):
    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


class OffsetForLeaderTopicResult(msgspec.Struct):
    topic: str = ""
    partitions: list[EpochEndOffset] = []


class OffsetForLeaderEpochResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderTopicResult] = []


def _parse_offset_for_leader_partition(reader: Reader, _version: int) -> OffsetForLeaderPartition:
    partition, current_leader_epoch, leader_epoch = reader.unpack(_III)
    reader.end()
    return OffsetForLeaderPartition(partition, current_leader_epoch, leader_epoch)


def _parse_offset_for_leader_topic(reader: Reader, version: int) -> OffsetForLeaderTopic:
    topic = reader.string()
    partitions = [_parse_offset_for_leader_partition(reader, version) for _ in range(reader.count())]
    reader.end()
    return OffsetForLeaderTopic(topic, partitions)


def parse_request(reader: Reader, version: int) -> OffsetForLeaderEpochRequest:
    replica_id = -2
    if version >= 3:
        (replica_id,) = reader.unpack(_I)
    topics = [_parse_offset_for_leader_topic(reader, version) for _ in range(reader.count())]
    reader.end()
    return OffsetForLeaderEpochRequest(replica_id, topics)


def _encode_epoch_end_offset(writer: Writer, value: EpochEndOffset, _version: int) -> None:
    writer += _HIIQ.pack(value.error_code, value.partition, value.leader_epoch, value.end_offset)
    writer.end()


def _encode_offset_for_leader_topic_result(writer: Writer, value: OffsetForLeaderTopicResult, version: int) -> None:
    writer.string(value.topic)
    writer.amount(value.partitions)
    for epoch_end_offset in value.partitions:
        _encode_epoch_end_offset(writer, epoch_end_offset, version)
    writer.end()


def encode_response(writer: Writer, value: OffsetForLeaderEpochResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.topics)
    for offset_for_leader_topic_result in value.topics:
        _encode_offset_for_leader_topic_result(writer, offset_for_leader_topic_result, version)
    writer.end()


RESPONSE = OffsetForLeaderEpochResponse
