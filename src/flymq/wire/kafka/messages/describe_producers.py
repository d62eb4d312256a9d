"""DescribeProducers, version 0. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 0
_QIIQIQ = Struct(">qiiqiq")
_IH = Struct(">ih")
_I = Struct(">i")


class TopicRequest(msgspec.Struct):
    name: str = ""
    partition_indexes: list[int] = []


class DescribeProducersRequest(msgspec.Struct):
    topics: list[TopicRequest] = []


class ProducerState(msgspec.Struct):
    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1


class PartitionResponse(msgspec.Struct):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = []


class TopicResponse(msgspec.Struct):
    name: str = ""
    partitions: list[PartitionResponse] = []


class DescribeProducersResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    topics: list[TopicResponse] = []


def _parse_topic_request(reader: Reader, _version: int) -> TopicRequest:
    name = reader.string()
    partition_indexes = reader.int32s()
    reader.end()
    return TopicRequest(name, partition_indexes)


def parse_request(reader: Reader, version: int) -> DescribeProducersRequest:
    topics = [_parse_topic_request(reader, version) for _ in range(reader.count())]
    reader.end()
    return DescribeProducersRequest(topics)


def _encode_producer_state(writer: Writer, value: ProducerState, _version: int) -> None:
    writer += _QIIQIQ.pack(
        value.producer_id,
        value.producer_epoch,
        value.last_sequence,
        value.last_timestamp,
        value.coordinator_epoch,
        value.current_txn_start_offset,
    )
    writer.end()


def _encode_partition_response(writer: Writer, value: PartitionResponse, version: int) -> None:
    writer += _IH.pack(value.partition_index, value.error_code)
    writer.nullable_string(value.error_message)
    writer.amount(value.active_producers)
    for producer_state in value.active_producers:
        _encode_producer_state(writer, producer_state, version)
    writer.end()


def _encode_topic_response(writer: Writer, value: TopicResponse, version: int) -> None:
    writer.string(value.name)
    writer.amount(value.partitions)
    for partition_response in value.partitions:
        _encode_partition_response(writer, partition_response, version)
    writer.end()


def encode_response(writer: Writer, value: DescribeProducersResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.topics)
    for topic_response in value.topics:
        _encode_topic_response(writer, topic_response, version)
    writer.end()


RESPONSE = DescribeProducersResponse
