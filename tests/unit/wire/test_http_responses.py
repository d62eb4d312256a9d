"""HTTP responses as bytes: framed so that the client that asked can tell where they end."""

from __future__ import annotations

import pytest

from flymq.wire.http.responses import ResponseEncoder


def respond(encoder: ResponseEncoder, status: int, *bodies: bytes, **headers: str) -> bytes:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    sent = [encoder.start(status, pairs)]
    for left, body in enumerate(bodies, 1 - len(bodies)):
        sent += [bytes(piece) for piece in encoder.body(body, is_last=left == 0)]
    return b"".join(sent)


def test_a_body_of_known_length_is_sent_as_it_is() -> None:
    encoder = ResponseEncoder("GET", "1.1", keeps_alive=True)
    assert respond(encoder, 200, b"a", b"b", Content_Length="2") == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"
    assert encoder.keeps_alive


def test_a_body_of_unknown_length_is_sent_in_chunks() -> None:
    sent = respond(ResponseEncoder("GET", "1.1", keeps_alive=True), 200, b"a" * 17, b"", b"b", b"")
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.endswith(b"transfer-encoding: chunked")
    assert body == b"11\r\n" + b"a" * 17 + b"\r\n1\r\nb\r\n0\r\n\r\n"


def test_for_a_client_of_1_0_the_end_of_the_connection_is_the_end_of_such_a_body() -> None:
    encoder = ResponseEncoder("GET", "1.0", keeps_alive=True)
    assert respond(encoder, 200, b"a", b"b") == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nab"
    assert not encoder.keeps_alive


def test_a_client_of_1_0_is_told_that_its_connection_goes_on() -> None:
    sent = respond(ResponseEncoder("GET", "1.0", keeps_alive=True), 200, b"", content_length="0")
    assert sent == b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n"


def test_the_answer_to_head_has_the_headers_of_the_answer_to_get_and_no_body() -> None:
    sent = respond(ResponseEncoder("HEAD", "1.1", keeps_alive=True), 200, b"ab", content_length="2")
    assert sent == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
    assert respond(ResponseEncoder("HEAD", "1.1", keeps_alive=True), 200, b"ab") == b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_never_have_a_body(status: int) -> None:
    sent = respond(ResponseEncoder("GET", "1.1", keeps_alive=True), status, b"ab")
    assert sent.endswith(b"\r\n\r\n")
    assert b"transfer-encoding" not in sent


def test_no_content_has_no_length() -> None:
    sent = respond(ResponseEncoder("GET", "1.1", keeps_alive=True), 204, b"", content_length="0")
    assert sent == b"HTTP/1.1 204 No Content\r\n\r\n"


def test_the_application_may_end_the_connection_but_not_frame_the_body() -> None:
    encoder = ResponseEncoder("GET", "1.1", keeps_alive=True)
    sent = respond(encoder, 200, b"a", connection="Close", transfer_encoding="gzip", content_length="1")
    assert sent == b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\na"
    assert not encoder.keeps_alive


def test_a_status_without_a_name_can_be_sent() -> None:
    sent = respond(ResponseEncoder("GET", "1.1", keeps_alive=True), 299, b"", content_length="0")
    assert sent.startswith(b"HTTP/1.1 299 \r\n")


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "a\0b"])
def test_a_header_cannot_begin_another_one(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        respond(ResponseEncoder("GET", "1.1", keeps_alive=True), 200, b"", Location=value)


@pytest.mark.parametrize("bodies", [(b"abc",), (b"a",), (b"ab", b"c")])
def test_a_body_that_is_not_as_long_as_it_says_is_a_bug(bodies: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match="Content-Length"):
        respond(ResponseEncoder("GET", "1.1", keeps_alive=True), 200, *bodies, content_length="2")
