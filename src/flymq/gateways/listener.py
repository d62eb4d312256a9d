"""Accept connections on one port and hand each to the protocol its first bytes speak.

    first byte   what comes
    0x16         a TLS handshake, when a certificate is configured; what is inside is told apart in turn
    0xFB         FlyMQ's own protocol
    others       the protocols that are registered, by their first bytes

The first byte of a socket is looked at without taking it, so that TLS can start from it. A client counts from the
moment it is accepted until it is gone, whatever it says or does not say in between.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flymq.gateways.connection import Connection, SharedByConnections
from flymq.host.tasks import Tasks
from flymq.model.errors import AddressInUse, ListenFailed

logger = logging.getLogger(__name__)

TLS_HANDSHAKE = 0x16
_ACCEPTS_PER_TURN = 64


@dataclass(frozen=True, slots=True)
class Gateway:
    """A protocol: how to know it, and what serves it."""

    name: str
    speaks: Callable[[bytes], bool]
    """Whether these first bytes, at least one, are its own."""
    connect: Callable[[], Connection]


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    connections_max: int = 10_000
    connections_per_ip_max: int = 0
    idle_timeout_s: float = 600.0
    first_bytes_timeout_s: float = 10.0


class Listener:
    """The open door of a broker."""

    def __init__(
        self,
        gateways: Sequence[Gateway],
        shared: SharedByConnections,
        limits: ListenerLimits,
        tasks: Tasks,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._gateways = gateways
        self._shared = shared
        self._limits = limits
        self._tasks = tasks
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._connections: set[Connection] = set()
        self._undecided: dict[socket.socket, tuple[str, asyncio.TimerHandle]] = {}
        self._shaking_hands: dict[_FirstBytes, asyncio.Task[None]] = {}
        self._per_ip: Counter[str] = Counter()
        self._all_gone: asyncio.Event | None = None
        self.accepted: Counter[str] = Counter()
        """Connections by what they speak, since the start."""
        self.refused = 0

    @property
    def protocols(self) -> list[str]:
        """What can be spoken here."""
        return [gateway.name for gateway in self._gateways]

    @property
    def connections(self) -> int:
        return len(self._connections) + len(self._undecided) + len(self._shaking_hands)

    def connections_by_protocol(self) -> Counter[str]:
        return Counter(connection.protocol for connection in self._connections)

    # --- open and close

    async def open(self, host: str, port: int, backlog: int) -> int:
        """Listen on every address of `host`; return the port, which the system chooses when 0 is given."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except socket.gaierror as error:
            raise ListenFailed(f"cannot listen on {host!r}: {error.strerror}") from error
        for family, _, _, _, address in dict.fromkeys(found):
            self._sockets.append(_listen(family, (address[0], port, *address[2:]), backlog))
            port = self._sockets[0].getsockname()[1]
        for opened in self._sockets:
            loop.add_reader(opened, self._accept, opened)
        self._tasks.spawn("idle connections", self._close_idle())
        return port

    def stop_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        for opened in self._sockets:
            loop.remove_reader(opened)
            opened.close()
        self._sockets.clear()
        for undecided in list(self._undecided):
            self._drop(undecided)
        for arriving, handshake in list(self._shaking_hands.items()):
            handshake.cancel()
            arriving.abort()

    async def close(self, *, within_s: float) -> None:
        """Let the connections finish what they answer, within a time; then end them."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.close_when_sent()
        if not self._connections:
            return
        self._all_gone = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(within_s, self._abort_all)
        await self._all_gone.wait()
        timer.cancel()

    def _abort_all(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    # --- accept

    def _accept(self, opened: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, address = opened.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of descriptors, most likely. The client stays in the backlog; take a breath and try again.
                logger.error("cannot accept a connection: %s", error.strerror)
                loop = asyncio.get_running_loop()
                loop.remove_reader(opened)
                loop.call_later(1.0, self._accept_again, opened)
                return
            self._take(accepted, address[0])

    def _accept_again(self, opened: socket.socket) -> None:
        if opened in self._sockets:
            asyncio.get_running_loop().add_reader(opened, self._accept, opened)

    def _take(self, accepted: socket.socket, ip: str) -> None:
        limits = self._limits
        per_ip_max = limits.connections_per_ip_max
        if self.connections >= limits.connections_max or (per_ip_max and self._per_ip[ip] >= per_ip_max):
            self.refused += 1
            logger.warning("refused a connection from %s: %d are open", ip, self.connections)
            accepted.close()
            return
        accepted.setblocking(False)
        if accepted.family != socket.AF_UNIX:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._per_ip[ip] += 1
        loop = asyncio.get_running_loop()
        self._undecided[accepted] = (ip, loop.call_later(limits.first_bytes_timeout_s, self._drop, accepted))
        loop.add_reader(accepted, self._look, accepted)

    def _look(self, accepted: socket.socket) -> None:
        """Look at the first bytes without taking them."""
        try:
            first = accepted.recv(8, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._drop(accepted)
            return
        ip = self._decided(accepted)
        if self._tls is not None and first[0] == TLS_HANDSHAKE:
            arriving = _FirstBytes(self, ip, self._limits.first_bytes_timeout_s)
            handshake = self._shake_hands(accepted, arriving, self._tls)
            self._shaking_hands[arriving] = self._tasks.spawn("TLS handshake", handshake)
        elif (connection := self.choose(first, ip)) is not None:
            self._tasks.spawn("hand over", self._hand_over(accepted, connection))
        else:
            logger.info("no protocol starts with %s", first.hex())
            accepted.close()
            self._left(ip)

    def _drop(self, accepted: socket.socket) -> None:
        self._left(self._decided(accepted))
        accepted.close()

    def _decided(self, accepted: socket.socket) -> str:
        """Look at it no more; return where it comes from."""
        ip, timer = self._undecided.pop(accepted)
        timer.cancel()
        asyncio.get_running_loop().remove_reader(accepted)
        return ip

    def _left(self, ip: str) -> None:
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]

    async def _hand_over(self, accepted: socket.socket, connection: Connection) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
        except OSError:  # it is gone already
            accepted.close()
            connection.on_closed()

    async def _shake_hands(self, accepted: socket.socket, arriving: _FirstBytes, tls: ssl.SSLContext) -> None:
        timeout_s = self._limits.first_bytes_timeout_s
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: arriving, accepted, ssl=tls, ssl_handshake_timeout=timeout_s
            )
        except (TimeoutError, OSError, ssl.SSLError) as error:
            logger.info("a connection ended in its handshake: %s", error)
            accepted.close()
        finally:
            if not arriving.is_encrypted:
                self.gave_up(arriving)

    def arrived(self, arriving: _FirstBytes) -> None:
        """It speaks a protocol, whose connection counts in its place."""
        del self._shaking_hands[arriving]

    def gave_up(self, arriving: _FirstBytes) -> None:
        """It went without a word."""
        del self._shaking_hands[arriving]
        self._left(arriving.ip)

    def choose(self, first: bytes, ip: str) -> Connection | None:
        """Return a new connection of the protocol that speaks these bytes."""
        for gateway in self._gateways:
            if gateway.speaks(first):
                connection = gateway.connect()
                self.accepted[gateway.name] += 1
                self._adopt(connection, ip)
                return connection
        return None

    def _adopt(self, connection: Connection, ip: str) -> None:
        self._connections.add(connection)

        def closed() -> None:
            self._connections.discard(connection)
            if self._all_gone is not None and not self._connections:
                self._all_gone.set()
            self._left(ip)

        connection.on_closed = closed

    async def _close_idle(self) -> None:
        """Close connections that have been silent for too long."""
        timeout_s = self._limits.idle_timeout_s
        while timeout_s:
            await asyncio.sleep(min(timeout_s, 30.0))
            silent_since_s = self._shared.clock.monotonic_s() - timeout_s
            for connection in list(self._connections):
                if connection.last_active_s < silent_since_s and not connection.inflight:
                    connection.close_when_sent()


class _FirstBytes(asyncio.Protocol):
    """The inside of a TLS connection until its first bytes tell what it speaks."""

    def __init__(self, listener: Listener, ip: str, timeout_s: float) -> None:
        self.ip = ip
        self._listener = listener
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_encrypted(self) -> bool:
        """Whether its handshake is done."""
        return self._transport is not None

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._listener.gave_up(self)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        assert self._timer is not None
        connection = self._listener.choose(data, self.ip)
        if connection is None:
            self._transport.close()
            return
        self._timer.cancel()
        self._listener.arrived(self)
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        connection.feed(data)


def _listen(family: int, address: tuple[str | int, ...], backlog: int) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.setblocking(False)
        opened.bind(address)
        opened.listen(backlog)
    except OSError as error:
        opened.close()
        where = f"{address[0]}:{address[1]}"
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(f"port {address[1]} on {address[0]} is in use") from error
        raise ListenFailed(f"cannot listen on {where}: {error.strerror}") from error
    return opened
