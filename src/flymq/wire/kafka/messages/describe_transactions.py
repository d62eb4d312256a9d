"""DescribeTransactions, version 0. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 0
_H = Struct(">h")
_IQQH = Struct(">iqqh")
_I = Struct(">i")


class DescribeTransactionsRequest(msgspec.Struct):
    transactional_ids: list[str] = []


class TopicData(msgspec.Struct):
    topic: str = ""
    partitions: list[int] = []


class TransactionState(msgspec.Struct):
    error_code: int = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = -1
    producer_id: int = 0
    producer_epoch: int = 0
    topics: list[TopicData] = []


class DescribeTransactionsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    transaction_states: list[TransactionState] = []


def parse_request(reader: Reader, version: int) -> DescribeTransactionsRequest:
    transactional_ids = [reader.string() for _ in range(reader.count())]
    reader.end()
    return DescribeTransactionsRequest(transactional_ids)


def _encode_topic_data(writer: Writer, value: TopicData, _version: int) -> None:
    writer.string(value.topic)
    writer.int32s(value.partitions)
    writer.end()


def _encode_transaction_state(writer: Writer, value: TransactionState, version: int) -> None:
    writer += _H.pack(value.error_code)
    writer.string(value.transactional_id)
    writer.string(value.transaction_state)
    writer += _IQQH.pack(
        value.transaction_timeout_ms, value.transaction_start_time_ms, value.producer_id, value.producer_epoch
    )
    writer.amount(value.topics)
    for topic_data in value.topics:
        _encode_topic_data(writer, topic_data, version)
    writer.end()


def encode_response(writer: Writer, value: DescribeTransactionsResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.transaction_states)
    for transaction_state in value.transaction_states:
        _encode_transaction_state(writer, transaction_state, version)
    writer.end()


RESPONSE = DescribeTransactionsResponse
