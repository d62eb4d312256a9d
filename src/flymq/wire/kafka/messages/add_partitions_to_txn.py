"""AddPartitionsToTxn, versions 0 to 5. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 3
_QHT = Struct(">qh?")
_QH = Struct(">qh")
_IH = Struct(">ih")
_I = Struct(">i")
_H = Struct(">h")


class AddPartitionsToTxnTransaction(msgspec.Struct):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnTopic(msgspec.Struct):
    name: str = ""
    partitions: list[int] = []


class AddPartitionsToTxnRequest(msgspec.Struct):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    topics: list[AddPartitionsToTxnTopic] = []
    transactions: list[AddPartitionsToTxnTransaction] = []


class AddPartitionsToTxnResult(msgspec.Struct):
    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


class AddPartitionsToTxnPartitionResult(msgspec.Struct):
    partition_index: int = 0
    partition_error_code: int = 0


class AddPartitionsToTxnTopicResult(msgspec.Struct):
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = []
    error_code: int = 0
    results_by_transaction: list[AddPartitionsToTxnResult] = []


def _parse_add_partitions_to_txn_transaction(reader: Reader, version: int) -> AddPartitionsToTxnTransaction:
    transactional_id = reader.string()
    producer_id, producer_epoch, verify_only = reader.unpack(_QHT)
    topics = [_parse_add_partitions_to_txn_topic(reader, version) for _ in range(reader.count())]
    reader.end()
    return AddPartitionsToTxnTransaction(transactional_id, producer_id, producer_epoch, verify_only, topics)


def _parse_add_partitions_to_txn_topic(reader: Reader, _version: int) -> AddPartitionsToTxnTopic:
    name = reader.string()
    partitions = reader.int32s()
    reader.end()
    return AddPartitionsToTxnTopic(name, partitions)


def parse_request(reader: Reader, version: int) -> AddPartitionsToTxnRequest:
    transactional_id = ""
    if version <= 3:
        transactional_id = reader.string()
    producer_id = 0
    producer_epoch = 0
    if version <= 3:
        producer_id, producer_epoch = reader.unpack(_QH)
    topics: list[AddPartitionsToTxnTopic] = []
    if version <= 3:
        topics = [_parse_add_partitions_to_txn_topic(reader, version) for _ in range(reader.count())]
    transactions: list[AddPartitionsToTxnTransaction] = []
    if version >= 4:
        transactions = [_parse_add_partitions_to_txn_transaction(reader, version) for _ in range(reader.count())]
    reader.end()
    return AddPartitionsToTxnRequest(transactional_id, producer_id, producer_epoch, topics, transactions)


def _encode_add_partitions_to_txn_result(writer: Writer, value: AddPartitionsToTxnResult, version: int) -> None:
    writer.string(value.transactional_id)
    writer.amount(value.topic_results)
    for add_partitions_to_txn_topic_result in value.topic_results:
        _encode_add_partitions_to_txn_topic_result(writer, add_partitions_to_txn_topic_result, version)
    writer.end()


def _encode_add_partitions_to_txn_partition_result(
    writer: Writer, value: AddPartitionsToTxnPartitionResult, _version: int
) -> None:
    writer += _IH.pack(value.partition_index, value.partition_error_code)
    writer.end()


def _encode_add_partitions_to_txn_topic_result(
    writer: Writer, value: AddPartitionsToTxnTopicResult, version: int
) -> None:
    writer.string(value.name)
    writer.amount(value.results_by_partition)
    for add_partitions_to_txn_partition_result in value.results_by_partition:
        _encode_add_partitions_to_txn_partition_result(writer, add_partitions_to_txn_partition_result, version)
    writer.end()


def encode_response(writer: Writer, value: AddPartitionsToTxnResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    if version <= 3:
        writer.amount(value.results_by_topic_v3_and_below)
        for add_partitions_to_txn_topic_result in value.results_by_topic_v3_and_below:
            _encode_add_partitions_to_txn_topic_result(writer, add_partitions_to_txn_topic_result, version)
    if version >= 4:
        writer += _H.pack(value.error_code)
    if version >= 4:
        writer.amount(value.results_by_transaction)
        for add_partitions_to_txn_result in value.results_by_transaction:
            _encode_add_partitions_to_txn_result(writer, add_partitions_to_txn_result, version)
    writer.end()


RESPONSE = AddPartitionsToTxnResponse
