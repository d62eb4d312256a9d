"""ElectLeaders, versions 0 to 2. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 2
_B = Struct(">b")
_I = Struct(">i")
_IH = Struct(">ih")
_H = Struct(">h")


class TopicPartitions(msgspec.Struct):
    topic: str = ""
    partitions: list[int] = []


class ElectLeadersRequest(msgspec.Struct):
    election_type: int = 0
    topic_partitions: list[TopicPartitions] | None = None
    timeout_ms: int = 60000


class PartitionResult(msgspec.Struct):
    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = None


class ReplicaElectionResult(msgspec.Struct):
    topic: str = ""
    partition_result: list[PartitionResult] = []


class ElectLeadersResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    replica_election_results: list[ReplicaElectionResult] = []


def _parse_topic_partitions(reader: Reader, _version: int) -> TopicPartitions:
    topic = reader.string()
    partitions = reader.int32s()
    reader.end()
    return TopicPartitions(topic, partitions)


def parse_request(reader: Reader, version: int) -> ElectLeadersRequest:
    election_type = 0
    if version >= 1:
        (election_type,) = reader.unpack(_B)
    topic_partitions = (
        None
        if (amount := reader.nullable_count()) < 0
        else [_parse_topic_partitions(reader, version) for _ in range(amount)]
    )
    (timeout_ms,) = reader.unpack(_I)
    reader.end()
    return ElectLeadersRequest(election_type, topic_partitions, timeout_ms)


def _encode_partition_result(writer: Writer, value: PartitionResult, _version: int) -> None:
    writer += _IH.pack(value.partition_id, value.error_code)
    writer.nullable_string(value.error_message)
    writer.end()


def _encode_replica_election_result(writer: Writer, value: ReplicaElectionResult, version: int) -> None:
    writer.string(value.topic)
    writer.amount(value.partition_result)
    for partition_result in value.partition_result:
        _encode_partition_result(writer, partition_result, version)
    writer.end()


def encode_response(writer: Writer, value: ElectLeadersResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    if version >= 1:
        writer += _H.pack(value.error_code)
    writer.amount(value.replica_election_results)
    for replica_election_result in value.replica_election_results:
        _encode_replica_election_result(writer, replica_election_result, version)
    writer.end()


RESPONSE = ElectLeadersResponse
