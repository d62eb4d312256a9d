"""ListTransactions, versions 0 to 2. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 0
_Q = Struct(">q")
_IH = Struct(">ih")


class ListTransactionsRequest(msgspec.Struct):
    state_filters: list[str] = []
    producer_id_filters: list[int] = []
    duration_filter: int = -1
    transactional_id_pattern: str | None = None


class TransactionState(msgspec.Struct):
    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""


class ListTransactionsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[TransactionState] = []


def parse_request(reader: Reader, version: int) -> ListTransactionsRequest:
    state_filters = [reader.string() for _ in range(reader.count())]
    producer_id_filters = [reader.unpack(_Q)[0] for _ in range(reader.count())]
    duration_filter = -1
    if version >= 1:
        (duration_filter,) = reader.unpack(_Q)
    transactional_id_pattern: str | None = None
    if version >= 2:
        transactional_id_pattern = reader.nullable_string()
    reader.end()
    return ListTransactionsRequest(state_filters, producer_id_filters, duration_filter, transactional_id_pattern)


def _encode_transaction_state(writer: Writer, value: TransactionState, _version: int) -> None:
    writer.string(value.transactional_id)
    writer += _Q.pack(value.producer_id)
    writer.string(value.transaction_state)
    writer.end()


def encode_response(writer: Writer, value: ListTransactionsResponse, version: int) -> None:
    writer += _IH.pack(value.throttle_time_ms, value.error_code)
    writer.amount(value.unknown_state_filters)
    for one_string in value.unknown_state_filters:
        writer.string(one_string)
    writer.amount(value.transaction_states)
    for transaction_state in value.transaction_states:
        _encode_transaction_state(writer, transaction_state, version)
    writer.end()


RESPONSE = ListTransactionsResponse
