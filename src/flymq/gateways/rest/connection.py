"""A connection that speaks HTTP/1.1: the listener's idea of one outside, uvicorn's protocol inside.

uvicorn reads requests with a C parser, runs each as a task in the broker's own loop, keeps the order of answers, and
stops reading when a body is not consumed. What it does not limit is the head of a request; that is done here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from flymq.gateways.connection import Connection, SharedByConnections
from flymq.wire.first_bytes import Speaks

HEAD_BYTES_MAX = 64 << 10
"""Request line and headers together."""

_VERBS = (b"GET ", b"POST", b"PUT ", b"DELE", b"HEAD", b"OPTI", b"PATC", b"TRAC", b"CONN", b"QUER")

_CONTINUE = b"HTTP/1.1 100 "  # no answer yet: the client is to send its body


def speaks_http(first: bytes) -> Speaks:
    if first[:4] in _VERBS:
        return Speaks.YES
    return Speaks.MORE if any(verb.startswith(first) for verb in _VERBS) else Speaks.NO


class _Http(HttpToolsProtocol):
    """uvicorn's protocol, with a limit on what comes before a body, in bytes and in time."""

    def __init__(self, config: uvicorn.Config, state: ServerState, connection: HttpConnection) -> None:
        super().__init__(config, state, {"connection": connection})
        self._is_in_head = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_timeout_s = connection.shared.limits.handshake_timeout_s

    @property
    def is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_complete()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.send_400_response("Request head too large.")
                return
        super().data_received(data)
        if self._is_in_head and self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_timeout_s, self.transport.close)

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_is_complete()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        assert isinstance(self.transport, _HeadWithBody)
        self.transport.end_answer()
        super().on_response_complete()

    def _head_is_complete(self) -> None:
        self._is_in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _HeadWithBody(asyncio.Transport):
    """A transport that keeps back the head of an answer until what follows it: one packet instead of two."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._head = b""
        self.is_before_head = True
        """Whether what is written next begins an answer."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_before_head and not data.startswith(_CONTINUE):  # type: ignore[union-attr]  # uvicorn writes bytes
            self.is_before_head = False
            self._head = bytes(data)
        else:
            self._transport.write(self._head + data if self._head else data)
            self._head = b""

    def end_answer(self) -> None:
        """The answer is complete; one to HEAD has no body that would have followed its head."""
        self.is_before_head = True
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        self.end_answer()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()


class HttpConnection(Connection):
    """One client that speaks HTTP."""

    protocol = "http"

    def __init__(self, shared: SharedByConnections, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(shared)
        self._http = _Http(config, state, self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer_host = (transport.get_extra_info("peername") or ("",))[0]
        self.local_address = (transport.get_extra_info("sockname") or ("", 0))[:2]
        self._http.connection_made(_HeadWithBody(transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self._http.connection_lost(exc)
        self._transport = None
        self.on_closed()

    @property
    def inflight(self) -> int:
        return int(self._http.is_busy)

    def close_when_sent(self) -> None:
        if self.is_open:
            self._http.shutdown()

    # --- what the loop tells is passed on

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.shared.scratch

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_s = self.shared.clock.monotonic_s()
        self._http.data_received(bytes(memoryview(self.shared.scratch)[:nbytes]))

    def eof_received(self) -> bool:
        return self._http.is_busy  # a client that has said all it has to say still gets its answer

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()


def http_connections(app: Callable[..., object], shared: SharedByConnections) -> Callable[[], HttpConnection]:
    """Return what makes connections that this ASGI application serves."""
    config = uvicorn.Config(
        app,
        http=HttpToolsProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
    )
    config.load()
    state = ServerState()
    return lambda: HttpConnection(shared, config, state)
