"""ConsumerGroupDescribe, versions 0 to 1. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Writer

COMPACT_FROM = 0
_T = Struct(">?")
_16S = Struct(">16s")
_I = Struct(">i")
_B = Struct(">b")
_H = Struct(">h")
_II = Struct(">ii")


class ConsumerGroupDescribeRequest(msgspec.Struct):
    group_ids: list[str] = []
    include_authorized_operations: bool = False


class TopicPartitions(msgspec.Struct):
    topic_id: bytes = NO_ID
    topic_name: str = ""
    partitions: list[int] = []


class Assignment(msgspec.Struct):
    topic_partitions: list[TopicPartitions] = []


class Member(msgspec.Struct):
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    assignment: Assignment = msgspec.field(default_factory=Assignment)
    target_assignment: Assignment = msgspec.field(default_factory=Assignment)
    member_type: int = -1


class DescribedGroup(msgspec.Struct):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: list[Member] = []
    authorized_operations: int = -2147483648


class ConsumerGroupDescribeResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = []


def parse_request(reader: Reader, version: int) -> ConsumerGroupDescribeRequest:
    group_ids = [reader.string() for _ in range(reader.count())]
    (include_authorized_operations,) = reader.unpack(_T)
    reader.end()
    return ConsumerGroupDescribeRequest(group_ids, include_authorized_operations)


def _encode_topic_partitions(writer: Writer, value: TopicPartitions, _version: int) -> None:
    writer += _16S.pack(value.topic_id)
    writer.string(value.topic_name)
    writer.int32s(value.partitions)
    writer.end()


def _encode_assignment(writer: Writer, value: Assignment, version: int) -> None:
    writer.amount(value.topic_partitions)
    for topic_partitions in value.topic_partitions:
        _encode_topic_partitions(writer, topic_partitions, version)
    writer.end()


def _encode_member(writer: Writer, value: Member, version: int) -> None:
    writer.string(value.member_id)
    writer.nullable_string(value.instance_id)
    writer.nullable_string(value.rack_id)
    writer += _I.pack(value.member_epoch)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.amount(value.subscribed_topic_names)
    for one_string in value.subscribed_topic_names:
        writer.string(one_string)
    writer.nullable_string(value.subscribed_topic_regex)
    _encode_assignment(writer, value.assignment, version)
    _encode_assignment(writer, value.target_assignment, version)
    if version >= 1:
        writer += _B.pack(value.member_type)
    writer.end()


def _encode_described_group(writer: Writer, value: DescribedGroup, version: int) -> None:
    writer += _H.pack(value.error_code)
    writer.nullable_string(value.error_message)
    writer.string(value.group_id)
    writer.string(value.group_state)
    writer += _II.pack(value.group_epoch, value.assignment_epoch)
    writer.string(value.assignor_name)
    writer.amount(value.members)
    for member in value.members:
        _encode_member(writer, member, version)
    writer += _I.pack(value.authorized_operations)
    writer.end()


def encode_response(writer: Writer, value: ConsumerGroupDescribeResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.groups)
    for described_group in value.groups:
        _encode_described_group(writer, described_group, version)
    writer.end()


RESPONSE = ConsumerGroupDescribeResponse
