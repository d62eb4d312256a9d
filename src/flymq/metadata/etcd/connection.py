"""One HTTP/1.1 connection to a member of etcd: one request at a time, or one stream until it is closed.

Whether a request was sent decides between a retry and `IndeterminateResult`; so a connection never sends anything
twice, and one with a response outstanding is never used again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from flymq.model.errors import MalformedHttp
from flymq.wire.http.exchanges import ResponseEvent, ResponseHead, ResponseReader
from flymq.wire.http.requests import END

_RESPONSE_BYTES_MAX = 256 << 20
_UNREAD_BYTES_MAX = 1 << 20
"""A stream is paused while more than this has been received and not read."""


class Response(NamedTuple):
    status: int
    body: bytes


class HttpConnection(asyncio.Protocol):
    """`ask` or `begin_stream`; errors of both are OSError."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._reader = ResponseReader()
        self._reader_error: OSError | None = None
        self._answer: asyncio.Future[Response] | None = None
        self._status = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._stream: HttpStream | None = None
        self._keeps_alive = True
        self.idle_since_s = 0.0
        """Set by the pool."""

    # --- called by the owner

    @property
    def can_ask(self) -> bool:
        return self._keeps_alive and self._reader_error is None and not self._transport.is_closing()

    async def ask(self, request: bytes) -> Response:
        """Send a request and return the response. If that is cancelled, the connection is closed."""
        assert self._answer is None and self._stream is None, "one request at a time"
        self._begin(request)
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            if not self._answer.done() or self._answer.cancelled() or not self._keeps_alive:
                self.abort()
            self._answer = None

    def begin_stream(self, request: bytes) -> HttpStream:
        """Send a request whose response is read in pieces. The connection is of no other use afterwards."""
        self._stream = HttpStream(self, self._transport)
        self._begin(request)
        return self._stream

    def abort(self) -> None:
        self._keeps_alive = False
        self._transport.abort()

    def _begin(self, request: bytes) -> None:
        self._body, self._body_bytes, self._status = [], 0, 0
        self._reader.expect_response()
        self._transport.write(request)

    # --- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._reader.receive(data):
                self._handle(event)
        except MalformedHttp as error:
            self._fail(ConnectionError(str(error)))
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error if isinstance(error, OSError) else ConnectionResetError("the connection was closed"))

    def _fail(self, error: OSError) -> None:
        self._keeps_alive = False
        self._reader_error = self._reader_error or error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        if self._stream is not None:
            self._stream.end(error)

    def _handle(self, event: ResponseEvent) -> None:
        if isinstance(event, ResponseHead):
            self._status, self._keeps_alive = event.status, event.keeps_alive
            if self._stream is not None:
                self._stream.begin(event.status)
        elif event is END:
            if self._stream is not None:
                self._stream.end(None)
            elif self._answer is not None and not self._answer.done():
                self._answer.set_result(Response(self._status, b"".join(self._body)))
        elif self._stream is not None:
            self._stream.add(event)
        else:
            self._body.append(event)
            self._body_bytes += len(event)
            if self._body_bytes > _RESPONSE_BYTES_MAX:
                raise MalformedHttp(f"the response has more than {_RESPONSE_BYTES_MAX} bytes")


class HttpStream:
    """A response without an end: lines of JSON."""

    def __init__(self, connection: HttpConnection, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport
        self._status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._lines: deque[bytes] = deque()
        self._partial: list[bytes] = []
        self._unread_bytes = 0
        self._is_paused = False
        self._has_ended = False
        self._error: OSError | None = None
        self._readable = asyncio.Event()

    async def status(self) -> int:
        return await asyncio.shield(self._status)

    async def line(self) -> bytes | None:
        """Return the next line; None at the end. Raises OSError if the connection was lost. Safe to cancel."""
        while not self._lines:
            if self._error is not None:
                raise self._error
            if self._has_ended:
                return None
            self._readable.clear()
            await self._readable.wait()
        line = self._lines.popleft()
        self._unread_bytes -= len(line)
        if self._is_paused and self._unread_bytes < _UNREAD_BYTES_MAX:
            self._is_paused = False
            self._transport.resume_reading()
        return line

    def close(self) -> None:
        self._connection.abort()

    # --- called by the connection

    def begin(self, status: int) -> None:
        if not self._status.done():
            self._status.set_result(status)

    def add(self, piece: bytes) -> None:
        *lines, rest = piece.split(b"\n")
        for line in lines:
            whole = b"".join((*self._partial, line))
            self._partial.clear()
            if whole:
                self._lines.append(whole)
                self._unread_bytes += len(whole)
        if rest:
            self._partial.append(rest)
        if lines:
            self._readable.set()
        if self._unread_bytes > _UNREAD_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def end(self, error: OSError | None) -> None:
        if error is None and self._partial:
            self.add(b"\n")
        self._has_ended = True
        self._error = self._error or error
        if not self._status.done():
            self._status.set_exception(error or ConnectionResetError("no response"))
            self._status.exception()  # it may be that nobody waits for it
        self._readable.set()
