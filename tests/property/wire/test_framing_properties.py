"""However the stream is cut, the frames are the same; whatever arrives, only named errors come out."""

import contextlib
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import encode

from flymq.model.errors import (
    BrokenFrame,
    FlyMQError,
    InvalidRequest,
    RequestTooLarge,
    UnknownOpcode,
    UnsupportedVersion,
)
from flymq.wire.native.codec import decode_answer, decode_request, peek_id
from flymq.wire.native.framing import FrameCutter, frame_header
from flymq.wire.native.opcodes import Opcode

frames = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=300)), max_size=8)
cuts = st.lists(st.integers(0, 3000), max_size=30)
garbage = st.binary(max_size=200) | st.binary(max_size=100).map(lambda tail: b"\xfb\x01" + tail)


def pieces(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place for place in places if place < len(data))})
    return [data[start:end] for start, end in pairwise(edges)]


@given(frames, cuts, st.integers(8, 500))
def test_any_split_of_the_stream_yields_the_same_frames(
    sent: list[tuple[int, bytes]], places: list[int], scratch_bytes: int
) -> None:
    stream = b"".join(frame_header(opcode, len(payload)) + payload for opcode, payload in sent)
    cutter = FrameCutter(bytearray(scratch_bytes))
    received = [(opcode, bytes(payload)) for piece in pieces(stream, places) for opcode, payload in cutter.feed(piece)]
    assert received == sent
    assert cutter.is_between_frames


@given(garbage, cuts)
def test_garbage_on_the_stream_gives_named_errors_only(data: bytes, places: list[int]) -> None:
    cutter = FrameCutter(bytearray(32), body_bytes_max=1000)
    try:
        for piece in pieces(data, places):
            for _ in cutter.feed(piece):
                pass
    except (BrokenFrame, UnsupportedVersion, RequestTooLarge):
        pass


@given(st.integers(0, 255), st.binary(max_size=200))
def test_a_garbage_payload_gives_named_errors_only(opcode: int, payload: bytes) -> None:
    for decode, refusals in (
        (decode_request, (InvalidRequest, UnknownOpcode)),
        (decode_answer, (BrokenFrame,)),
    ):
        try:
            decode(opcode, payload)
        except FlyMQError as error:
            assert isinstance(error, refusals)
    assert 0 <= peek_id(payload) < 1 << 32


_json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text("ab\x00", max_size=10)
    | st.binary(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["topic", "partition", "error"]), inner, max_size=4)
    ),
    max_leaves=12,
)
_fields = st.sampled_from(
    ["id", "topic", "partitions", "partition", "offset", "value", "key", "headers", "acks", "group"]
)


@given(st.sampled_from(sorted(Opcode)), st.dictionaries(_fields, _json_like))
def test_well_formed_maps_of_wrong_types_give_named_errors_only(opcode: int, fields: dict[str, object]) -> None:
    with contextlib.suppress(InvalidRequest, UnknownOpcode):
        decode_request(opcode, encode(fields))
