"""Parse HTTP/1.1 requests (RFC 9112). No I/O here: bytes in, events out.

    POST /topics HTTP/1.1\\r\\n     ┐
    Host: localhost\\r\\n           │ RequestHead
    Content-Length: 2\\r\\n\\r\\n    ┘
    {}                            bytes, in any number of pieces
                                  END

llhttp, the C parser of Node.js, parses the syntax strictly: line ends, folded lines, names and values of headers,
Content-Length, chunks. The rest is checked here: the size of the head, Host, the target, unsupported transfer codings.

llhttp cannot be paused between two requests. So it gets bytes only up to the end of one: as many as Content-Length
says, or else up to the next empty line. The head ends with one, and a chunked body too; an empty line within a chunk
only makes one more piece. Pipelined requests are buffered until they are requested.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from flymq.model.errors import FlyMQError, MalformedHttp, RequestHeadTooLarge

HEAD_BYTES_MAX = 64 << 10
"""Request line and headers together; also the limit of framing between two bytes of a chunked body."""

HEADERS_MAX = 100
_CHUNKED_BYTES_AT_ONCE = 64 << 10  # each four bytes may be an empty line: about 10 ms

_COPIED_BYTES_MAX = 4096  # up to this size a copy is cheaper than a view

_EMPTY_LINE = b"\r\n\r\n"
_LOOKED_AT = frozenset((b"host", b"content-length", b"transfer-encoding", b"expect", b"upgrade"))
_ONCE_AT_MOST = frozenset((b"host", b"content-length", b"transfer-encoding"))
_VERSIONS = frozenset(("1.0", "1.1"))


@dataclass(slots=True)
class RequestHead:
    """A request without its body."""

    method: str
    path: bytes
    """As received, percent-encoded. `*` for OPTIONS of the whole server."""
    query: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    """Names are lower-case."""
    keeps_alive: bool
    """Whether the connection is kept alive after this request."""
    expects_continue: bool
    """Whether the client waits for `100 Continue` before it sends the body."""
    upgrade: bytes
    """The protocol that the client requests by Upgrade, in lower case; empty if none."""


class End(Enum):
    END = "the request is complete"


END = End.END

Event = RequestHead | bytes | End


class RequestReader:
    """The receiving half of one connection. After an error, or the last request, it parses nothing more."""

    __slots__ = (
        "_at",
        "_body_left",
        "_chunked_bytes",
        "_data",
        "_error",
        "_events",
        "_found",
        "_framing_bytes",
        "_head_bytes",
        "_headers",
        "_is_complete",
        "_is_in_head",
        "_is_last",
        "_is_upgrade",
        "_parser",
        "_tail",
        "_url",
    )

    def __init__(self) -> None:
        self._parser = HttpRequestParser(self)
        self._data = b""
        self._at = 0  # position up to which the data is parsed
        self._tail = b""  # the last parsed bytes, which may be the start of an empty line
        self._events: list[Event] = []
        self._chunked_bytes = 0  # parsed per call
        self._error: FlyMQError | None = None
        self._is_last = False  # nothing is parsed after this request
        self._begin()

    def _begin(self) -> None:
        """Reset the state for the next request."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._found: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._framing_bytes = 0  # of a chunked body, since the last byte of content
        self._body_left = 0  # of the body, by Content-Length
        self._is_in_head = True
        self._is_complete = False
        self._is_upgrade = False

    @property
    def held_bytes(self) -> int:
        """Bytes received but not parsed."""
        return len(self._data) - self._at

    @property
    def is_within_request(self) -> bool:
        """Whether a request is incomplete."""
        return not self._is_complete and (self._head_bytes > 0 or not self._is_in_head)

    def receive(self, data: bytes) -> None:
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def take_rest(self) -> bytes:
        """Return the bytes that are not parsed, and clear the buffer."""
        rest, self._data, self._at = self._data[self._at :], b"", 0
        return rest

    def read(self) -> list[Event]:
        """Return the next events, of one request at most; none while more bytes are needed.

        Raise MalformedHttp or RequestHeadTooLarge once everything before the error has been returned.
        """
        if self._is_complete:
            if self._is_last:
                self.take_rest()
                return []
            self._begin()
        events = self._events = []
        self._chunked_bytes = 0
        while self._at < len(self._data) and self._error is None and not self._is_complete:
            if self._is_in_head:
                self._read_head()
            elif self._body_left:
                self._read_counted()
            elif self._chunked_bytes < _CHUNKED_BYTES_AT_ONCE:
                self._read_chunked()
            else:
                break
        if self._error is not None and not events:
            raise self._error
        return events

    def close(self) -> None:
        """Drop the parser, which has a reference to this object."""
        del self._parser

    def _read_head(self) -> None:
        start = self._at
        self._feed(min(self._after_empty_line(), start + HEAD_BYTES_MAX - self._head_bytes))
        self._head_bytes += self._at - start
        if self._is_in_head and self._head_bytes >= HEAD_BYTES_MAX:
            self._refuse(RequestHeadTooLarge(f"request line and headers exceed the limit of {HEAD_BYTES_MAX} bytes"))

    def _read_counted(self) -> None:
        start = self._at
        self._feed(min(start + self._body_left, len(self._data)))
        self._body_left -= self._at - start

    def _read_chunked(self) -> None:
        start = self._at
        end = self._after_empty_line()
        self._framing_bytes += end - start  # until the next content
        self._feed(end)
        self._chunked_bytes += end - start
        if self._framing_bytes > HEAD_BYTES_MAX:
            self._refuse(MalformedHttp("a chunked body has too much framing between its chunks"))

    def _after_empty_line(self) -> int:
        """Return the position after the next empty line, which may have begun in bytes parsed before."""
        data, at, tail = self._data, self._at, self._tail
        if tail:
            found = (tail + data[at : at + 3]).find(_EMPTY_LINE)
            if found >= 0:
                self._tail = b""
                return at + found + 4 - len(tail)
        found = data.find(_EMPTY_LINE, at)
        if found >= 0:
            self._tail = b""
            return found + 4
        self._tail = (tail + data[max(at, len(data) - 3) :])[-3:]
        return len(data)

    def _feed(self, end: int) -> None:
        """Parse the bytes up to `end`."""
        data, start = self._data, self._at
        self._at = end
        try:
            self._parser.feed_data(data[start:end] if end - start < _COPIED_BYTES_MAX else memoryview(data)[start:end])
        except HttpParserUpgrade:
            self._go_on_without_upgrade()
        except HttpParserError as error:
            self._refuse(MalformedHttp(f"invalid HTTP/1.1: {error}"))

    def _refuse(self, error: FlyMQError) -> None:
        """Parse nothing more. The first error is kept."""
        self._error = self._error or error

    def _go_on_without_upgrade(self) -> None:
        """Parse the body of an upgrade request like any other.

        llhttp treats everything after the head as the new protocol, including a body. But the upgrade may be ignored,
        and a body that is parsed as the next request would allow request smuggling. So another parser gets the framing
        of the body.
        """
        if self._error is not None:
            return
        self._is_upgrade = False
        is_chunked = b"transfer-encoding" in self._found
        framing = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % self._body_left
        self._parser = HttpRequestParser(self)
        self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")

    # --- callbacks of llhttp

    def on_url(self, url: bytes) -> None:
        assert not self._is_complete, "the parser got bytes of the next request"
        if self._is_in_head:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return  # a trailer after a chunked body: ignored
        if len(self._headers) >= HEADERS_MAX:
            self._refuse(RequestHeadTooLarge(f"a request can have at most {HEADERS_MAX} headers"))
            return
        name, value = name.lower(), value.rstrip(b" \t")
        if name in _LOOKED_AT:
            if name in self._found and name in _ONCE_AT_MOST:
                self._refuse(MalformedHttp(f"the header {name.decode()} is set twice"))
            self._found[name] = value
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if not self._is_in_head:
            return
        self._is_in_head = False
        if self._error is not None:
            return
        try:
            head = self._parse_head()
        except MalformedHttp as error:
            self._refuse(error)
            return
        self._is_last = not head.keeps_alive
        self._body_left = int(self._found.get(b"content-length", 0))
        self._events.append(head)

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0
        if self._error is None:
            self._events.append(body)

    def on_message_complete(self) -> None:
        if self._error is None and not self._is_upgrade:
            self._is_complete = True
            self._events.append(END)

    # --- further checks

    def _parse_head(self) -> RequestHead:
        parser, found = self._parser, self._found
        method = parser.get_method().decode()
        version = parser.get_http_version()
        if version not in _VERSIONS:
            raise MalformedHttp(f"HTTP/{version} is not supported; use HTTP/1.1")
        coding = found.get(b"transfer-encoding")
        if coding is not None and (coding.lower() != b"chunked" or version == "1.0"):
            raise MalformedHttp("the only supported Transfer-Encoding is chunked, in HTTP/1.1")
        if self._url.startswith(b"/") and b"#" not in self._url and method != "CONNECT":
            path, _, query = self._url.partition(b"?")
        else:
            path, query = self._parse_target(method)
        if b"host" not in found and version == "1.1":
            raise MalformedHttp("the Host header is missing")
        self._is_upgrade = parser.should_upgrade()
        expects_continue = b"expect" in found and found[b"expect"].lower() == b"100-continue" and version == "1.1"
        upgrade = found[b"upgrade"].lower() if self._is_upgrade else b""
        keeps_alive = parser.should_keep_alive()
        return RequestHead(method, path, query, version, self._headers, keeps_alive, expects_continue, upgrade)

    def _parse_target(self, method: str) -> tuple[bytes, bytes]:
        """Return path and query of a target that is not a plain path (RFC 9112, 3.2)."""
        target = self._url
        if method == "CONNECT":
            raise MalformedHttp("CONNECT is not supported: this is not a proxy")
        if b"#" in target:
            raise MalformedHttp("a target must not have a fragment")
        if target == b"*" and method == "OPTIONS":
            return target, b""
        scheme, _, rest = target.partition(b"://")
        before_query, _, query = rest.partition(b"?")
        authority, slash, path = before_query.partition(b"/")
        if scheme.lower() not in (b"http", b"https") or not authority or b"@" in authority:
            raise MalformedHttp("the target is neither a path nor a URL")
        # The host of the target overrides the Host header.
        self._headers = [(b"host", authority), *(header for header in self._headers if header[0] != b"host")]
        return slash + path or b"/", query
