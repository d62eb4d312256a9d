"""However the stream is cut, the requests are the same; whatever arrives, only named errors come out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flymq.model.errors import FlyMQError, MalformedHttp, RequestHeadTooLarge
from flymq.wire.http.requests import END, Event, RequestHead, RequestReader

_starts = st.sampled_from(
    [
        b"GET / HTTP/1.1",
        b"POST /a?b HTTP/1.1",
        b"GET / HTTP/1.0",
        b"GET http://x/ HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"CONNECT x:1 HTTP/1.1",
        b"GET /",
    ]
)
_lines = st.sampled_from(
    [
        b"Host: x",
        b"Content-Length: 3",
        b"Content-Length: 0",
        b"Transfer-Encoding: chunked",
        b"Connection: close",
        b"Connection: upgrade",
        b"Upgrade: websocket",
        b"Expect: 100-continue",
        b"A: b",
        b"A:",
        b"A:  b \t",
        b" folded",
    ]
)
_bodies = st.sampled_from(
    [
        b"",
        b"abc",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"4\r\n\r\n\r\n\r\n0\r\nA: b\r\n\r\n",
        b"0\r\n\r\n",
        b"1;a=b\r\n",
        b"\r\n\r\n",
    ]
)

good = st.builds(
    lambda body, chunked: (
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        if chunked and body
        else b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    ),
    st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"x", b"0"]), max_size=12).map(b"".join),
    st.booleans(),
)
plausible = st.builds(
    lambda start, lines, body: b"\r\n".join([start, *lines, b"", b""]) + body,
    _starts,
    st.lists(_lines, max_size=5),
    _bodies,
)
streams = st.lists(good | plausible | st.binary(max_size=20), max_size=5).map(b"".join)
cuts = st.lists(st.integers(0, 1000), max_size=40)


def read_in_pieces(stream: bytes, places: list[int]) -> list[object]:
    """Return all events, with the body in one piece, and what is wrong with the rest if anything is."""
    reader = RequestReader()
    edges = sorted({0, len(stream), *(place for place in places if place < len(stream))})
    found: list[object] = []
    for start, end in pairwise(edges):
        reader.receive(stream[start:end])
        try:
            while events := reader.read():
                _add(found, events)
        except FlyMQError as error:
            assert isinstance(error, (MalformedHttp, RequestHeadTooLarge))
            return [*found, (type(error), error.message)]
    return found


def _add(found: list[object], events: list[Event]) -> None:
    for event in events:
        if isinstance(event, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += event
        else:
            found.append(event)


@given(streams, cuts)
def test_any_split_of_the_stream_gives_the_same_requests(stream: bytes, places: list[int]) -> None:
    whole = read_in_pieces(stream, [])
    assert read_in_pieces(stream, places) == whole
    assert read_in_pieces(stream, list(range(len(stream)))) == whole


@given(st.lists(good, min_size=1, max_size=5))
def test_what_is_well_formed_is_read_to_its_end(requests: list[bytes]) -> None:
    found = read_in_pieces(b"".join(requests), [])
    assert found.count(END) == sum(isinstance(event, RequestHead) for event in found) == len(requests)


@given(st.binary(max_size=300), cuts)
def test_garbage_gives_named_errors_only(data: bytes, places: list[int]) -> None:
    for stream in (
        data,
        b"GET / HTTP/1.1\r\n" + data,
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + data,
    ):
        read_in_pieces(stream, places)
