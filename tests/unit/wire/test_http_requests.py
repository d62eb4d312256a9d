"""HTTP requests out of bytes: what is understood, and what is refused so that nobody can read it in two ways."""

from __future__ import annotations

import pytest

from flymq.model.errors import FlyMQError, MalformedHttp, RequestHeadTooLarge
from flymq.wire.http.requests import END, HEAD_BYTES_MAX, HEADERS_MAX, Event, RequestHead, RequestReader

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(data: bytes) -> list[Event]:
    """Return everything that is in these bytes."""
    reader = RequestReader()
    reader.receive(data)
    found: list[Event] = []
    while events := reader.read():
        found += events
    return found


def head_of(data: bytes) -> RequestHead:
    head = read(data)[0]
    assert isinstance(head, RequestHead)
    return head


def refusal(data: bytes) -> FlyMQError:
    with pytest.raises(FlyMQError) as refused:
        read(data)
    return refused.value


def test_a_request_is_its_head_its_body_and_its_end() -> None:
    head, body, end = read(b"POST /a%20b?c=d HTTP/1.1\r\nHost: x\r\nX-Thing:  1 \r\nContent-Length: 2\r\n\r\n{}")
    assert isinstance(head, RequestHead)
    assert (head.method, head.path, head.query, head.version) == ("POST", b"/a%20b", b"c=d", "1.1")
    assert head.headers == [(b"host", b"x"), (b"x-thing", b"1"), (b"content-length", b"2")]
    assert (head.keeps_alive, head.expects_continue, head.upgrade) == (True, False, b"")
    assert (body, end) == (b"{}", END)


def test_pipelined_requests_are_read_one_at_a_time() -> None:
    reader = RequestReader()
    second = b"GET /second HTTP/1.1\r\nHost: x\r\n\r\n"
    for first in (GET + b"\r\n", GET + b"Content-Length: 4\r\n\r\n\r\n\r\n", CHUNKED + b"4\r\n\r\n\r\n\r\n0\r\n\r\n"):
        reader.receive(first + second)
        assert reader.read()[-1] is END
        assert reader.held_bytes == len(second)
        head, end = reader.read()
        assert isinstance(head, RequestHead)
        assert (head.path, end, reader.held_bytes) == (b"/second", END, 0)


def test_nothing_is_read_after_a_request_that_wants_to_be_the_last() -> None:
    for last in (GET + b"Connection: close\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n"):
        head, end = read(last + b"GET / HTTP/1.1\r\n\r\n")
        assert isinstance(head, RequestHead)
        assert (head.keeps_alive, end) == (False, END)


