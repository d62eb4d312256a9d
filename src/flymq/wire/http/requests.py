"""Requests out of the bytes of a connection that speaks HTTP/1.1 (RFC 9112). No I/O here: bytes in, events out.

    POST /topics HTTP/1.1\\r\\n     ┐
    Host: localhost\\r\\n           │ RequestHead
    Content-Length: 2\\r\\n\\r\\n    ┘
    {}                            bytes, in any number of pieces
                                  END

llhttp, the C parser of Node.js, reads the syntax and is strict about it: line ends, folded lines, names and values of
headers, Content-Length, chunks. What it leaves to others is checked here: how large a head may be, Host, the target,
codings that nobody would undo.

llhttp cannot be stopped between two requests. So it is given no more than up to the end of one: as many bytes as
Content-Length says, or else up to the next empty line. The head ends with one, a chunked body too; an empty line within
a chunk only makes one more piece. Pipelined requests stay bytes until somebody asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from flymq.model.errors import FlyMQError, MalformedHttp, RequestHeadTooLarge

HEAD_BYTES_MAX = 64 << 10
"""Request line and headers together; also what may lie between two bytes of a chunked body."""

HEADERS_MAX = 100
_CHUNKED_BYTES_AT_ONCE = 64 << 10  # of which each four may be an empty line: about 10 ms

_COPIED_BYTES_MAX = 4096  # up to here a copy costs less than a view

_EMPTY_LINE = b"\r\n\r\n"
_LOOKED_AT = frozenset((b"host", b"content-length", b"transfer-encoding", b"expect", b"upgrade"))
_ONCE_AT_MOST = frozenset((b"host", b"content-length", b"transfer-encoding"))
_VERSIONS = frozenset(("1.0", "1.1"))


@dataclass(slots=True)
class RequestHead:
    """All of a request but its body."""

    method: str
    path: bytes
    """As it came, percent-encoded. `*` where OPTIONS asks about the server as a whole."""
    query: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    """Their names in lower case."""
    keeps_alive: bool
    """Whether another request may follow on this connection."""
    expects_continue: bool
    """Whether the client waits for `100 Continue` before it sends the body."""
    upgrade: bytes
    """The protocol that the client would rather speak, in lower case; empty if none."""


class End(Enum):
    END = "the request is complete"


END = End.END

Event = RequestHead | bytes | End


class RequestReader:
    """The receiving half of one connection. After an error, or the last request, it reads nothing more."""

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
        self._at = 0  # up to where the data is read
        self._tail = b""  # the last bytes read, which an empty line may begin with
        self._events: list[Event] = []
        self._chunked_bytes = 0  # read at once
        self._error: FlyMQError | None = None
        self._is_last = False  # nothing is read after this request
        self._begin()

    def _begin(self) -> None:
        """Be ready for the next request."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._found: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._framing_bytes = 0  # of a chunked body, since the last byte of content
        self._body_left = 0  # as Content-Length says
        self._is_in_head = True
        self._is_complete = False
        self._is_upgrade = False

    @property
    def held_bytes(self) -> int:
        """Bytes received but not read."""
        return len(self._data) - self._at

    @property
    def is_within_request(self) -> bool:
        """Whether a request has begun to arrive, and has not ended."""
        return not self._is_complete and (self._head_bytes > 0 or not self._is_in_head)

    def receive(self, data: bytes) -> None:
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def take_rest(self) -> bytes:
        """Return what is not read, and forget it."""
        rest, self._data, self._at = self._data[self._at :], b"", 0
        return rest

    def read(self) -> list[Event]:
        """Return the next events, of one request at most; none while more bytes are needed.

        Raise MalformedHttp or RequestHeadTooLarge once everything in front of the broken place has been returned.
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
        """Let go of the parser, which holds on to this object."""
        del self._parser

    def _read_head(self) -> None:
        start = self._at
        self._feed(min(self._after_empty_line(), start + HEAD_BYTES_MAX - self._head_bytes))
        self._head_bytes += self._at - start
        if self._is_in_head and self._head_bytes >= HEAD_BYTES_MAX:
            self._refuse(RequestHeadTooLarge(f"request line and headers have at most {HEAD_BYTES_MAX} bytes"))

    def _read_counted(self) -> None:
        start = self._at
        self._feed(min(start + self._body_left, len(self._data)))
        self._body_left -= self._at - start

    def _read_chunked(self) -> None:
        start = self._at
        end = self._after_empty_line()
        self._framing_bytes += end - start  # until content is met
        self._feed(end)
        self._chunked_bytes += end - start
        if self._framing_bytes > HEAD_BYTES_MAX:
            self._refuse(MalformedHttp("a chunked body has too much between its chunks"))

    def _after_empty_line(self) -> int:
        """Return where the bytes up to the next empty line end; it may have begun in those read before."""
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
        """Give the parser what comes next, up to `end`."""
        data, start = self._data, self._at
        self._at = end
        try:
            self._parser.feed_data(data[start:end] if end - start < _COPIED_BYTES_MAX else memoryview(data)[start:end])
        except HttpParserUpgrade:
            self._go_on_without_upgrade()
        except HttpParserError as error:
            self._refuse(MalformedHttp(f"this is no HTTP/1.1: {error}"))

    def _refuse(self, error: FlyMQError) -> None:
        """Read nothing more. What is wrong first counts."""
        self._error = self._error or error

    def _go_on_without_upgrade(self) -> None:
        """Read the body of a request to upgrade like any other.

        llhttp takes what follows the head for the other protocol, a body too. Nobody has to agree to an upgrade, and a
        body that is taken for the next request would be a way to smuggle one in. So another parser is told where the
        body ends.
        """
        if self._error is not None:
            return
        self._is_upgrade = False
        is_chunked = b"transfer-encoding" in self._found
        framing = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % self._body_left
        self._parser = HttpRequestParser(self)
        self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")

    # --- what llhttp tells

    def on_url(self, url: bytes) -> None:
        assert not self._is_complete, "the parser was given bytes of the next request"
        if self._is_in_head:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return  # behind a chunked body: nobody asked for it, and it is no part of the head
        if len(self._headers) >= HEADERS_MAX:
            self._refuse(RequestHeadTooLarge(f"a request has at most {HEADERS_MAX} headers"))
            return
        name, value = name.lower(), value.rstrip(b" \t")
        if name in _LOOKED_AT:
            if name in self._found and name in _ONCE_AT_MOST:
                self._refuse(MalformedHttp(f"{name.decode()} is given twice"))
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

    # --- what it leaves to others

    def _parse_head(self) -> RequestHead:
        parser, found = self._parser, self._found
        method = parser.get_method().decode()
        version = parser.get_http_version()
        if version not in _VERSIONS:
            raise MalformedHttp(f"HTTP/{version} is not spoken here; HTTP/1.1 is")
        coding = found.get(b"transfer-encoding")
        if coding is not None and (coding.lower() != b"chunked" or version == "1.0"):
            raise MalformedHttp("the only Transfer-Encoding is chunked, in HTTP/1.1")
        if self._url.startswith(b"/") and b"#" not in self._url and method != "CONNECT":
            path, _, query = self._url.partition(b"?")
        else:
            path, query = self._parse_target(method)
        if b"host" not in found and version == "1.1":
            raise MalformedHttp("there is no Host header")
        self._is_upgrade = parser.should_upgrade()
        expects_continue = b"expect" in found and found[b"expect"].lower() == b"100-continue" and version == "1.1"
        upgrade = found[b"upgrade"].lower() if self._is_upgrade else b""
        keeps_alive = parser.should_keep_alive()
        return RequestHead(method, path, query, version, self._headers, keeps_alive, expects_continue, upgrade)

    def _parse_target(self, method: str) -> tuple[bytes, bytes]:
        """Return path and query of a target that is more than a path (RFC 9112, 3.2)."""
        target = self._url
        if method == "CONNECT":
            raise MalformedHttp("this is no proxy")
        if b"#" in target:
            raise MalformedHttp("a target has no fragment")
        if target == b"*" and method == "OPTIONS":
            return target, b""
        scheme, _, rest = target.partition(b"://")
        before_query, _, query = rest.partition(b"?")
        authority, slash, path = before_query.partition(b"/")
        if scheme.lower() not in (b"http", b"https") or not authority or b"@" in authority:
            raise MalformedHttp("the target is neither a path nor a URL")
        # Such a target says better than the header which host is meant.
        self._headers = [(b"host", authority), *(header for header in self._headers if header[0] != b"host")]
        return slash + path or b"/", query
