"""ListPartitionReassignments, version 0. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 0
_I = Struct(">i")
_IH = Struct(">ih")


class ListPartitionReassignmentsTopics(msgspec.Struct):
    name: str = ""
    partition_indexes: list[int] = []


class ListPartitionReassignmentsRequest(msgspec.Struct):
    timeout_ms: int = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(msgspec.Struct):
    partition_index: int = 0
    replicas: list[int] = []
    adding_replicas: list[int] = []
    removing_replicas: list[int] = []


class OngoingTopicReassignment(msgspec.Struct):
    name: str = ""
    partitions: list[OngoingPartitionReassignment] = []


class ListPartitionReassignmentsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    topics: list[OngoingTopicReassignment] = []


def _parse_list_partition_reassignments_topics(reader: Reader, _version: int) -> ListPartitionReassignmentsTopics:
    name = reader.string()
    partition_indexes = reader.int32s()
    reader.end()
    return ListPartitionReassignmentsTopics(name, partition_indexes)


def parse_request(reader: Reader, version: int) -> ListPartitionReassignmentsRequest:
    (timeout_ms,) = reader.unpack(_I)
    topics = (
        None
        if (amount := reader.nullable_count()) < 0
        else [_parse_list_partition_reassignments_topics(reader, version) for _ in range(amount)]
    )
    reader.end()
    return ListPartitionReassignmentsRequest(timeout_ms, topics)


def _encode_ongoing_partition_reassignment(writer: Writer, value: OngoingPartitionReassignment, _version: int) -> None:
    writer += _I.pack(value.partition_index)
    writer.int32s(value.replicas)
    writer.int32s(value.adding_replicas)
    writer.int32s(value.removing_replicas)
    writer.end()


def _encode_ongoing_topic_reassignment(writer: Writer, value: OngoingTopicReassignment, version: int) -> None:
    writer.string(value.name)
    writer.amount(value.partitions)
    for ongoing_partition_reassignment in value.partitions:
        _encode_ongoing_partition_reassignment(writer, ongoing_partition_reassignment, version)
    writer.end()


def encode_response(writer: Writer, value: ListPartitionReassignmentsResponse, version: int) -> None:
    writer += _IH.pack(value.throttle_time_ms, value.error_code)
    writer.nullable_string(value.error_message)
    writer.amount(value.topics)
    for ongoing_topic_reassignment in value.topics:
        _encode_ongoing_topic_reassignment(writer, ongoing_topic_reassignment, version)
    writer.end()


RESPONSE = ListPartitionReassignmentsResponse
