"""DeleteRecords, versions 0 to 2. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 2
_IQ = Struct(">iq")
_I = Struct(">i")
_IQH = Struct(">iqh")


class DeleteRecordsPartition(msgspec.Struct):
    partition_index: int = 0
    offset: int = 0


class DeleteRecordsTopic(msgspec.Struct):
    name: str = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsRequest(msgspec.Struct):
    topics: list[DeleteRecordsTopic] = []
    timeout_ms: int = 0


class DeleteRecordsPartitionResult(msgspec.Struct):
    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0


class DeleteRecordsTopicResult(msgspec.Struct):
    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    topics: list[DeleteRecordsTopicResult] = []


def _parse_delete_records_partition(reader: Reader, _version: int) -> DeleteRecordsPartition:
    partition_index, offset = reader.unpack(_IQ)
    reader.end()
    return DeleteRecordsPartition(partition_index, offset)


def _parse_delete_records_topic(reader: Reader, version: int) -> DeleteRecordsTopic:
    name = reader.string()
    partitions = [_parse_delete_records_partition(reader, version) for _ in range(reader.count())]
    reader.end()
    return DeleteRecordsTopic(name, partitions)


def parse_request(reader: Reader, version: int) -> DeleteRecordsRequest:
    topics = [_parse_delete_records_topic(reader, version) for _ in range(reader.count())]
    (timeout_ms,) = reader.unpack(_I)
    reader.end()
    return DeleteRecordsRequest(topics, timeout_ms)


def _encode_delete_records_partition_result(writer: Writer, value: DeleteRecordsPartitionResult, _version: int) -> None:
    writer += _IQH.pack(value.partition_index, value.low_watermark, value.error_code)
    writer.end()


def _encode_delete_records_topic_result(writer: Writer, value: DeleteRecordsTopicResult, version: int) -> None:
    writer.string(value.name)
    writer.amount(value.partitions)
    for delete_records_partition_result in value.partitions:
        _encode_delete_records_partition_result(writer, delete_records_partition_result, version)
    writer.end()


def encode_response(writer: Writer, value: DeleteRecordsResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.topics)
    for delete_records_topic_result in value.topics:
        _encode_delete_records_topic_result(writer, delete_records_topic_result, version)
    writer.end()


RESPONSE = DeleteRecordsResponse
