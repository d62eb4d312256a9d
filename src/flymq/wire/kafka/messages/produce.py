"""Produce, versions 3 to 13. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Records, Writer

COMPACT_FROM = 9
_I = Struct(">i")
_16S = Struct(">16s")
_HI = Struct(">hi")
_II = Struct(">ii")
_IHQQ = Struct(">ihqq")
_Q = Struct(">q")


class PartitionProduceData(msgspec.Struct):
    index: int = 0
    records: Records | None = None


class TopicProduceData(msgspec.Struct):
    name: str = ""
    topic_id: bytes = NO_ID
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(msgspec.Struct):
    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[TopicProduceData] = []


class LeaderIdAndEpoch(msgspec.Struct):
    leader_id: int = -1
    leader_epoch: int = -1


class NodeEndpoint(msgspec.Struct):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class BatchIndexAndErrorMessage(msgspec.Struct):
    batch_index: int = 0
    batch_index_error_message: str | None = None


class PartitionProduceResponse(msgspec.Struct):
    index: int = 0
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: list[BatchIndexAndErrorMessage] = []
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None


class TopicProduceResponse(msgspec.Struct):
    name: str = ""
    topic_id: bytes = NO_ID
    partition_responses: list[PartitionProduceResponse] = []


class ProduceResponse(msgspec.Struct):
    responses: list[TopicProduceResponse] = []
    throttle_time_ms: int = 0
    node_endpoints: list[NodeEndpoint] = []


def _parse_partition_produce_data(reader: Reader, _version: int) -> PartitionProduceData:
    (index,) = reader.unpack(_I)
    records = reader.records()
    reader.end()
    return PartitionProduceData(index, records)


def _parse_topic_produce_data(reader: Reader, version: int) -> TopicProduceData:
    name = ""
    if version <= 12:
        name = reader.string()
    topic_id = NO_ID
    if version >= 13:
        (topic_id,) = reader.unpack(_16S)
    partition_data = [_parse_partition_produce_data(reader, version) for _ in range(reader.count())]
    reader.end()
    return TopicProduceData(name, topic_id, partition_data)


def parse_request(reader: Reader, version: int) -> ProduceRequest:
    transactional_id = reader.nullable_string()
    acks, timeout_ms = reader.unpack(_HI)
    topic_data = [_parse_topic_produce_data(reader, version) for _ in range(reader.count())]
    reader.end()
    return ProduceRequest(transactional_id, acks, timeout_ms, topic_data)


def _encode_leader_id_and_epoch(writer: Writer, value: LeaderIdAndEpoch, _version: int) -> None:
    writer += _II.pack(value.leader_id, value.leader_epoch)
    writer.end()


def _encode_node_endpoint(writer: Writer, value: NodeEndpoint, _version: int) -> None:
    writer += _I.pack(value.node_id)
    writer.string(value.host)
    writer += _I.pack(value.port)
    writer.nullable_string(value.rack)
    writer.end()


def _encode_batch_index_and_error_message(writer: Writer, value: BatchIndexAndErrorMessage, _version: int) -> None:
    writer += _I.pack(value.batch_index)
    writer.nullable_string(value.batch_index_error_message)
    writer.end()


def _encode_partition_produce_response(writer: Writer, value: PartitionProduceResponse, version: int) -> None:
    writer += _IHQQ.pack(value.index, value.error_code, value.base_offset, value.log_append_time_ms)
    if version >= 5:
        writer += _Q.pack(value.log_start_offset)
    if version >= 8:
        writer.amount(value.record_errors)
        for batch_index_and_error_message in value.record_errors:
            _encode_batch_index_and_error_message(writer, batch_index_and_error_message, version)
    if version >= 8:
        writer.nullable_string(value.error_message)
    tagged: dict[int, Writer] = {}
    if value.current_leader is not None and version >= 10:
        inner = tagged[0] = writer.inner()
        _encode_leader_id_and_epoch(inner, value.current_leader, version)
    writer.tags(tagged)


def _encode_topic_produce_response(writer: Writer, value: TopicProduceResponse, version: int) -> None:
    if version <= 12:
        writer.string(value.name)
    if version >= 13:
        writer += _16S.pack(value.topic_id)
    writer.amount(value.partition_responses)
    for partition_produce_response in value.partition_responses:
        _encode_partition_produce_response(writer, partition_produce_response, version)
    writer.end()


def encode_response(writer: Writer, value: ProduceResponse, version: int) -> None:
    writer.amount(value.responses)
    for topic_produce_response in value.responses:
        _encode_topic_produce_response(writer, topic_produce_response, version)
    writer += _I.pack(value.throttle_time_ms)
    tagged: dict[int, Writer] = {}
    if value.node_endpoints and version >= 10:
        inner = tagged[0] = writer.inner()
        inner.amount(value.node_endpoints)
        for node_endpoint in value.node_endpoints:
            _encode_node_endpoint(inner, node_endpoint, version)
    writer.tags(tagged)


RESPONSE = ProduceResponse
