"""A connection of HTTP/1.1: requests in, the ASGI application called for one at a time, responses out.

`flymq.wire.http` parses and encodes; sockets and timeouts are handled here. The next request is parsed after the
response, so responses are in order. Both directions have backpressure: the socket is read no faster than the
application reads the body, pipelined requests stay in it, and the application waits while the client does not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

from flymq.gateways.connection import Connection, SharedByConnections
from flymq.gateways.outbox import Buffer
from flymq.gateways.rest.http.problems import problem_response
from flymq.host.tasks import Tasks
from flymq.model.errors import FlyMQError, InternalError, MalformedHttp, RequestHeadTooLarge
from flymq.wire.first_bytes import Speaks
from flymq.wire.http.requests import END, Event, RequestHead, RequestReader
from flymq.wire.http.responses import CONTINUE, ResponseEncoder

logger = logging.getLogger(__name__)

BODY_BYTES_AHEAD = 64 << 10
"""How much of a body is buffered until the application reads it; two reads of the socket may be added."""

_VERBS = (b"GET ", b"POST", b"PUT ", b"DELE", b"HEAD", b"OPTI", b"PATC", b"TRAC", b"CONN", b"QUER")

# Since 2.3 `receive` reports a disconnect, so a stream that waits for records ends at once.
_ASGI = {"version": "3.0", "spec_version": "2.3"}


def speaks_http(first: bytes) -> Speaks:
    if first[:4] in _VERBS:
        return Speaks.YES
    return Speaks.MORE if any(verb.startswith(first) for verb in _VERBS) else Speaks.NO


class HttpConnection(Connection):
    """One connection of HTTP."""

    protocol = "http"

    def __init__(self, shared: SharedByConnections, app: ASGIApp, tasks: Tasks) -> None:
        super().__init__(shared)
        self._app = app
        self._tasks = tasks
        self._reader = RequestReader()
        self._exchange: _Exchange | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._drained = asyncio.Event()
        self._peer: tuple[str, int] | None = None
        self._scheme = "http"
        self._is_lingering = False
        self.closes_after_answer = False

    # --- open and close

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._peer = peer[:2] if peer else None
        if transport.get_extra_info("sslcontext") is not None:
            self._scheme = "https"

    def connection_lost(self, exc: Exception | None) -> None:
        if self._exchange is not None:
            self._exchange.lose()
            self._exchange = None
        self._drained.set()
        self._set_timer(is_due=False)
        self._reader.close()
        super().connection_lost(exc)

    @property
    def inflight(self) -> int:
        return int(self._exchange is not None)

    def close_when_sent(self) -> None:
        if self._exchange is None:
            super().close_when_sent()
        else:
            self.closes_after_answer = True

    def upgrade(self, head: RequestHead) -> bool:
        """Switch to the protocol that the client requests in `head.upgrade`; return whether that was done.

        No protocol is supported yet, so the header is ignored, which is allowed. For WebSocket, send `101 Switching
        Protocols` here and continue with the bytes of `self._reader.take_rest()`.
        """
        return False

    # --- receive

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.shared.scratch

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_s = self.shared.clock.monotonic_s()
        if not self._is_lingering:
            self._reader.receive(bytes(memoryview(self.shared.scratch)[:nbytes]))
            self._advance()

    def eof_received(self) -> bool:
        """The client has closed its side; it still gets its responses."""
        self._is_at_end = True
        exchange = self._exchange
        return exchange is not None and exchange.is_received and self._scheme == "http"  # TLS has no half-close

    def _advance(self) -> None:
        """Parse requests, as far as the application can take them."""
        try:
            while self._takes_more and (events := self._reader.read()):
                for event in events:
                    self._take(event)
        except (MalformedHttp, RequestHeadTooLarge) as error:
            logger.info("%s: %s", self.caller.address, error.message)
            self._refuse(error)
        else:
            if self._is_at_end and self._exchange is None:
                super().close_when_sent()
        self._settle()

    @property
    def _takes_more(self) -> bool:
        exchange = self._exchange
        if exchange is None:
            return not self._ends_when_sent and not self._is_lingering and self.is_open
        return not exchange.is_received and exchange.body_bytes <= BODY_BYTES_AHEAD

    def _take(self, event: Event) -> None:
        exchange = self._exchange
        if exchange is not None:
            exchange.take(event)
        elif isinstance(event, RequestHead) and not (event.upgrade and self.upgrade(event)):
            self._exchange = exchange = _Exchange(self, event)
            self._tasks.spawn("HTTP request", exchange.run(self._app, self._scope(event)))
        # Else it is the rest of a body that the application has not read.

    def _scope(self, head: RequestHead) -> Scope:
        path = head.path.decode()
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": head.version,
            "method": head.method,
            "scheme": self._scheme,
            "path": unquote(path) if "%" in path else path,
            "raw_path": head.path,
            "query_string": head.query,
            "root_path": "",
            "headers": head.headers,
            "client": self._peer,
            "server": self.local_address,
        }

    def _refuse(self, error: FlyMQError) -> None:
        """Respond to an invalid request, and close."""
        self.shared.requests.failed(self.protocol, error.code)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.lose()
            if exchange.is_begun:
                self.abort()
                return
        self._send_problem(error)
        self._linger()

    def _send_problem(self, error: FlyMQError) -> None:
        problem = problem_response(error)
        encoder = ResponseEncoder("GET", "1.1", keeps_alive=False)
        head = encoder.start(problem.status_code, problem.raw_headers)
        self.send([head, *encoder.body(problem.body, is_last=True)])

    # --- called by the exchange

    def body_taken(self) -> None:
        """The application has read the buffered body."""
        if self._takes_more or self._is_paused:
            self._advance()
        else:
            self._count_memory()

    def send_answer(self, pieces: Sequence[Buffer]) -> None:
        """Send a part of a response; if the socket is full, `pause_writing` follows and reading stops."""
        if self._outbox is not None and self.is_open:
            self._outbox.send(pieces)

    def answered(self, exchange: _Exchange) -> None:
        """The response is complete."""
        self._exchange = None
        self.last_active_s = self.shared.clock.monotonic_s()
        if exchange.keeps_alive and not self.closes_after_answer:
            if not exchange.is_received or self._reader.held_bytes or self._is_paused or self._is_at_end:
                self._advance()
        elif exchange.is_received:
            super().close_when_sent()
        else:
            self._linger()
            self._settle()

    def give_up(self, exchange: _Exchange) -> None:
        """The application returned without a complete response: an internal error."""
        self._exchange = None
        if exchange.is_begun:
            self.abort()
        else:
            self._send_problem(InternalError())
            super().close_when_sent()

    async def drained(self) -> None:
        """Wait until the client reads, or has disconnected."""
        if self.is_open:
            self._drained.clear()
            await self._drained.wait()

    # --- memory and timeouts

    def pause_writing(self) -> None:
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._drained.set()
        self._settle()

    def _must_pause(self) -> bool:
        if self._is_lingering:
            return False
        if self._exchange is not None and self._reader.held_bytes:
            return True  # of a body that is not read yet, or of the next request
        return super()._must_pause()

    def _settle(self) -> None:
        """Update the used memory, the timeout of incomplete requests, and whether to read."""
        self._count_memory()
        # No timeout while the application runs. Before, the head must arrive in time; after the
        # response, the rest of the body.
        is_due = self._is_lingering or (self._exchange is None and self._reader.is_within_request)
        if is_due != (self._timer is not None):
            self._set_timer(is_due=is_due)
        self._reconsider()

    def _count_memory(self) -> None:
        exchange = self._exchange
        received = self._reader.held_bytes + (0 if exchange is None else exchange.body_bytes)
        unsent = self._outbox.held_bytes if self._is_draining and self._outbox is not None else 0
        self._share.set_held(received + unsent)

    def _set_timer(self, *, is_due: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if is_due and self.is_open:
            timeout_s = self.shared.limits.handshake_timeout_s
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        if self._is_lingering:
            self.abort()
        else:
            super().close_when_sent()

    def _linger(self) -> None:
        """Lingering close: wait for the client to close, since unread data would reset the connection.

        Received bytes are discarded. TLS has no half-close, so it is closed at once.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._reader.take_rest()
        if self._is_at_end or not transport.can_write_eof():
            super().close_when_sent()
        else:
            self._is_lingering = True
            try:
                transport.write_eof()
            except OSError:  # the client is gone, which nobody notices while its body is not read
                self.abort()


