"""DescribeLogDirs, versions 1 to 5. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 2
_IQQT = Struct(">iqq?")
_H = Struct(">h")
_QQ = Struct(">qq")
_T = Struct(">?")
_I = Struct(">i")


class DescribableLogDirTopic(msgspec.Struct):
    topic: str = ""
    partitions: list[int] = []


class DescribeLogDirsRequest(msgspec.Struct):
    topics: list[DescribableLogDirTopic] | None = None


class DescribeLogDirsPartition(msgspec.Struct):
    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False


class DescribeLogDirsTopic(msgspec.Struct):
    name: str = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(msgspec.Struct):
    error_code: int = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


class DescribeLogDirsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    results: list[DescribeLogDirsResult] = []


def _parse_describable_log_dir_topic(reader: Reader, _version: int) -> DescribableLogDirTopic:
    topic = reader.string()
    partitions = reader.int32s()
    reader.end()
    return DescribableLogDirTopic(topic, partitions)


def parse_request(reader: Reader, version: int) -> DescribeLogDirsRequest:
    topics = (
        None
        if (amount := reader.nullable_count()) < 0
        else [_parse_describable_log_dir_topic(reader, version) for _ in range(amount)]
    )
    reader.end()
    return DescribeLogDirsRequest(topics)


def _encode_describe_log_dirs_partition(writer: Writer, value: DescribeLogDirsPartition, _version: int) -> None:
    writer += _IQQT.pack(value.partition_index, value.partition_size, value.offset_lag, value.is_future_key)
    writer.end()


def _encode_describe_log_dirs_topic(writer: Writer, value: DescribeLogDirsTopic, version: int) -> None:
    writer.string(value.name)
    writer.amount(value.partitions)
    for describe_log_dirs_partition in value.partitions:
        _encode_describe_log_dirs_partition(writer, describe_log_dirs_partition, version)
    writer.end()


def _encode_describe_log_dirs_result(writer: Writer, value: DescribeLogDirsResult, version: int) -> None:
    writer += _H.pack(value.error_code)
    writer.string(value.log_dir)
    writer.amount(value.topics)
    for describe_log_dirs_topic in value.topics:
        _encode_describe_log_dirs_topic(writer, describe_log_dirs_topic, version)
    if version >= 4:
        writer += _QQ.pack(value.total_bytes, value.usable_bytes)
    if version >= 5:
        writer += _T.pack(value.is_cordoned)
    writer.end()


def encode_response(writer: Writer, value: DescribeLogDirsResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    if version >= 3:
        writer += _H.pack(value.error_code)
    writer.amount(value.results)
    for describe_log_dirs_result in value.results:
        _encode_describe_log_dirs_result(writer, describe_log_dirs_result, version)
    writer.end()


RESPONSE = DescribeLogDirsResponse
