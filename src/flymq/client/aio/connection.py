"""A connection to a broker: sends requests and matches answers to them.

Requests are numbered, so any number can be in flight and answers may come in any order. When a connection is lost, the
requests in flight fail; it is not reopened: `Cluster` opens another.
"""

from __future__ import annotations

import asyncio
import ssl
from itertools import islice
from typing import TypeVar, cast

import flymq
from flymq.client.metrics import Counters
from flymq.client.settings import Address, ConnectionConfig
from flymq.host.network import Network
from flymq.host.prompt_future import PromptFuture
from flymq.model.errors import (
    BrokenFrame,
    BrokerUnavailable,
    ConnectionLost,
    FlyMQError,
    RequestTimedOut,
    Unauthenticated,
    UnknownOpcode,
)
from flymq.wire.native.codec import decode_answer, encode_request, error_of
from flymq.wire.native.framing import FrameCutter
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.session import Authenticate, AuthenticateAnswer, ErrorAnswer, Hello, HelloAnswer
from flymq.wire.native.operations import OPCODE_OF, OPERATIONS

M = TypeVar("M", bound=Message)
_ID_MAX = (1 << 32) - 1

BATCHES_BYTES_MAX = 8 << 20
"""Size limit of the batches in one request, if there is more than one; less if the broker accepts less."""


