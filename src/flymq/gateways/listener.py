"""Accept connections on one port and detect the protocol of each by its first bytes.

    first byte   protocol
    0x16         a TLS handshake, if a certificate is configured; the protocol inside is detected in the same way
    0xFB         the native protocol
    others       the registered protocols, by their first bytes

A connection counts towards the limit from accept to close, whether or not its protocol is known.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from flymq.gateways.connection import Connection, SharedByConnections
from flymq.host.network import Accepted, Network, OpenPort
from flymq.host.tasks import Tasks
from flymq.host.time_slices import TimeSlice
from flymq.wire.first_bytes import Speaks

logger = logging.getLogger(__name__)

_ABORT_WITHIN_S = 1.0


FIRST_BYTES_TIMEOUT_S = 10.0
"""The time for a TLS handshake, and then for the first bytes, by which the protocol is known."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A protocol: how to detect it, and how to make its connections."""

    name: str
    speaks: Callable[[bytes], Speaks]
    """Whether these first bytes, at least one, are of this protocol."""
    connect: Callable[[], Connection]


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    connections_max: int = 10_000
    connections_per_ip_max: int = 0
    idle_timeout_s: float = 600.0
    first_bytes_timeout_s: float = FIRST_BYTES_TIMEOUT_S
    needs_tls: bool = False
    """Whether a connection without TLS is refused."""


