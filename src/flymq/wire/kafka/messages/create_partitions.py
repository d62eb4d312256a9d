"""CreatePartitions, versions 0 to 3. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 2
_I = Struct(">i")
_IT = Struct(">i?")
_H = Struct(">h")


class CreatePartitionsAssignment(msgspec.Struct):
    broker_ids: list[int] = []


class CreatePartitionsTopic(msgspec.Struct):
    name: str = ""
    count: int = 0
    assignments: list[CreatePartitionsAssignment] | None = None


class CreatePartitionsRequest(msgspec.Struct):
    topics: list[CreatePartitionsTopic] = []
    timeout_ms: int = 0
    validate_only: bool = False


class CreatePartitionsTopicResult(msgspec.Struct):
    name: str = ""
    error_code: int = 0
    error_message: str | None = None


class CreatePartitionsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    results: list[CreatePartitionsTopicResult] = []


def _parse_create_partitions_assignment(reader: Reader, _version: int) -> CreatePartitionsAssignment:
    broker_ids = reader.int32s()
    reader.end()
    return CreatePartitionsAssignment(broker_ids)


def _parse_create_partitions_topic(reader: Reader, version: int) -> CreatePartitionsTopic:
    name = reader.string()
    (count,) = reader.unpack(_I)
    assignments = (
        None
        if (amount := reader.nullable_count()) < 0
        else [_parse_create_partitions_assignment(reader, version) for _ in range(amount)]
    )
    reader.end()
    return CreatePartitionsTopic(name, count, assignments)


def parse_request(reader: Reader, version: int) -> CreatePartitionsRequest:
    topics = [_parse_create_partitions_topic(reader, version) for _ in range(reader.count())]
    timeout_ms, validate_only = reader.unpack(_IT)
    reader.end()
    return CreatePartitionsRequest(topics, timeout_ms, validate_only)


def _encode_create_partitions_topic_result(writer: Writer, value: CreatePartitionsTopicResult, _version: int) -> None:
    writer.string(value.name)
    writer += _H.pack(value.error_code)
    writer.nullable_string(value.error_message)
    writer.end()


def encode_response(writer: Writer, value: CreatePartitionsResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.results)
    for create_partitions_topic_result in value.results:
        _encode_create_partitions_topic_result(writer, create_partitions_topic_result, version)
    writer.end()


RESPONSE = CreatePartitionsResponse
