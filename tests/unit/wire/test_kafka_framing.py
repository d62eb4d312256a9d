"""Requests cut from the stream, their heads, and responses around bodies that lie elsewhere."""

from dataclasses import dataclass
from struct import pack
from typing import Any

import pytest

from flymq.model.errors import BrokenFrame, InvalidRequest, RequestTooLarge
from flymq.wire.first_bytes import Speaks
from flymq.wire.kafka.apis import Api
from flymq.wire.kafka.codec import encode_response, parse_request
from flymq.wire.kafka.framing import RequestCutter, parse_client_id, parse_head, speaks_kafka
from flymq.wire.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from flymq.wire.kafka.values import CompactReader, CompactWriter, Reader, Writer


@dataclass
class Slice:
    length: int


def request(body: bytes = b"", *, api: int = 18, version: int = 0, client_id: bytes | None = b"me") -> bytes:
    name = pack(">h", -1) if client_id is None else pack(">h", len(client_id)) + client_id
    frame = pack(">hhi", api, version, 7) + name + body
    return pack(">i", len(frame)) + frame


def test_requests_come_out_whole_however_the_stream_is_cut() -> None:
    stream = request(b"one") + request(b"second") + request()
    for step in (1, 3, 7, len(stream)):
        cutter = RequestCutter()
        found = [bytes(frame) for at in range(0, len(stream), step) for frame in cutter.feed(stream[at : at + step])]
        assert found == [request(b"one")[4:], request(b"second")[4:], request()[4:]]
        assert cutter.is_between_frames


def test_a_length_is_refused_before_its_body_arrives() -> None:
    with pytest.raises(RequestTooLarge):
        list(RequestCutter(body_bytes_max=100).feed(pack(">i", 101)))
    for length in (-1, 0, 7):
        with pytest.raises(BrokenFrame):
            list(RequestCutter().feed(pack(">i", length)))


def test_a_head_says_what_is_asked_and_by_whom() -> None:
    frame = memoryview(request(b"body", api=3, version=9))[4:]
    head = parse_head(frame)
    assert head[:3] == (3, 9, 7)
    assert parse_client_id(frame, head) == "me"
    assert bytes(frame[head.size :]) == b"body"


def test_a_client_without_a_name_has_none() -> None:
    frame = memoryview(request(b"body", client_id=None))[4:]
    assert parse_client_id(frame, parse_head(frame)) == ""


def test_a_client_id_beyond_the_end_breaks_the_frame() -> None:
    with pytest.raises(BrokenFrame):
        parse_head(memoryview(pack(">hhih", 18, 0, 7, 100) + b"short"))


@pytest.mark.parametrize(
    ("first", "speaks"),
    [
        (request()[:8], Speaks.YES),
        (request(api=1)[:6], Speaks.YES),
        (b"\0\0\0", Speaks.MORE),
        (b"\x02", Speaks.MORE),
        (request(api=999)[:8], Speaks.NO),
        (b"G", Speaks.NO),
        (b"AMQP\0\0\x09\x01", Speaks.NO),
        (b"\x10\x0c\0\x04MQTT", Speaks.NO),
        (b"\xfb\x01\x01\0\0\0\0\0", Speaks.NO),
        (b"\x16\x03\x01\x02\0\x01\0\x01", Speaks.NO),
    ],
)
def test_the_first_bytes_of_other_protocols_are_not_taken_for_kafkas(first: bytes, speaks: Speaks) -> None:
    assert speaks_kafka(first) is speaks


def test_tags_that_nobody_knows_are_skipped() -> None:
    reader = CompactReader(memoryview(b"\x02\x00\x01x\xb9\x60\x02yz\x05"))
    reader.end()
    assert reader.varint() == 5


@pytest.mark.parametrize(
    "reader", [Reader(memoryview(b"\x7f\xff\xff\xff")), CompactReader(memoryview(b"\xff\xff\x7f"))]
)
def test_an_array_longer_than_the_request_is_refused_before_it_is_built(reader: Reader) -> None:
    with pytest.raises(InvalidRequest):
        reader.count()


def test_a_varint_that_never_ends_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        CompactReader(memoryview(b"\xff" * 9)).varint()


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, (1 << 31) - 1])
def test_varints_come_back(value: int) -> None:
    writer = CompactWriter()
    writer.varint(value)
    assert CompactReader(memoryview(bytes(writer))).varint() == value


def test_a_request_that_ends_too_early_is_named() -> None:
    with pytest.raises(InvalidRequest, match="METADATA version 9"):
        parse_request(Api.METADATA, 9, memoryview(b"\0"), 0)


@pytest.mark.parametrize("version", [4, 12])
def test_bodies_stay_where_they_are_and_the_response_goes_around_them(version: int) -> None:
    def response(first: Any, second: Any) -> FetchResponse:
        partitions = [PartitionData(0, records=first), PartitionData(1), PartitionData(2, records=second)]
        return FetchResponse(responses=[FetchableTopicResponse("topic", partitions=partitions)])

    bodies = [b"a" * 300, b"b" * 5]
    slices = [Slice(300), Slice(5)]
    pieces: list[Any] = encode_response(Api.FETCH, version, 1, response(*slices))
    assert [piece for piece in pieces if isinstance(piece, Slice)] == slices
    whole = b"".join(bodies[slices.index(piece)] if isinstance(piece, Slice) else piece for piece in pieces)
    (copied,) = encode_response(Api.FETCH, version, 1, response(*bodies))
    assert copied == whole


def test_a_writer_without_bodies_is_one_piece() -> None:
    writer = Writer()
    writer.string("text")
    assert writer.pieces() == [b"\0\x04text"]
