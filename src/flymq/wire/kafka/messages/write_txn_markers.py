"""WriteTxnMarkers, versions 1 to 2. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 1
_QHT = Struct(">qh?")
_I = Struct(">i")
_B = Struct(">b")
_IH = Struct(">ih")
_Q = Struct(">q")


class WritableTxnMarkerTopic(msgspec.Struct):
    name: str = ""
    partition_indexes: list[int] = []


class WritableTxnMarker(msgspec.Struct):
    producer_id: int = 0
    producer_epoch: int = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: int = 0
    transaction_version: int = 0


class WriteTxnMarkersRequest(msgspec.Struct):
    markers: list[WritableTxnMarker] = []


class WritableTxnMarkerPartitionResult(msgspec.Struct):
    partition_index: int = 0
    error_code: int = 0


class WritableTxnMarkerTopicResult(msgspec.Struct):
    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerResult(msgspec.Struct):
    producer_id: int = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WriteTxnMarkersResponse(msgspec.Struct):
    markers: list[WritableTxnMarkerResult] = []


def _parse_writable_txn_marker_topic(reader: Reader, _version: int) -> WritableTxnMarkerTopic:
    name = reader.string()
    partition_indexes = reader.int32s()
    reader.end()
    return WritableTxnMarkerTopic(name, partition_indexes)


def _parse_writable_txn_marker(reader: Reader, version: int) -> WritableTxnMarker:
    producer_id, producer_epoch, transaction_result = reader.unpack(_QHT)
    topics = [_parse_writable_txn_marker_topic(reader, version) for _ in range(reader.count())]
    (coordinator_epoch,) = reader.unpack(_I)
    transaction_version = 0
    if version >= 2:
        (transaction_version,) = reader.unpack(_B)
    reader.end()
    return WritableTxnMarker(
        producer_id, producer_epoch, transaction_result, topics, coordinator_epoch, transaction_version
    )


def parse_request(reader: Reader, version: int) -> WriteTxnMarkersRequest:
    markers = [_parse_writable_txn_marker(reader, version) for _ in range(reader.count())]
    reader.end()
    return WriteTxnMarkersRequest(markers)


def _encode_writable_txn_marker_partition_result(
    writer: Writer, value: WritableTxnMarkerPartitionResult, _version: int
) -> None:
    writer += _IH.pack(value.partition_index, value.error_code)
    writer.end()


def _encode_writable_txn_marker_topic_result(writer: Writer, value: WritableTxnMarkerTopicResult, version: int) -> None:
    writer.string(value.name)
    writer.amount(value.partitions)
    for writable_txn_marker_partition_result in value.partitions:
        _encode_writable_txn_marker_partition_result(writer, writable_txn_marker_partition_result, version)
    writer.end()


def _encode_writable_txn_marker_result(writer: Writer, value: WritableTxnMarkerResult, version: int) -> None:
    writer += _Q.pack(value.producer_id)
    writer.amount(value.topics)
    for writable_txn_marker_topic_result in value.topics:
        _encode_writable_txn_marker_topic_result(writer, writable_txn_marker_topic_result, version)
    writer.end()


def encode_response(writer: Writer, value: WriteTxnMarkersResponse, version: int) -> None:
    writer.amount(value.markers)
    for writable_txn_marker_result in value.markers:
        _encode_writable_txn_marker_result(writer, writable_txn_marker_result, version)
    writer.end()


RESPONSE = WriteTxnMarkersResponse
