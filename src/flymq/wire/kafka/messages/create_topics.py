"""CreateTopics, versions 2 to 7. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Writer

COMPACT_FROM = 5
_I = Struct(">i")
_IH = Struct(">ih")
_IT = Struct(">i?")
_TBT = Struct(">?b?")
_16S = Struct(">16s")
_H = Struct(">h")


class CreatableReplicaAssignment(msgspec.Struct):
    partition_index: int = 0
    broker_ids: list[int] = []


class CreatableTopicConfig(msgspec.Struct):
    name: str = ""
    value: str | None = None


class CreatableTopic(msgspec.Struct):
    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreateTopicsRequest(msgspec.Struct):
    topics: list[CreatableTopic] = []
    timeout_ms: int = 60000
    validate_only: bool = False


class CreatableTopicConfigs(msgspec.Struct):
    name: str = ""
    value: str | None = None
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False


class CreatableTopicResult(msgspec.Struct):
    name: str = ""
    topic_id: bytes = NO_ID
    error_code: int = 0
    error_message: str | None = None
    topic_config_error_code: int = 0
    num_partitions: int = -1
    replication_factor: int = -1
    configs: list[CreatableTopicConfigs] | None = None


class CreateTopicsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    topics: list[CreatableTopicResult] = []


def _parse_creatable_replica_assignment(reader: Reader, _version: int) -> CreatableReplicaAssignment:
    (partition_index,) = reader.unpack(_I)
    broker_ids = reader.int32s()
    reader.end()
    return CreatableReplicaAssignment(partition_index, broker_ids)


def _parse_creatable_topic_config(reader: Reader, _version: int) -> CreatableTopicConfig:
    name = reader.string()
    value = reader.nullable_string()
    reader.end()
    return CreatableTopicConfig(name, value)


def _parse_creatable_topic(reader: Reader, version: int) -> CreatableTopic:
    name = reader.string()
    num_partitions, replication_factor = reader.unpack(_IH)
    assignments = [_parse_creatable_replica_assignment(reader, version) for _ in range(reader.count())]
    configs = [_parse_creatable_topic_config(reader, version) for _ in range(reader.count())]
    reader.end()
    return CreatableTopic(name, num_partitions, replication_factor, assignments, configs)


def parse_request(reader: Reader, version: int) -> CreateTopicsRequest:
    topics = [_parse_creatable_topic(reader, version) for _ in range(reader.count())]
    timeout_ms, validate_only = reader.unpack(_IT)
    reader.end()
    return CreateTopicsRequest(topics, timeout_ms, validate_only)


def _encode_creatable_topic_configs(writer: Writer, value: CreatableTopicConfigs, _version: int) -> None:
    writer.string(value.name)
    writer.nullable_string(value.value)
    writer += _TBT.pack(value.read_only, value.config_source, value.is_sensitive)
    writer.end()


def _encode_creatable_topic_result(writer: Writer, value: CreatableTopicResult, version: int) -> None:
    writer.string(value.name)
    if version >= 7:
        writer += _16S.pack(value.topic_id)
    writer += _H.pack(value.error_code)
    writer.nullable_string(value.error_message)
    if version >= 5:
        writer += _IH.pack(value.num_partitions, value.replication_factor)
    if version >= 5:
        writer.nullable_amount(value.configs)
        for creatable_topic_configs in value.configs or ():
            _encode_creatable_topic_configs(writer, creatable_topic_configs, version)
    tagged: dict[int, Writer] = {}
    if value.topic_config_error_code != 0 and version >= 5:
        inner = tagged[0] = writer.inner()
        inner += _H.pack(value.topic_config_error_code)
    writer.tags(tagged)


def encode_response(writer: Writer, value: CreateTopicsResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.topics)
    for creatable_topic_result in value.topics:
        _encode_creatable_topic_result(writer, creatable_topic_result, version)
    writer.end()


RESPONSE = CreateTopicsResponse