class Listener:
    """The listener of a broker."""

    def __init__(
        self,
        gateways: Sequence[Gateway],
        shared: SharedByConnections,
        limits: ListenerLimits,
        network: Network,
        tasks: Tasks,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._gateways = gateways
        self._shared = shared
        self._limits = limits
        self._network = network
        self._tasks = tasks
        self._tls = tls
        self._port: OpenPort | None = None
        # Dicts, not sets, to process connections in the order of their arrival.
        self._connections: dict[Connection, None] = {}
        self._arriving: dict[_FirstBytes, asyncio.Task[None]] = {}
        self._per_ip: Counter[str] = Counter()
        self._leaving: dict[Connection, None] = {}
        self._all_left = asyncio.Event()
        self.accepted: Counter[str] = Counter()
        """Number of connections by protocol, since the start."""
        self.refused = 0

    @property
    def protocols(self) -> list[str]:
        """The supported protocols."""
        return [gateway.name for gateway in self._gateways]

    @property
    def connections(self) -> int:
        return len(self._connections) + len(self._arriving)

    @property
    def is_refused(self) -> bool:
        """Whether the system accepts no connection now."""
        return self._port is not None and self._port.is_refused

    def connections_by_protocol(self) -> Counter[str]:
        return Counter(connection.protocol for connection in self._connections)

    # --- open and close

    async def open(self, host: str, port: int, backlog: int) -> int:
        """Listen on all addresses of `host`; return the port, which the system chooses if 0 is given."""
        self._port = await self._network.listen(host, port, backlog, self._accept)
        self._tasks.spawn("deadlines of connections", self._expire())
        return self._port.port

    def stop_accepting(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None
        for arriving in list(self._arriving):
            self.drop(arriving)

    async def close(self, *, within_s: float) -> None:
        """Wait for requests in flight, up to a timeout; then close all connections."""
        self.stop_accepting()
        await self._let_go(list(self._connections), within_s)

    async def drain(self, *, within_s: float) -> None:
        """Wait for requests in flight, up to a timeout, and close their connections; go on accepting others."""
        await self._let_go([connection for connection in self._connections if connection.inflight], within_s)

    async def _let_go(self, leaving: list[Connection], within_s: float) -> None:
        self._leaving = dict.fromkeys(leaving)
        self._all_left = asyncio.Event()
        for connection in leaving:
            connection.close_when_sent()
        if await self._have_left(within_s):
            return
        for connection in list(self._leaving):
            connection.abort()
        if not await self._have_left(_ABORT_WITHIN_S):  # nothing may keep a broker from stopping
            logger.error("%d connections do not close", len(self._leaving))

    async def _have_left(self, within_s: float) -> bool:
        if self._leaving:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_left.wait(), within_s)
        return not self._leaving

    # --- accept

    def _accept(self, accepted: Accepted) -> None:
        ip, per_ip_max = accepted.peer_host, self._limits.connections_per_ip_max
        if self.connections >= self._limits.connections_max or (per_ip_max and self._per_ip[ip] >= per_ip_max):
            self.refused += 1
            logger.warning("refused a connection from %s: %d connections are open", ip, self.connections)
            accepted.close()
            return
        self._per_ip[ip] += 1
        arriving = _FirstBytes(self, ip, self._limits.first_bytes_timeout_s)
        beginning = self._tasks.spawn("accept", self._begin(accepted, arriving))
        self._arriving[arriving] = beginning
        beginning.add_done_callback(partial(self._begun, accepted, arriving))

    async def _begin(self, accepted: Accepted, arriving: _FirstBytes) -> None:
        try:
            await accepted.begin(arriving, tls=self._tls, within_s=self._limits.first_bytes_timeout_s)
        except OSError as error:
            logger.info("the handshake of a connection from %s failed: %s", arriving.ip, error)

    def _begun(self, accepted: Accepted, arriving: _FirstBytes, _: asyncio.Task[None]) -> None:
        if not arriving.is_connected:
            accepted.close()  # also if the task was cancelled before it started
            self.drop(arriving)

    def drop(self, arriving: _FirstBytes) -> None:
        """Close a connection, or note that it was closed, before its protocol was known."""
        if (beginning := self._arriving.pop(arriving, None)) is not None:
            beginning.cancel()
            arriving.end()
            self._left(arriving.ip)

    def _left(self, ip: str) -> None:
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]

    def check_tls(self, arriving: _FirstBytes, *, is_encrypted: bool) -> None:
        """Close a connection without TLS, if TLS is required, before it is served."""
        if self._limits.needs_tls and not is_encrypted:
            self.refused += 1
            logger.warning("refused a connection from %s: it does not use TLS, which is required", arriving.ip)
            self.drop(arriving)

    def choose(self, first: bytes) -> Gateway | Speaks:
        """Return the protocol of these bytes; MORE: more bytes are needed; NO: unknown protocol."""
        possible = {gateway: speaks for gateway in self._gateways if (speaks := gateway.speaks(first)) != Speaks.NO}
        if Speaks.MORE in possible.values():
            return Speaks.MORE
        return next(iter(possible), Speaks.NO)

    def welcome(self, arriving: _FirstBytes, gateway: Gateway) -> Connection:
        """Return a new connection of a protocol, which replaces the accepted one in the counts."""
        connection, ip = gateway.connect(), arriving.ip
        del self._arriving[arriving]
        self.accepted[gateway.name] += 1
        self._connections[connection] = None

        def closed() -> None:
            if connection not in self._connections:
                return
            del self._connections[connection]
            self._leaving.pop(connection, None)
            if not self._leaving:
                self._all_left.set()
            self._left(ip)

        connection.on_closed = closed
        return connection

    async def _expire(self) -> None:
        """Close connections whose deadline has passed: see `Connection.expire`."""
        limits, idle_timeout_s = self._shared.limits, self._limits.idle_timeout_s
        timeouts_s = (limits.request_timeout_s, limits.login_timeout_s, idle_timeout_s or 1.0)
        interval_s = min(1.0, min(timeouts_s) / 2)
        while True:
            await asyncio.sleep(interval_s)
            now_s, turn = self._shared.clock.monotonic_s(), TimeSlice()
            for connection in list(self._connections):
                try:
                    connection.expire(now_s, idle_timeout_s)
                except Exception:
                    logger.exception("an expired connection cannot be closed")
                    connection.abort()
                await turn.yield_if_over()


class _FirstBytes(asyncio.Protocol):
    """A connection until its protocol is known. The first bytes may arrive one by one."""

    def __init__(self, listener: Listener, ip: str, timeout_s: float) -> None:
        self.ip = ip
        self._listener = listener
        self._first = b""
        self._transport: asyncio.Transport | None = None
        self._timer = asyncio.get_running_loop().call_later(timeout_s, listener.drop, self)

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    def end(self) -> None:
        self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._listener.check_tls(self, is_encrypted=transport.get_extra_info("sslcontext") is not None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.drop(self)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._first += data
        chosen = self._listener.choose(self._first)
        if chosen is Speaks.NO:
            logger.info("unknown protocol: the first bytes are %s", self._first[:8].hex())
            self._transport.close()
        elif isinstance(chosen, Gateway):
            self._timer.cancel()
            connection = self._listener.welcome(self, chosen)
            self._transport.set_protocol(connection)
            try:
                connection.connection_made(self._transport)
                connection.feed(self._first)
            except Exception:  # its own `connection_lost` may fail as well
                logger.exception("a connection from %s failed", self.ip)
                self._transport.abort()
                connection.on_closed()
