"""StreamsGroupHeartbeat, version 0. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 0
_IH = Struct(">ih")
_H = Struct(">h")
_I = Struct(">i")
_U = Struct(">H")
_IQ = Struct(">iq")
_II = Struct(">ii")
_T = Struct(">?")
_B = Struct(">b")
_IIII = Struct(">iiii")


class TopicInfo(msgspec.Struct):
    name: str = ""
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: list[KeyValue] = []


class CopartitionGroup(msgspec.Struct):
    source_topics: list[int] = []
    source_topic_regex: list[int] = []
    repartition_source_topics: list[int] = []


class Subtopology(msgspec.Struct):
    subtopology_id: str = ""
    source_topics: list[str] = []
    source_topic_regex: list[str] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_sink_topics: list[str] = []
    repartition_source_topics: list[TopicInfo] = []
    copartition_groups: list[CopartitionGroup] = []


class Topology(msgspec.Struct):
    epoch: int = 0
    subtopologies: list[Subtopology] = []


class TaskIds(msgspec.Struct):
    subtopology_id: str = ""
    partitions: list[int] = []


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


class StreamsGroupHeartbeatRequest(msgspec.Struct):
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    endpoint_information_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


class Status(msgspec.Struct):
    status_code: int = 0
    status_detail: str = ""


class TopicPartition(msgspec.Struct):
    topic: str = ""
    partitions: list[int] = []


class EndpointToPartitions(msgspec.Struct):
    user_endpoint: Endpoint = msgspec.field(default_factory=Endpoint)
    active_partitions: list[TopicPartition] = []
    standby_partitions: list[TopicPartition] = []


class StreamsGroupHeartbeatResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    task_offset_interval_ms: int = 0
    status: list[Status] | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


def _parse_topic_info(reader: Reader, version: int) -> TopicInfo:
    name = reader.string()
    partitions, replication_factor = reader.unpack(_IH)
    topic_configs = [_parse_key_value(reader, version) for _ in range(reader.count())]
    reader.end()
    return TopicInfo(name, partitions, replication_factor, topic_configs)


def _parse_copartition_group(reader: Reader, _version: int) -> CopartitionGroup:
    source_topics = [reader.unpack(_H)[0] for _ in range(reader.count())]
    source_topic_regex = [reader.unpack(_H)[0] for _ in range(reader.count())]
    repartition_source_topics = [reader.unpack(_H)[0] for _ in range(reader.count())]
    reader.end()
    return CopartitionGroup(source_topics, source_topic_regex, repartition_source_topics)


def _parse_subtopology(reader: Reader, version: int) -> Subtopology:
    subtopology_id = reader.string()
    source_topics = [reader.string() for _ in range(reader.count())]
    source_topic_regex = [reader.string() for _ in range(reader.count())]
    state_changelog_topics = [_parse_topic_info(reader, version) for _ in range(reader.count())]
    repartition_sink_topics = [reader.string() for _ in range(reader.count())]
    repartition_source_topics = [_parse_topic_info(reader, version) for _ in range(reader.count())]
    copartition_groups = [_parse_copartition_group(reader, version) for _ in range(reader.count())]
    reader.end()
    return Subtopology(
        subtopology_id,
        source_topics,
        source_topic_regex,
        state_changelog_topics,
        repartition_sink_topics,
        repartition_source_topics,
        copartition_groups,
    )


def _parse_topology(reader: Reader, version: int) -> Topology:
    (epoch,) = reader.unpack(_I)
    subtopologies = [_parse_subtopology(reader, version) for _ in range(reader.count())]
    reader.end()
    return Topology(epoch, subtopologies)


def _parse_task_ids(reader: Reader, _version: int) -> TaskIds:
    subtopology_id = reader.string()
    partitions = reader.int32s()
    reader.end()
    return TaskIds(subtopology_id, partitions)


def _parse_endpoint(reader: Reader, _version: int) -> Endpoint:
    host = reader.string()
    (port,) = reader.unpack(_U)
    reader.end()
    return Endpoint(host, port)


def _parse_key_value(reader: Reader, _version: int) -> KeyValue:
    key = reader.string()
    value = reader.string()
    reader.end()
    return KeyValue(key, value)


def _parse_task_offset(reader: Reader, _version: int) -> TaskOffset:
    subtopology_id = reader.string()
    partition, offset = reader.unpack(_IQ)
    reader.end()
    return TaskOffset(subtopology_id, partition, offset)


def parse_request(reader: Reader, version: int) -> StreamsGroupHeartbeatRequest:
    group_id = reader.string()
    member_id = reader.string()
    member_epoch, endpoint_information_epoch = reader.unpack(_II)
    instance_id = reader.nullable_string()
    rack_id = reader.nullable_string()
    (rebalance_timeout_ms,) = reader.unpack(_I)
    topology = _parse_topology(reader, version) if reader.is_present() else None
    active_tasks = (
        None if (amount := reader.nullable_count()) < 0 else [_parse_task_ids(reader, version) for _ in range(amount)]
    )
    standby_tasks = (
        None if (amount := reader.nullable_count()) < 0 else [_parse_task_ids(reader, version) for _ in range(amount)]
    )
    warmup_tasks = (
        None if (amount := reader.nullable_count()) < 0 else [_parse_task_ids(reader, version) for _ in range(amount)]
    )
    process_id = reader.nullable_string()
    user_endpoint = _parse_endpoint(reader, version) if reader.is_present() else None
    client_tags = (
        None if (amount := reader.nullable_count()) < 0 else [_parse_key_value(reader, version) for _ in range(amount)]
    )
    task_offsets = (
        None
        if (amount := reader.nullable_count()) < 0
        else [_parse_task_offset(reader, version) for _ in range(amount)]
    )
    task_end_offsets = (
        None
        if (amount := reader.nullable_count()) < 0
        else [_parse_task_offset(reader, version) for _ in range(amount)]
    )
    (shutdown_application,) = reader.unpack(_T)
    reader.end()
    return StreamsGroupHeartbeatRequest(
        group_id,
        member_id,
        member_epoch,
        endpoint_information_epoch,
        instance_id,
        rack_id,
        rebalance_timeout_ms,
        topology,
        active_tasks,
        standby_tasks,
        warmup_tasks,
        process_id,
        user_endpoint,
        client_tags,
        task_offsets,
        task_end_offsets,
        shutdown_application,
    )


def _encode_status(writer: Writer, value: Status, _version: int) -> None:
    writer += _B.pack(value.status_code)
    writer.string(value.status_detail)
    writer.end()


def _encode_task_ids(writer: Writer, value: TaskIds, _version: int) -> None:
    writer.string(value.subtopology_id)
    writer.int32s(value.partitions)
    writer.end()


def _encode_endpoint(writer: Writer, value: Endpoint, _version: int) -> None:
    writer.string(value.host)
    writer += _U.pack(value.port)
    writer.end()


def _encode_topic_partition(writer: Writer, value: TopicPartition, _version: int) -> None:
    writer.string(value.topic)
    writer.int32s(value.partitions)
    writer.end()


def _encode_endpoint_to_partitions(writer: Writer, value: EndpointToPartitions, version: int) -> None:
    _encode_endpoint(writer, value.user_endpoint, version)
    writer.amount(value.active_partitions)
    for topic_partition in value.active_partitions:
        _encode_topic_partition(writer, topic_partition, version)
    writer.amount(value.standby_partitions)
    for topic_partition in value.standby_partitions:
        _encode_topic_partition(writer, topic_partition, version)
    writer.end()


def encode_response(writer: Writer, value: StreamsGroupHeartbeatResponse, version: int) -> None:
    writer += _IH.pack(value.throttle_time_ms, value.error_code)
    writer.nullable_string(value.error_message)
    writer.string(value.member_id)
    writer += _IIII.pack(
        value.member_epoch, value.heartbeat_interval_ms, value.acceptable_recovery_lag, value.task_offset_interval_ms
    )
    writer.nullable_amount(value.status)
    for status in value.status or ():
        _encode_status(writer, status, version)
    writer.nullable_amount(value.active_tasks)
    for task_ids in value.active_tasks or ():
        _encode_task_ids(writer, task_ids, version)
    writer.nullable_amount(value.standby_tasks)
    for task_ids in value.standby_tasks or ():
        _encode_task_ids(writer, task_ids, version)
    writer.nullable_amount(value.warmup_tasks)
    for task_ids in value.warmup_tasks or ():
        _encode_task_ids(writer, task_ids, version)
    writer += _I.pack(value.endpoint_information_epoch)
    writer.nullable_amount(value.partitions_by_user_endpoint)
    for endpoint_to_partitions in value.partitions_by_user_endpoint or ():
        _encode_endpoint_to_partitions(writer, endpoint_to_partitions, version)
    writer.end()


RESPONSE = StreamsGroupHeartbeatResponse
