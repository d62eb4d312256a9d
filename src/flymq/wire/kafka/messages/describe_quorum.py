"""DescribeQuorum, versions 0 to 2. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Writer

COMPACT_FROM = 0
_I = Struct(">i")
_U = Struct(">H")
_16S = Struct(">16s")
_Q = Struct(">q")
_QQ = Struct(">qq")
_IH = Struct(">ih")
_IIQ = Struct(">iiq")
_H = Struct(">h")


class PartitionData(msgspec.Struct):
    partition_index: int = 0


class TopicData(msgspec.Struct):
    topic_name: str = ""
    partitions: list[PartitionData] = []


class DescribeQuorumRequest(msgspec.Struct):
    topics: list[TopicData] = []


class Listener(msgspec.Struct):
    name: str = ""
    host: str = ""
    port: int = 0


class Node(msgspec.Struct):
    node_id: int = 0
    listeners: list[Listener] = []


class ReplicaState(msgspec.Struct):
    replica_id: int = 0
    replica_directory_id: bytes = NO_ID
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1


class PartitionDataAnswer(msgspec.Struct):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class TopicDataAnswer(msgspec.Struct):
    topic_name: str = ""
    partitions: list[PartitionDataAnswer] = []


class DescribeQuorumResponse(msgspec.Struct):
    error_code: int = 0
    error_message: str | None = None
    topics: list[TopicDataAnswer] = []
    nodes: list[Node] = []


def _parse_partition_data(reader: Reader, _version: int) -> PartitionData:
    (partition_index,) = reader.unpack(_I)
    reader.end()
    return PartitionData(partition_index)


def _parse_topic_data(reader: Reader, version: int) -> TopicData:
    topic_name = reader.string()
    partitions = [_parse_partition_data(reader, version) for _ in range(reader.count())]
    reader.end()
    return TopicData(topic_name, partitions)


def parse_request(reader: Reader, version: int) -> DescribeQuorumRequest:
    topics = [_parse_topic_data(reader, version) for _ in range(reader.count())]
    reader.end()
    return DescribeQuorumRequest(topics)


def _encode_listener(writer: Writer, value: Listener, _version: int) -> None:
    writer.string(value.name)
    writer.string(value.host)
    writer += _U.pack(value.port)
    writer.end()


def _encode_node(writer: Writer, value: Node, version: int) -> None:
    writer += _I.pack(value.node_id)
    writer.amount(value.listeners)
    for listener in value.listeners:
        _encode_listener(writer, listener, version)
    writer.end()


def _encode_replica_state(writer: Writer, value: ReplicaState, version: int) -> None:
    writer += _I.pack(value.replica_id)
    if version >= 2:
        writer += _16S.pack(value.replica_directory_id)
    writer += _Q.pack(value.log_end_offset)
    if version >= 1:
        writer += _QQ.pack(value.last_fetch_timestamp, value.last_caught_up_timestamp)
    writer.end()


def _encode_partition_data_answer(writer: Writer, value: PartitionDataAnswer, version: int) -> None:
    writer += _IH.pack(value.partition_index, value.error_code)
    if version >= 2:
        writer.nullable_string(value.error_message)
    writer += _IIQ.pack(value.leader_id, value.leader_epoch, value.high_watermark)
    writer.amount(value.current_voters)
    for replica_state in value.current_voters:
        _encode_replica_state(writer, replica_state, version)
    writer.amount(value.observers)
    for replica_state in value.observers:
        _encode_replica_state(writer, replica_state, version)
    writer.end()


def _encode_topic_data_answer(writer: Writer, value: TopicDataAnswer, version: int) -> None:
    writer.string(value.topic_name)
    writer.amount(value.partitions)
    for partition_data_answer in value.partitions:
        _encode_partition_data_answer(writer, partition_data_answer, version)
    writer.end()


def encode_response(writer: Writer, value: DescribeQuorumResponse, version: int) -> None:
    writer += _H.pack(value.error_code)
    if version >= 2:
        writer.nullable_string(value.error_message)
    writer.amount(value.topics)
    for topic_data_answer in value.topics:
        _encode_topic_data_answer(writer, topic_data_answer, version)
    if version >= 2:
        writer.amount(value.nodes)
        for node in value.nodes:
            _encode_node(writer, node, version)
    writer.end()


RESPONSE = DescribeQuorumResponse
