"""The length of an array is checked before anything is built from it."""

from __future__ import annotations

import tracemalloc
from struct import pack

import msgspec
import pytest

from flymq.model.errors import FlyMQError, InvalidRequest, RequestTooLarge
from flymq.wire.kafka.apis import Api
from flymq.wire.kafka.codec import parse_request
from flymq.wire.kafka.values import ELEMENTS_MAX
from flymq.wire.native.codec import CONTROL_BYTES_MAX, decode_request, peek_id
from flymq.wire.native.messages.fields import ELEMENTS_MAX as NATIVE_ELEMENTS_MAX
from flymq.wire.native.opcodes import Opcode

MANY = 3_000_000


def refuse(work: object, error: type[FlyMQError] = RequestTooLarge) -> None:
    """Check that the work is refused, and that it has built nothing large."""
    tracemalloc.start()
    try:
        with pytest.raises(error):
            work()  # type: ignore[operator]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_metadata_with_three_million_names_is_refused() -> None:
    request = memoryview(pack(">i", MANY) + pack(">h", 4) * MANY)
    refuse(lambda: parse_request(Api.METADATA, 8, request, 0))


def test_all_arrays_of_a_request_count_together() -> None:
    partitions = pack(">i", 1000) + pack(">iiq", 0, -1, -1) * 1000
    topics = 101
    request = pack(">ib", -1, 0) + pack(">i", topics) + (pack(">h", 1) + b"t" + partitions) * topics
    with pytest.raises(RequestTooLarge):
        parse_request(Api.LIST_OFFSETS, 5, memoryview(request), 0)


def test_as_many_as_allowed_are_read() -> None:
    request = pack(">i", ELEMENTS_MAX) + (pack(">h", 1) + b"t") * ELEMENTS_MAX + b"\0\0\0"
    assert len(parse_request(Api.METADATA, 8, memoryview(request), 0).topics) == ELEMENTS_MAX


@pytest.mark.parametrize(("api", "version", "before"), [(Api.PRODUCE, 7, pack(">hhi", -1, 1, 1000))])
def test_a_request_that_is_served_as_a_whole_may_have_less(api: Api, version: int, before: bytes) -> None:
    request = memoryview(before + pack(">i", 10_001) + (pack(">h", 1) + b"t" + pack(">i", 0)) * 10_001)
    refuse(lambda: parse_request(api, version, request, 0))


def test_a_struct_with_a_million_tagged_fields_is_refused() -> None:
    request = memoryview(b"\0" + b"\1" + b"\0\0\0" + b"\xc0\x84\x3d" + b"\1\0" * 1_000_000)
    refuse(lambda: parse_request(Api.METADATA, 9, request, 0), InvalidRequest)


@pytest.mark.parametrize(
    ("opcode", "field"),
    [(Opcode.METADATA, "topics"), (Opcode.FETCH, "partitions"), (Opcode.PRODUCE_BATCH, "partitions")],
)
def test_a_native_array_that_is_too_long_is_refused_before_it_is_decoded(opcode: Opcode, field: str) -> None:
    payload = msgspec.msgpack.encode({"id": 7, field: ["t"] * (NATIVE_ELEMENTS_MAX + 1)})
    refuse(lambda: decode_request(opcode, payload), InvalidRequest)
    assert peek_id(payload) == 7


def test_a_native_request_without_records_has_a_smaller_maximum_size() -> None:
    payload = msgspec.msgpack.encode({"topics": ["t" * CONTROL_BYTES_MAX]})
    refuse(lambda: decode_request(Opcode.METADATA, payload))
    nested = msgspec.msgpack.encode(
        {"group": "g", "topics": [], "owned": [{"topic": "t", "partitions": [0] * 600_000}]}
    )
    refuse(lambda: decode_request(Opcode.SUBSCRIBE, nested))


@pytest.mark.parametrize("number", [0, 1, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x10000, 0xFFFFFFFF])
def test_the_id_of_a_large_request_is_found_at_its_beginning(number: int) -> None:
    assert peek_id(msgspec.msgpack.encode({"id": number, "topic": "t" * (1 << 17)})) == number
    assert peek_id(msgspec.msgpack.encode({"topic": "t" * (1 << 17), "id": number})) == 0
    assert peek_id(msgspec.msgpack.encode({"topic": "t", "id": number})) == number
