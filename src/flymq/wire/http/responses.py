"""Encode HTTP/1.1 responses (RFC 9112). No I/O here. The framing of the body:

Content-Length given     as it is
none, HTTP/1.1           chunked
none, HTTP/1.0           until the connection is closed
HEAD, 204, 304           no body, whatever the application sends
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

Buffer = bytes | bytearray | memoryview

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode() for status in HTTPStatus}
_WITHOUT_BODY = frozenset((204, 304))


class ResponseEncoder:
    """One response: `start` once and then `body`, once or more."""

    __slots__ = ("_has_body", "_is_chunked", "_is_http_1_0", "_left", "keeps_alive")

    def __init__(self, method: str, version: str, keeps_alive: bool) -> None:
        """The response to a request of this method and HTTP version."""
        self._has_body = method != "HEAD"
        self._is_http_1_0 = version == "1.0"
        self._is_chunked = False
        self._left: int | None = None
        self.keeps_alive = keeps_alive
        """Whether the connection is kept alive. Can be changed before `start`, which sends it to the client."""

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the head. Decides the framing of the body, and whether the connection is kept alive."""
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d " % status]
        for name, value in headers:
            name = name.lower()
            if name == b"content-length":
                if status == 204:
                    continue
                self._left = int(value)
            elif name == b"transfer-encoding":
                continue
            elif name == b"connection":
                self.keeps_alive = self.keeps_alive and b"close" not in value.lower()
                continue
            lines.append(name + b": " + value)
        if status in _WITHOUT_BODY:
            self._has_body = False
        elif self._left is None and self._has_body:
            if self._is_http_1_0:
                self.keeps_alive = False
            else:
                self._is_chunked = True
                lines.append(b"transfer-encoding: chunked")
        if not self.keeps_alive:
            lines.append(b"connection: close")
        elif self._is_http_1_0:
            lines.append(b"connection: keep-alive")
        lines += (b"", b"")
        head = b"\r\n".join(lines)
        line_ends = len(lines) - 1
        if head.count(b"\r") != line_ends or head.count(b"\n") != line_ends or b"\0" in head:
            raise ValueError("a header of the response contains a line break")
        return head

    def body(self, data: Buffer, *, is_last: bool) -> list[Buffer]:
        """Return an encoded piece of the body."""
        if not self._has_body:
            return []
        if self._is_chunked:
            pieces: list[Buffer] = [b"%x\r\n" % len(data), data, b"\r\n"] if data else []
            if is_last:
                pieces.append(b"0\r\n\r\n")
            return pieces
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0 or (is_last and self._left):
                raise ValueError("the body of the response does not match its Content-Length")
        return [data]
