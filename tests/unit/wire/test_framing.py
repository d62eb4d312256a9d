"""Frames are cut from a stream without copies, and a broken stream is refused early."""

import pytest

from flymq.model.errors import BrokenFrame, RequestTooLarge, UnsupportedVersion
from flymq.wire.native.framing import HEADER_SIZE, FrameCutter, frame_header


def frame(opcode: int, payload: bytes) -> bytes:
    return frame_header(opcode, len(payload)) + payload


def receive(cutter: FrameCutter, data: bytes) -> list[tuple[int, bytes]]:
    return [(opcode, bytes(payload)) for opcode, payload in cutter.feed(data)]


def test_the_header_is_magic_version_opcode_and_a_big_endian_length() -> None:
    assert frame_header(0x06, 0x01020304) == bytes([0xFB, 0x01, 0x06, 1, 2, 3, 4])


def test_frames_that_arrive_together_are_told_apart() -> None:
    assert receive(FrameCutter(), frame(1, b"one") + frame(2, b"") + frame(3, b"three")) == [
        (1, b"one"),
        (2, b""),
        (3, b"three"),
    ]


def test_a_frame_that_arrives_byte_by_byte_is_whole_at_its_last_byte() -> None:
    cutter = FrameCutter()
    *first, last = (bytes([byte]) for byte in frame(7, b"slow"))
    assert [receive(cutter, byte) for byte in first] == [[]] * len(first)
    assert not cutter.is_between_frames
    assert receive(cutter, last) == [(7, b"slow")]
    assert cutter.is_between_frames


def test_a_frame_larger_than_the_scratch_is_received_into_its_own_memory() -> None:
    cutter = FrameCutter(bytearray(64))
    payload = bytes(range(256)) * 40
    assert receive(cutter, frame(6, payload) + frame(1, b"next")) == [(6, payload), (1, b"next")]


def test_a_frame_that_arrives_whole_is_a_view_of_the_scratch() -> None:
    scratch = bytearray(64)
    cutter = FrameCutter(scratch)
    [(_, payload)] = cutter.feed(frame(1, b"view"))
    assert payload.obj is scratch


def test_a_kept_payload_outlives_the_next_read() -> None:
    cutter = FrameCutter(bytearray(64))
    [kept] = [cutter.keep(payload) for _, payload in cutter.feed(frame(1, b"first"))]
    list(cutter.feed(frame(1, b"other")))
    assert bytes(kept) == b"first"


def test_memory_grows_with_what_arrives_not_with_what_a_header_claims() -> None:
    cutter = FrameCutter(bytearray(64), body_bytes_max=1 << 30)
    list(cutter.feed(frame_header(1, 1 << 30)))
    assert len(cutter.get_buffer()) <= 64


def test_connections_can_share_one_scratch() -> None:
    scratch = bytearray(64)
    one, other = FrameCutter(scratch), FrameCutter(scratch)
    whole = frame(1, b"one")
    list(one.feed(whole[:3]))
    assert receive(other, frame(2, b"other")) == [(2, b"other")]
    assert receive(one, whole[3:]) == [(1, b"one")]


def test_a_wrong_first_byte_breaks_the_stream_at_once() -> None:
    with pytest.raises(BrokenFrame, match="0x47"):
        receive(FrameCutter(), b"G")


def test_an_unknown_version_is_named() -> None:
    with pytest.raises(UnsupportedVersion, match="version 2"):
        receive(FrameCutter(), b"\xfb\x02")


def test_a_length_over_the_limit_is_refused_before_the_body_arrives() -> None:
    cutter = FrameCutter(body_bytes_max=100)
    with pytest.raises(RequestTooLarge, match="101 bytes"):
        receive(cutter, frame_header(1, 101))


def test_frames_before_the_break_are_still_delivered() -> None:
    received = []
    with pytest.raises(BrokenFrame):
        for opcode, _ in FrameCutter().feed(frame(1, b"good") + b"garbage"):
            received.append(opcode)
    assert received == [1]


def test_the_largest_allowed_frame_passes() -> None:
    cutter = FrameCutter(bytearray(HEADER_SIZE + 1), body_bytes_max=100)
    assert receive(cutter, frame(1, bytes(100))) == [(1, bytes(100))]