class _Exchange:
    """One request and its response, as an ASGI cycle."""

    __slots__ = (
        "_answer",
        "_awaits_continue",
        "_connection",
        "_is_given",
        "_news",
        "_pieces",
        "_unsent_head",
        "body_bytes",
        "is_answered",
        "is_begun",
        "is_lost",
        "is_received",
    )

    def __init__(self, connection: HttpConnection, head: RequestHead) -> None:
        self._connection = connection
        self._answer = ResponseEncoder(head.method, head.version, head.keeps_alive)
        self._awaits_continue = head.expects_continue
        self._pieces: list[bytes] = []
        self._is_given = False  # the application has read the whole body
        self._unsent_head: bytes | None = None
        self._news: asyncio.Event | None = None
        self.body_bytes = 0
        """Bytes of the body that are received and not read yet."""
        self.is_received = False
        self.is_begun = False
        """Whether a part of the response was sent."""
        self.is_answered = False
        self.is_lost = False
        """Whether the client has disconnected."""

    @property
    def keeps_alive(self) -> bool:
        return self._answer.keeps_alive

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except Exception:  # an internal error must not affect other clients; it is logged with its traceback
            logger.exception("%s %r failed", scope["method"], scope["path"])
        finally:
            if not self.is_answered and not self.is_lost:
                self._connection.give_up(self)

    # --- called by the connection

    def take(self, event: Event) -> None:
        if event is END:
            self.is_received = True
        else:
            assert isinstance(event, bytes), "a request begins before the last one has ended"
            self._pieces.append(event)
            self.body_bytes += len(event)
        if self._news is not None:
            self._news.set()

    def lose(self) -> None:
        self.is_lost = True
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()

    # --- called by the application

    async def receive(self) -> dict[str, Any]:
        if self._awaits_continue and not self.is_received and not self._pieces and not self.is_lost:
            self._awaits_continue = False
            self._connection.send([CONTINUE])
        while not self.is_answered and not self.is_lost:
            if self._pieces or (self.is_received and not self._is_given):
                return self._next_piece()
            self._news = asyncio.Event()  # rarely waits: most bodies arrive with their head
            await self._news.wait()
        return {"type": "http.disconnect"}

    def _next_piece(self) -> dict[str, Any]:
        pieces, self._pieces = self._pieces, []
        self._is_given = self.is_received
        message = {
            "type": "http.request",
            "body": pieces[0] if len(pieces) == 1 else b"".join(pieces),
            "more_body": not self.is_received,
        }
        self.body_bytes = 0
        self._connection.body_taken()
        return message

    async def send(self, message: Message) -> None:
        if self._connection.is_draining and not self.is_lost:
            await self._connection.drained()
        if self.is_lost:
            return
        kind = message["type"]
        if kind == "http.response.body" and self._unsent_head is not None and not self.is_answered:
            self._send_body(message.get("body", b""), is_last=not message.get("more_body", False))
        elif kind == "http.response.start" and self._unsent_head is None:
            self._start(message)
        else:
            raise RuntimeError(f"unexpected {kind} in a response")

    def _start(self, message: Message) -> None:
        """Delay the head until the body: one packet instead of two."""
        answer = self._answer
        # A client that expects `100 Continue` may or may not send the body.
        is_unsure = self._awaits_continue and not self.is_received
        answer.keeps_alive = answer.keeps_alive and not is_unsure and not self._connection.closes_after_answer
        self._unsent_head = answer.start(message["status"], message.get("headers", ()))

    def _send_body(self, body: Buffer, *, is_last: bool) -> None:
        pieces = self._answer.body(body, is_last=is_last)
        if self._unsent_head:
            pieces = [self._unsent_head, *pieces]
            self._unsent_head = b""
        self.is_begun = True
        self.is_answered = is_last
        if pieces:
            self._connection.send_answer(pieces)
        if is_last and not self.is_lost:
            self._wake()
            self._connection.answered(self)


def http_connections(app: ASGIApp, shared: SharedByConnections, tasks: Tasks) -> Callable[[], HttpConnection]:
    """Return a factory of connections for this ASGI application."""
    return lambda: HttpConnection(shared, app, tasks)
