"""TxnOffsetCommit, versions 0 to 5. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 3
_IQ = Struct(">iq")
_I = Struct(">i")
_QH = Struct(">qh")
_IH = Struct(">ih")


class TxnOffsetCommitRequestPartition(msgspec.Struct):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = None


class TxnOffsetCommitRequestTopic(msgspec.Struct):
    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequest(msgspec.Struct):
    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(msgspec.Struct):
    partition_index: int = 0
    error_code: int = 0


class TxnOffsetCommitResponseTopic(msgspec.Struct):
    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    topics: list[TxnOffsetCommitResponseTopic] = []


def _parse_txn_offset_commit_request_partition(reader: Reader, version: int) -> TxnOffsetCommitRequestPartition:
    partition_index, committed_offset = reader.unpack(_IQ)
    committed_leader_epoch = -1
    if version >= 2:
        (committed_leader_epoch,) = reader.unpack(_I)
    committed_metadata = reader.nullable_string()
    reader.end()
    return TxnOffsetCommitRequestPartition(
        partition_index, committed_offset, committed_leader_epoch, committed_metadata
    )


def _parse_txn_offset_commit_request_topic(reader: Reader, version: int) -> TxnOffsetCommitRequestTopic:
    name = reader.string()
    partitions = [_parse_txn_offset_commit_request_partition(reader, version) for _ in range(reader.count())]
    reader.end()
    return TxnOffsetCommitRequestTopic(name, partitions)


def parse_request(reader: Reader, version: int) -> TxnOffsetCommitRequest:
    transactional_id = reader.string()
    group_id = reader.string()
    producer_id, producer_epoch = reader.unpack(_QH)
    generation_id = -1
    if version >= 3:
        (generation_id,) = reader.unpack(_I)
    member_id = ""
    if version >= 3:
        member_id = reader.string()
    group_instance_id: str | None = None
    if version >= 3:
        group_instance_id = reader.nullable_string()
    topics = [_parse_txn_offset_commit_request_topic(reader, version) for _ in range(reader.count())]
    reader.end()
    return TxnOffsetCommitRequest(
        transactional_id, group_id, producer_id, producer_epoch, generation_id, member_id, group_instance_id, topics
    )


def _encode_txn_offset_commit_response_partition(
    writer: Writer, value: TxnOffsetCommitResponsePartition, _version: int
) -> None:
    writer += _IH.pack(value.partition_index, value.error_code)
    writer.end()


def _encode_txn_offset_commit_response_topic(writer: Writer, value: TxnOffsetCommitResponseTopic, version: int) -> None:
    writer.string(value.name)
    writer.amount(value.partitions)
    for txn_offset_commit_response_partition in value.partitions:
        _encode_txn_offset_commit_response_partition(writer, txn_offset_commit_response_partition, version)
    writer.end()


def encode_response(writer: Writer, value: TxnOffsetCommitResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.topics)
    for txn_offset_commit_response_topic in value.topics:
        _encode_txn_offset_commit_response_topic(writer, txn_offset_commit_response_topic, version)
    writer.end()


RESPONSE = TxnOffsetCommitResponse