def test_a_client_of_1_0_keeps_its_connection_if_it_asks_for_that() -> None:
    assert head_of(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keeps_alive


def test_chunks_are_put_together_and_what_is_said_behind_them_is_no_header() -> None:
    head, *body, end = read(CHUNKED + b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nAuthorization: Basic eDp5\r\n\r\n")
    assert isinstance(head, RequestHead)
    assert b"".join(piece for piece in body if isinstance(piece, bytes)) == b"abcde"
    assert end is END
    assert b"authorization" not in dict(head.headers)


def test_only_1_1_can_expect_to_be_told_to_continue() -> None:
    expecting = b"Expect: 100-Continue\r\nContent-Length: 1\r\n\r\n"
    assert head_of(GET + expecting).expects_continue
    assert not head_of(b"POST / HTTP/1.0\r\n" + expecting).expects_continue


def test_a_request_to_upgrade_has_a_body_like_any_other() -> None:
    upgrade = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    for framing, body in (
        (b"Content-Length: 20\r\n\r\n", b"GET /x HTTP/1.1\r\n\r\n!"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n"),
        (b"\r\n", b""),
    ):
        events = read(upgrade + framing + body + GET + b"\r\n")
        heads = [event for event in events if isinstance(event, RequestHead)]
        assert [(head.upgrade, head.method) for head in heads] == [(b"h2c", "POST"), (b"", "GET")]
        assert events.count(END) == 2


@pytest.mark.parametrize(
    ("line", "path", "query"),
    [
        (b"GET http://broker:9092/a?b HTTP/1.1", b"/a", b"b"),
        (b"GET HTTPS://broker HTTP/1.1", b"/", b""),
        (b"GET http://broker?b=/c HTTP/1.1", b"/", b"b=/c"),
        (b"OPTIONS * HTTP/1.1", b"*", b""),
        (b"GET //a/b HTTP/1.1", b"//a/b", b""),
        (b"GET /a?b?c=/d HTTP/1.1", b"/a", b"b?c=/d"),
    ],
)
def test_every_form_of_a_target_is_understood(line: bytes, path: bytes, query: bytes) -> None:
    head = head_of(line + b"\r\nHost: x\r\n\r\n")
    assert (head.path, head.query) == (path, query)


def test_a_url_as_target_says_which_host_is_meant() -> None:
    assert dict(head_of(b"GET http://meant:1/ HTTP/1.1\r\nHost: other\r\n\r\n").headers)[b"host"] == b"meant:1"


MALFORMED = {
    "Content-Length and Transfer-Encoding": GET + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding and Content-Length": GET + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": GET + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "a length twice": GET + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": GET + b"Content-Length: 3, 3\r\n\r\nabc",
    "a length with a sign": GET + b"Content-Length: +3\r\n\r\nabc",
    "a negative length": GET + b"Content-Length: -3\r\n\r\nabc",
    "no length at all": GET + b"Content-Length: \r\n\r\nabc",
    "a length beyond 64 bits": GET + b"Content-Length: 99999999999999999999\r\n\r\nabc",
    "an unknown coding": GET + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a coding that is not undone": GET + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding after chunked": GET + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two codings": GET + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding in another disguise": GET + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "a coding with a space in its name": GET + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "chunks in 1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "lines that end with LF": b"GET / HTTP/1.1\nHost: x\n\n",
    "lines that end with CR": b"GET / HTTP/1.1\rHost: x\r\r",
    "one line that ends with LF": b"GET / HTTP/1.1\r\nHost: x\n\r\n",
    "a CR within a line": b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
    "a folded line": GET + b"A: b\r\n c\r\n\r\n",
    "a line folded by a tab": GET + b"A: b\r\n\tc\r\n\r\n",
    "a folded request line": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "a space in a name": GET + b"A b: c\r\n\r\n",
    "NUL in a name": GET + b"A\x00: c\r\n\r\n",
    "no name": GET + b": c\r\n\r\n",
    "no colon": GET + b"A\r\n\r\n",
    "a name that is no ASCII": GET + b"\xc3\xa9: c\r\n\r\n",
    "NUL in a value": GET + b"A: b\x00c\r\n\r\n",
    "DEL in a value": GET + b"A: b\x7fc\r\n\r\n",
    "a chunk size with 0x": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "a chunk size with a sign": CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n",
    "a chunk size with a space": CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": CHUNKED + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"2\r\nabc\r\n0\r\n\r\n",
    "chunks ended by LF": CHUNKED + b"3\nabc\n0\n\n",
    "LF in a chunk extension": CHUNKED + b"3;\nabc\r\n0\r\n\r\n",
    "LF behind the last chunk": CHUNKED + b"0\r\nA: b\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": GET + b"Host: y\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: x\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
    "a space behind the version": b"GET / HTTP/1.1 \r\nHost: x\r\n\r\n",
    "an unknown method": b"GETX / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a method in lower case": b"get / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a proxy is meant": b"CONNECT broker:9092 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a star that is no question": b"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
    "a host as target": b"GET broker:9092 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a target without a slash": b"GET livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "a URL of something else": b"GET ftp://broker/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "a URL without a host": b"GET http:///livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "a URL with a user": b"GET http://a@broker/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "a fragment": b"GET /livez#top HTTP/1.1\r\nHost: x\r\n\r\n",
    "a space in a target": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "a target that is no ASCII": b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a control character in a target": b"GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_what_could_be_read_in_two_ways_is_refused(data: bytes) -> None:
    assert isinstance(refusal(data), MalformedHttp)


def test_a_head_has_a_limit_to_the_byte() -> None:
    def head(size: int) -> bytes:
        return GET + b"A: " + b"x" * (size - len(GET) - 7) + b"\r\n\r\n"

    assert len(head(100)) == 100
    assert read(head(HEAD_BYTES_MAX))[-1] is END
    assert isinstance(refusal(head(HEAD_BYTES_MAX + 1)), RequestHeadTooLarge)
    assert isinstance(refusal(head(HEAD_BYTES_MAX + 9)[:HEAD_BYTES_MAX]), RequestHeadTooLarge)  # without its end
    assert isinstance(refusal(b"\r\n" * HEAD_BYTES_MAX), RequestHeadTooLarge)


def test_a_head_has_so_many_headers_and_no_more() -> None:
    more = b"A: b\r\n" * (HEADERS_MAX - 1)
    assert read(GET + more + b"\r\n")[-1] is END
    assert isinstance(refusal(GET + more + b"A: b\r\n\r\n"), RequestHeadTooLarge)


@pytest.mark.parametrize("framing", [b"1;ext=", b"0\r\nA: "], ids=["an extension", "a header behind the chunks"])
def test_a_chunked_body_cannot_go_on_without_content(framing: bytes) -> None:
    reader = RequestReader()
    reader.receive(CHUNKED + framing)
    with pytest.raises(MalformedHttp):
        for _ in range(100):
            reader.read()
            reader.receive(b"x" * 1000)


def test_what_stands_before_the_broken_place_is_told_first() -> None:
    reader = RequestReader()
    reader.receive(CHUNKED + b"3\r\nabc\r\nno size\r\n")
    head, body = reader.read()
    assert isinstance(head, RequestHead)
    assert body == b"abc"
    with pytest.raises(MalformedHttp):
        reader.read()


def test_a_reader_knows_whether_it_is_within_a_request() -> None:
    reader = RequestReader()
    assert not reader.is_within_request
    for piece, is_within in (
        (b"GE", True),
        (b"T / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na", True),
        (b"b", False),
    ):
        reader.receive(piece)
        reader.read()
        assert reader.is_within_request is is_within
