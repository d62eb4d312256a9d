"""Metadata, versions 0 to 13. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Writer

COMPACT_FROM = 9
_16S = Struct(">16s")
_T = Struct(">?")
_I = Struct(">i")
_HII = Struct(">hii")
_H = Struct(">h")


class MetadataRequestTopic(msgspec.Struct):
    topic_id: bytes = NO_ID
    name: str | None = None


class MetadataRequest(msgspec.Struct):
    topics: list[MetadataRequestTopic] | None = None
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class MetadataResponseBroker(msgspec.Struct):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class MetadataResponsePartition(msgspec.Struct):
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = []
    isr_nodes: list[int] = []
    offline_replicas: list[int] = []


class MetadataResponseTopic(msgspec.Struct):
    error_code: int = 0
    name: str | None = None
    topic_id: bytes = NO_ID
    is_internal: bool = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: int = -2147483648


class MetadataResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: str | None = None
    controller_id: int = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: int = -2147483648
    error_code: int = 0


def _parse_metadata_request_topic(reader: Reader, version: int) -> MetadataRequestTopic:
    topic_id = NO_ID
    if version >= 10:
        (topic_id,) = reader.unpack(_16S)
    name = reader.nullable_string()
    reader.end()
    return MetadataRequestTopic(topic_id, name)


def parse_request(reader: Reader, version: int) -> MetadataRequest:
    topics = (
        None
        if (amount := reader.nullable_count()) < 0
        else [_parse_metadata_request_topic(reader, version) for _ in range(amount)]
    )
    allow_auto_topic_creation = True
    if version >= 4:
        (allow_auto_topic_creation,) = reader.unpack(_T)
    include_cluster_authorized_operations = False
    if 8 <= version <= 10:
        (include_cluster_authorized_operations,) = reader.unpack(_T)
    include_topic_authorized_operations = False
    if version >= 8:
        (include_topic_authorized_operations,) = reader.unpack(_T)
    reader.end()
    return MetadataRequest(
        topics, allow_auto_topic_creation, include_cluster_authorized_operations, include_topic_authorized_operations
    )


def _encode_metadata_response_broker(writer: Writer, value: MetadataResponseBroker, version: int) -> None:
    writer += _I.pack(value.node_id)
    writer.string(value.host)
    writer += _I.pack(value.port)
    if version >= 1:
        writer.nullable_string(value.rack)
    writer.end()


def _encode_metadata_response_partition(writer: Writer, value: MetadataResponsePartition, version: int) -> None:
    writer += _HII.pack(value.error_code, value.partition_index, value.leader_id)
    if version >= 7:
        writer += _I.pack(value.leader_epoch)
    writer.int32s(value.replica_nodes)
    writer.int32s(value.isr_nodes)
    if version >= 5:
        writer.int32s(value.offline_replicas)
    writer.end()


def _encode_metadata_response_topic(writer: Writer, value: MetadataResponseTopic, version: int) -> None:
    writer += _H.pack(value.error_code)
    writer.nullable_string(value.name)
    if version >= 10:
        writer += _16S.pack(value.topic_id)
    if version >= 1:
        writer += _T.pack(value.is_internal)
    writer.amount(value.partitions)
    for metadata_response_partition in value.partitions:
        _encode_metadata_response_partition(writer, metadata_response_partition, version)
    if version >= 8:
        writer += _I.pack(value.topic_authorized_operations)
    writer.end()


def encode_response(writer: Writer, value: MetadataResponse, version: int) -> None:
    if version >= 3:
        writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.brokers)
    for metadata_response_broker in value.brokers:
        _encode_metadata_response_broker(writer, metadata_response_broker, version)
    if version >= 2:
        writer.nullable_string(value.cluster_id)
    if version >= 1:
        writer += _I.pack(value.controller_id)
    writer.amount(value.topics)
    for metadata_response_topic in value.topics:
        _encode_metadata_response_topic(writer, metadata_response_topic, version)
    if 8 <= version <= 10:
        writer += _I.pack(value.cluster_authorized_operations)
    if version >= 13:
        writer += _H.pack(value.error_code)
    writer.end()


RESPONSE = MetadataResponse
