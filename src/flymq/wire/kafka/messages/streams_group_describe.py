"""StreamsGroupDescribe, version 0. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 0
_T = Struct(">?")
_IH = Struct(">ih")
_I = Struct(">i")
_U = Struct(">H")
_IQ = Struct(">iq")
_H = Struct(">h")
_II = Struct(">ii")


class StreamsGroupDescribeRequest(msgspec.Struct):
    group_ids: list[str] = []
    include_authorized_operations: bool = False


class TopicInfo(msgspec.Struct):
    name: str = ""
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: list[KeyValue] = []


class Subtopology(msgspec.Struct):
    subtopology_id: str = ""
    source_topics: list[str] = []
    repartition_sink_topics: list[str] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_source_topics: list[TopicInfo] = []


class Topology(msgspec.Struct):
    epoch: int = 0
    subtopologies: list[Subtopology] | None = None


class Endpoint(msgspec.Struct):
    host: str = ""
    port: int = 0


class KeyValue(msgspec.Struct):
    key: str = ""
    value: str = ""


class TaskOffset(msgspec.Struct):
    subtopology_id: str = ""
    partition: int = 0
    offset: int = 0


class TaskIds(msgspec.Struct):
    subtopology_id: str = ""
    partitions: list[int] = []


class Assignment(msgspec.Struct):
    active_tasks: list[TaskIds] = []
    standby_tasks: list[TaskIds] = []
    warmup_tasks: list[TaskIds] = []


class Member(msgspec.Struct):
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = []
    task_offsets: list[TaskOffset] = []
    task_end_offsets: list[TaskOffset] = []
    assignment: Assignment = msgspec.field(default_factory=Assignment)
    target_assignment: Assignment = msgspec.field(default_factory=Assignment)
    is_classic: bool = False


class DescribedGroup(msgspec.Struct):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: Topology | None = None
    members: list[Member] = []
    authorized_operations: int = -2147483648


class StreamsGroupDescribeResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = []


def parse_request(reader: Reader, version: int) -> StreamsGroupDescribeRequest:
    group_ids = [reader.string() for _ in range(reader.count())]
    (include_authorized_operations,) = reader.unpack(_T)
    reader.end()
    return StreamsGroupDescribeRequest(group_ids, include_authorized_operations)


def _encode_topic_info(writer: Writer, value: TopicInfo, version: int) -> None:
    writer.string(value.name)
    writer += _IH.pack(value.partitions, value.replication_factor)
    writer.amount(value.topic_configs)
    for key_value in value.topic_configs:
        _encode_key_value(writer, key_value, version)
    writer.end()


def _encode_subtopology(writer: Writer, value: Subtopology, version: int) -> None:
    writer.string(value.subtopology_id)
    writer.amount(value.source_topics)
    for one_string in value.source_topics:
        writer.string(one_string)
    writer.amount(value.repartition_sink_topics)
    for one_string in value.repartition_sink_topics:
        writer.string(one_string)
    writer.amount(value.state_changelog_topics)
    for topic_info in value.state_changelog_topics:
        _encode_topic_info(writer, topic_info, version)
    writer.amount(value.repartition_source_topics)
    for topic_info in value.repartition_source_topics:
        _encode_topic_info(writer, topic_info, version)
    writer.end()


def _encode_topology(writer: Writer, value: Topology, version: int) -> None:
    writer += _I.pack(value.epoch)
    writer.nullable_amount(value.subtopologies)
    for subtopology in value.subtopologies or ():
        _encode_subtopology(writer, subtopology, version)
    writer.end()


def _encode_endpoint(writer: Writer, value: Endpoint, _version: int) -> None:
    writer.string(value.host)
    writer += _U.pack(value.port)
    writer.end()


def _encode_key_value(writer: Writer, value: KeyValue, _version: int) -> None:
    writer.string(value.key)
    writer.string(value.value)
    writer.end()


def _encode_task_offset(writer: Writer, value: TaskOffset, _version: int) -> None:
    writer.string(value.subtopology_id)
    writer += _IQ.pack(value.partition, value.offset)
    writer.end()


def _encode_task_ids(writer: Writer, value: TaskIds, _version: int) -> None:
    writer.string(value.subtopology_id)
    writer.int32s(value.partitions)
    writer.end()


def _encode_assignment(writer: Writer, value: Assignment, version: int) -> None:
    writer.amount(value.active_tasks)
    for task_ids in value.active_tasks:
        _encode_task_ids(writer, task_ids, version)
    writer.amount(value.standby_tasks)
    for task_ids in value.standby_tasks:
        _encode_task_ids(writer, task_ids, version)
    writer.amount(value.warmup_tasks)
    for task_ids in value.warmup_tasks:
        _encode_task_ids(writer, task_ids, version)
    writer.end()


def _encode_member(writer: Writer, value: Member, version: int) -> None:
    writer.string(value.member_id)
    writer += _I.pack(value.member_epoch)
    writer.nullable_string(value.instance_id)
    writer.nullable_string(value.rack_id)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer += _I.pack(value.topology_epoch)
    writer.string(value.process_id)
    writer.presence(value.user_endpoint)
    if value.user_endpoint is not None:
        _encode_endpoint(writer, value.user_endpoint, version)
    writer.amount(value.client_tags)
    for key_value in value.client_tags:
        _encode_key_value(writer, key_value, version)
    writer.amount(value.task_offsets)
    for task_offset in value.task_offsets:
        _encode_task_offset(writer, task_offset, version)
    writer.amount(value.task_end_offsets)
    for task_offset in value.task_end_offsets:
        _encode_task_offset(writer, task_offset, version)
    _encode_assignment(writer, value.assignment, version)
    _encode_assignment(writer, value.target_assignment, version)
    writer += _T.pack(value.is_classic)
    writer.end()


def _encode_described_group(writer: Writer, value: DescribedGroup, version: int) -> None:
    writer += _H.pack(value.error_code)
    writer.nullable_string(value.error_message)
    writer.string(value.group_id)
    writer.string(value.group_state)
    writer += _II.pack(value.group_epoch, value.assignment_epoch)
    writer.presence(value.topology)
    if value.topology is not None:
        _encode_topology(writer, value.topology, version)
    writer.amount(value.members)
    for member in value.members:
        _encode_member(writer, member, version)
    writer += _I.pack(value.authorized_operations)
    writer.end()


def encode_response(writer: Writer, value: StreamsGroupDescribeResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.groups)
    for described_group in value.groups:
        _encode_described_group(writer, described_group, version)
    writer.end()


RESPONSE = StreamsGroupDescribeResponse
