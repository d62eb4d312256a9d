"""DeleteTopics, versions 1 to 6. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Writer

COMPACT_FROM = 4
_16S = Struct(">16s")
_I = Struct(">i")
_H = Struct(">h")


class DeleteTopicState(msgspec.Struct):
    name: str | None = None
    topic_id: bytes = NO_ID


class DeleteTopicsRequest(msgspec.Struct):
    topic_names: list[str] = []
    topics: list[DeleteTopicState] = []
    timeout_ms: int = 0


class DeletableTopicResult(msgspec.Struct):
    name: str | None = None
    topic_id: bytes = NO_ID
    error_code: int = 0
    error_message: str | None = None


class DeleteTopicsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    responses: list[DeletableTopicResult] = []


def _parse_delete_topic_state(reader: Reader, _version: int) -> DeleteTopicState:
    name = reader.nullable_string()
    (topic_id,) = reader.unpack(_16S)
    reader.end()
    return DeleteTopicState(name, topic_id)


def parse_request(reader: Reader, version: int) -> DeleteTopicsRequest:
    topic_names: list[str] = []
    if version <= 5:
        topic_names = [reader.string() for _ in range(reader.count())]
    topics: list[DeleteTopicState] = []
    if version >= 6:
        topics = [_parse_delete_topic_state(reader, version) for _ in range(reader.count())]
    (timeout_ms,) = reader.unpack(_I)
    reader.end()
    return DeleteTopicsRequest(topic_names, topics, timeout_ms)


def _encode_deletable_topic_result(writer: Writer, value: DeletableTopicResult, version: int) -> None:
    writer.nullable_string(value.name)
    if version >= 6:
        writer += _16S.pack(value.topic_id)
    writer += _H.pack(value.error_code)
    if version >= 5:
        writer.nullable_string(value.error_message)
    writer.end()


def encode_response(writer: Writer, value: DeleteTopicsResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.responses)
    for deletable_topic_result in value.responses:
        _encode_deletable_topic_result(writer, deletable_topic_result, version)
    writer.end()


RESPONSE = DeleteTopicsResponse