class Connection(asyncio.BufferedProtocol):
    """An open connection. `send` returns a future for callbacks, `request` waits for the answer."""

    def __init__(self, address: Address, counters: Counters, body_bytes_max: int) -> None:
        self.address = address
        self.broker = -1
        self.server_version = ""
        self.needs_login = False
        self.served: frozenset[int] = frozenset()
        self.batches_bytes_max = BATCHES_BYTES_MAX
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._cutter = FrameCutter(body_bytes_max=body_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, tuple[asyncio.Future[Message] | PromptFuture[Message], float]] = {}
        self._last_id = 0
        self._heard_s = 0.0  # when an answer came
        self._ignored_s = 0.0  # when the oldest request was sent that was given up since then
        self._lost: FlyMQError | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self._lost is None and self._transport is not None

    @property
    def is_writable(self) -> bool:
        """False while the send buffer is full because the broker does not read fast enough."""
        return self._writable.is_set()

    async def until_writable(self) -> None:
        await self._writable.wait()
        if self._lost is not None:
            raise self._lost

    async def wait_lost(self) -> None:
        """Return when the connection is lost or closed."""
        await self._ended.wait()

    def silence_s(self) -> float:
        """Return how long the broker has left requests without any answer."""
        since = [sent_s for _, sent_s in islice(self._waiting.values(), 1)]  # the oldest
        if self._ignored_s > self._heard_s:
            since.append(self._ignored_s)
        return self._loop.time() - max(min(since), self._heard_s) if since else 0.0

    def serves(self, request: type[Message]) -> bool:
        """Whether the broker supports this operation."""
        return OPCODE_OF[request] in self.served

    def send(self, request: Message) -> asyncio.Future[Message]:
        """Send a request; the returned future gets the answer, or the error that the broker reports."""
        future: asyncio.Future[Message] = self._loop.create_future()
        self._send(request, future)
        return future

    def send_promptly(self, request: Message) -> PromptFuture[Message]:
        """Like `send`; the callbacks of the future run as soon as the answer is received."""
        future: PromptFuture[Message] = PromptFuture()
        self._send(request, future)
        return future

    def _send(self, request: Message, future: asyncio.Future[Message] | PromptFuture[Message]) -> None:
        if self._lost is not None:
            raise self._lost
        assert self._transport is not None
        self._last_id = request.id = self._last_id % _ID_MAX + 1
        self._waiting[request.id] = (future, self._loop.time())
        self._counters.requests_in_flight += 1
        self._write(request)

    def send_unanswered(self, request: Message) -> None:
        """Send a request the broker does not answer."""
        if self._lost is not None:
            raise self._lost
        self._write(request)

    async def request(self, request: Message, answer: type[M], timeout_s: float) -> M:
        """Send a request and wait for its answer."""
        assert OPERATIONS[OPCODE_OF[type(request)]].answer is answer
        future = self.send(request)
        request_id = request.id  # the same request may be sent to another broker meanwhile
        try:
            async with asyncio.timeout(timeout_s):
                return cast(M, await future)
        except TimeoutError:
            self.abandon(request_id)
            self._counters.errors[RequestTimedOut.code] += 1
            name = OPCODE_OF[type(request)].name
            raise RequestTimedOut(f"{self} did not answer {name} in {timeout_s:g} s") from None
        except asyncio.CancelledError:
            self.abandon(request_id)
            raise

    def abandon(self, request_id: int) -> None:
        """Drop the late answer of a request."""
        if (waiting := self._waiting.pop(request_id, None)) is not None:
            self._counters.requests_in_flight -= 1
            if self._ignored_s <= self._heard_s:
                self._ignored_s = waiting[1]

    def close(self, error: FlyMQError | None = None) -> None:
        """Close the connection; requests in flight fail."""
        self._fail(error or ConnectionLost(f"the connection to {self} was closed"))
        if self._transport is not None:
            self._transport.abort()

    def __str__(self) -> str:
        return "{}:{}".format(*self.address)

    # --- called by the event loop -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._counters.connects += 1
        self._counters.connections += 1

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._cutter.get_buffer()

    def buffer_updated(self, count: int) -> None:
        self._counters.bytes_received += count
        try:
            for opcode, payload in self._cutter.buffer_updated(count):
                self._received(decode_answer(opcode, self._cutter.keep(payload)))
        except FlyMQError as error:
            self.close(BrokenFrame(f"{self} does not speak this protocol: {error.message}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._counters.connections -= 1
        self._fail(ConnectionLost(f"the connection to {self} was lost" + (f": {error}" if error else "")))

    # ----------------------------------------------------------------------------------------------------------------

    def _write(self, request: Message) -> None:
        frame = encode_request(request)
        self._counters.requests += 1
        self._counters.bytes_sent += len(frame)
        assert self._transport is not None
        self._transport.write(frame)

    def _received(self, answer: Message) -> None:
        self._heard_s = now_s = self._loop.time()
        future, sent_s = self._waiting.pop(answer.id, (None, 0.0))
        if future is None:
            if isinstance(answer, ErrorAnswer) and answer.id == 0:
                self.close(error_of(answer))  # an error about the connection itself; the broker closes it too
            return
        self._counters.requests_in_flight -= 1
        self._counters.latency.observe(now_s - sent_s)
        if future.done():
            return
        if isinstance(answer, ErrorAnswer):
            self._counters.errors[answer.code] += 1
            future.set_exception(self._explained(error_of(answer)))
        else:
            future.set_result(answer)

    def _explained(self, error: FlyMQError) -> FlyMQError:
        if isinstance(error, UnknownOpcode):
            version = f" (version {self.server_version})" if self.server_version else ""
            return UnknownOpcode(f"the broker at {self}{version} does not offer this: {error.message}")
        return error

    def _fail(self, error: FlyMQError) -> None:
        if self._lost is not None:
            return
        self._lost = error
        self._writable.set()
        self._ended.set()
        waiting, self._waiting = self._waiting, {}
        self._counters.requests_in_flight -= len(waiting)
        for future, _ in waiting.values():
            self._counters.errors[error.code] += 1
            if not future.done():
                future.set_exception(error)
                future.exception()  # retrieve it, so that asyncio does not warn about a request no longer awaited


async def connect(
    address: Address, config: ConnectionConfig, counters: Counters, network: Network, *, logs_in: bool = True
) -> Connection:
    """Open a connection, exchange HELLO, and authenticate if the client has credentials."""
    host, port = address
    timeout_s = config.connect_timeout_ms / 1000
    try:
        async with asyncio.timeout(timeout_s):
            connection = await network.connect(
                lambda: Connection(address, counters, body_bytes_max=(1 << 32) - 1),
                host,
                port,
                config.ssl_context(),
            )
    except TimeoutError:
        counters.connect_failures += 1
        raise BrokerUnavailable(f"no answer from {host}:{port} in {timeout_s:g} s") from None
    except ssl.SSLError as error:
        counters.connect_failures += 1
        raise BrokerUnavailable(
            f"TLS with {host}:{port} failed: {error}",
            hint="Check `tls_ca_file`, that the certificate names this host, and that this port speaks TLS.",
        ) from error
    except OSError as error:
        counters.connect_failures += 1
        raise BrokerUnavailable(f"no broker at {host}:{port}: {error.strerror or error}") from error
    try:
        await _greet(connection, config)
        if logs_in:
            await _log_in(connection, config)
    except BaseException:
        connection.close()
        raise
    return connection


async def _greet(connection: Connection, config: ConnectionConfig) -> None:
    # A broker that is paused still accepts connections: its system does.
    timeout_s = min(config.connect_timeout_ms, config.request_timeout_ms) / 1000
    hello = Hello(client="flymq-python", version=flymq.__version__, client_id=config.client_id)
    answer = await connection.request(hello, HelloAnswer, timeout_s)
    connection.broker = answer.broker
    connection.server_version = answer.version
    connection.served = frozenset(answer.opcodes)
    connection.needs_login = bool(answer.authentication)
    if answer.payload_bytes_max:  # leave room for the names around the batches
        connection.batches_bytes_max = min(BATCHES_BYTES_MAX, answer.payload_bytes_max * 3 // 4)


async def _log_in(connection: Connection, config: ConnectionConfig) -> None:
    if config.username is not None and config.password is not None:
        login = Authenticate(username=config.username, password=config.password)
        await connection.request(login, AuthenticateAnswer, config.request_timeout_ms / 1000)
    elif connection.needs_login:
        raise Unauthenticated(f"the broker at {connection} requires a username and a password")
