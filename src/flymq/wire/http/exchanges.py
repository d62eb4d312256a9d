"""The client's side of HTTP/1.1 (RFC 9112): encode requests, parse responses. No I/O here: bytes in, events out.

    HTTP/1.1 200 OK\\r\\n            ┐
    Content-Length: 2\\r\\n\\r\\n    ┘ ResponseHead
    {}                            bytes, in any number of pieces
                                  END

llhttp, the C parser of Node.js, parses the syntax. Requests are not pipelined: what follows a response is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from flymq.model.errors import MalformedHttp
from flymq.wire.http.requests import END, HEAD_BYTES_MAX, End


def encode_request(method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode("latin-1") + body


@dataclass(slots=True)
class ResponseHead:
    """A response without its body. Headers are of no use to the callers there are."""

    status: int
    keeps_alive: bool
    """Whether the connection can be used again after this response."""


ResponseEvent = ResponseHead | bytes | End


class ResponseReader:
    """The receiving half of one connection."""

    __slots__ = ("_events", "_head_bytes", "_is_complete", "_is_informational", "_parser")

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._events: list[ResponseEvent] = []
        self._head_bytes = 0
        self._is_complete = False
        self._is_informational = False

    def expect_response(self) -> None:
        """A request was sent."""
        self._is_complete = False

    def receive(self, data: bytes) -> list[ResponseEvent]:
        """Return the events in `data`. Raises MalformedHttp."""
        if self._is_complete:
            raise MalformedHttp("a response without a request")
        events = self._events = []
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            raise MalformedHttp(f"not a response: {error}") from error
        return events

    # --- called by the parser

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise MalformedHttp("two responses to one request")
        self._head_bytes = 0

    def on_status(self, reason: bytes) -> None:
        self._count(len(reason))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            raise MalformedHttp(f"the head of the response has more than {HEAD_BYTES_MAX} bytes")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._is_informational = 100 <= status < 200
        if not self._is_informational:
            self._events.append(ResponseHead(status, self._parser.should_keep_alive()))

    def on_body(self, body: bytes) -> None:
        self._events.append(body)

    def on_message_complete(self) -> None:
        if not self._is_informational:
            self._is_complete = True
            self._events.append(END)
