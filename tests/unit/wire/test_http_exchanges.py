"""Responses are parsed however they are cut into pieces; what is no response is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.model.errors import MalformedHttp
from flymq.wire.http.exchanges import ResponseEvent, ResponseHead, ResponseReader, encode_request
from flymq.wire.http.requests import END, HEAD_BYTES_MAX

COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + COUNTED
CLOSED = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"


def joined(events: list[ResponseEvent]) -> tuple[ResponseHead, bytes]:
    """Return the one response that the events are."""
    head, *body, end = events
    assert isinstance(head, ResponseHead)
    assert end is END
    return head, b"".join(piece for piece in body if isinstance(piece, bytes))


@pytest.mark.parametrize("response", [COUNTED, CHUNKED, CONTINUED, CLOSED])
@given(cuts=st.lists(st.integers(0, 120), max_size=8))
def test_a_response_is_the_same_however_it_is_cut(response: bytes, cuts: list[int]) -> None:
    reader = ResponseReader()
    at, events = 0, []
    for cut in sorted({*cuts, len(response)}):
        if piece := response[at:cut]:
            events += reader.receive(piece)
            at = cut
    head, body = joined(events)
    assert (head.status, head.keeps_alive) == ((503, False) if response is CLOSED else (200, True))
    assert body == b"hello"


def test_a_connection_carries_one_response_after_another() -> None:
    reader = ResponseReader()
    for response in (COUNTED, CHUNKED, COUNTED):
        reader.expect_response()
        assert joined(reader.receive(response))[1] == b"hello"


@pytest.mark.parametrize(
    "garbage", [b"\x15\x03\x01\x00\x02", b"SSH-2.0\r\n", b"HTTP/1.1 OK\r\n\r\n", COUNTED + COUNTED, UPGRADED]
)
def test_what_is_no_response_is_refused(garbage: bytes) -> None:
    with pytest.raises(MalformedHttp):
        ResponseReader().receive(garbage)


def test_a_response_that_nobody_asked_for_is_refused() -> None:
    reader = ResponseReader()
    reader.receive(COUNTED)
    with pytest.raises(MalformedHttp, match="without a request"):
        reader.receive(COUNTED)


def test_a_head_without_an_end_is_refused() -> None:
    reader = ResponseReader()
    reader.receive(b"HTTP/1.1 200 OK\r\n")
    with pytest.raises(MalformedHttp):
        for _ in range(HEAD_BYTES_MAX):
            reader.receive(b"X: " + b"x" * 1000 + b"\r\n")


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    with contextlib.suppress(MalformedHttp):
        ResponseReader().receive(data)


def test_a_request_has_its_headers_and_its_length() -> None:
    assert encode_request("POST", "/v3/kv/txn", [("Host", "a:1")], b"{}") == (
        b"POST /v3/kv/txn HTTP/1.1\r\nHost: a:1\r\nContent-Length: 2\r\n\r\n{}"
    )
