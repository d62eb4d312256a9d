"""The other brokers: connections of the native protocol to each of them, and whether they are there.

A broker proves to another that it belongs to the cluster by the secret of its registration, which only brokers can
read. A link is kept to every registered broker. When it breaks, the broker is suspected to be dead (controller.py).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from flymq.client.aio.connection import Connection, connect
from flymq.client.metrics import Counters
from flymq.client.settings import ConnectionConfig
from flymq.cluster.brokers import ClusterBroker, Listener
from flymq.cluster.image import Image
from flymq.host.host import Host
from flymq.model.errors import BrokerUnavailable, FlyMQError
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.peers import JoinPeer
from flymq.wire.native.messages.session import Done, Ping

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

_CONNECT_TIMEOUT_MS = 3_000
_REQUEST_TIMEOUT_S = 10.0
_PING_EVERY_S = 5.0
_RETRY_S = 0.2
_RETRY_S_MAX = 2.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """By which other brokers know this one."""

    broker_id: int
    epoch: int
    secret: str


class Peers:
    """Connections to the other brokers of the cluster."""

    def __init__(
        self,
        broker_id: int,
        image: Image,
        host: Host,
        credentials: Callable[[], Credentials | None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`credentials`: of the current registration; None while there is none."""
        self._broker_id = broker_id
        self._image = image
        self._host = host
        self._credentials = credentials
        self._config = ConnectionConfig(
            client_id=f"broker-{broker_id}",
            tls_enabled=tls is not None,
            tls_context=tls,
            connect_timeout_ms=_CONNECT_TIMEOUT_MS,
            request_timeout_ms=int(_REQUEST_TIMEOUT_S * 1000),
        )
        self._links: dict[int, tuple[int, Connection]] = {}
        self._connecting: dict[int, asyncio.Task[Connection]] = {}
        self._changed = asyncio.Event()
        self.counters = Counters()
        self.on_lost: Callable[[int, int], None] = lambda broker_id, epoch: None
        """Called with a broker and its epoch when the link to it is lost, or cannot be opened."""

    @property
    def connected(self) -> int:
        """How many other brokers there is a connection to."""
        return sum(link.is_open for _, link in self._links.values())

    # --- requests

    async def request(
        self, broker_id: int, request: Message, answer: type[M], *, timeout_s: float = _REQUEST_TIMEOUT_S
    ) -> M:
        """Send a request to a broker, once. Raises its error, or that it cannot be reached."""
        link = await self._link(broker_id)
        return await link.request(request, answer, timeout_s)

    async def connect(self, broker_id: int) -> Connection:
        """Open a connection of its own to a broker, on which this one is known as a peer."""
        broker = self._image.members.find(broker_id)
        credentials = self._credentials()
        if broker is None or credentials is None:
            missing = broker_id if broker is None else self._broker_id
            raise BrokerUnavailable(f"broker {missing} is not registered")
        address = broker.registration.listeners[0]
        where = (address.host, address.port)
        connection = await connect(where, self._config, self.counters, self._host.network, logs_in=False)
        try:
            if connection.broker != broker_id:
                raise BrokerUnavailable(
                    f"broker {broker_id} is registered at {address.host}:{address.port}, where broker "
                    f"{connection.broker} answers",
                    hint="Set listener.advertised_host and listener.advertised_port of each broker to its own address.",
                )
            join = JoinPeer(broker=credentials.broker_id, epoch=credentials.epoch, secret=credentials.secret)
            await connection.request(join, Done, _REQUEST_TIMEOUT_S)
        except BaseException:
            connection.close()
            raise
        return connection

    async def check_own(self, addresses: Iterable[Listener]) -> None:
        """Warn of addresses of this broker by which it does not reach itself: others hardly will."""
        for address in addresses:
            where = f"{address.host}:{address.port}"
            advice = "set listener.advertised_host and listener.advertised_port to the address of this broker"
            if address.name:
                advice = f"correct the address of {address.name} in listener.additional"
            try:
                connection = await connect(
                    (address.host, address.port), self._config, self.counters, self._host.network, logs_in=False
                )
            except FlyMQError as error:
                logger.warning(
                    "clients and brokers are told to connect to %s, where this broker does not reach itself: %s. If "
                    "they do not either: %s",
                    where,
                    error.message,
                    advice,
                )
                continue
            if connection.broker != self._broker_id:
                logger.error(
                    "clients and brokers are told to connect to %s, where broker %d answers, not this one, which is "
                    "%d: %s",
                    where,
                    connection.broker,
                    self._broker_id,
                    advice,
                )
            connection.close()

    async def _link(self, broker_id: int) -> Connection:
        """Return the shared connection to a broker; concurrent calls share one attempt."""
        known = self._links.get(broker_id)
        if known is not None and known[1].is_open:
            return known[1]
        attempt = self._connecting.get(broker_id)
        if attempt is None:
            attempt = asyncio.get_running_loop().create_task(self._open(broker_id), name=f"connect broker {broker_id}")
            self._connecting[broker_id] = attempt
            attempt.add_done_callback(partial(self._attempted, broker_id))
        return await asyncio.shield(attempt)

    def _attempted(self, broker_id: int, attempt: asyncio.Task[Connection]) -> None:
        self._connecting.pop(broker_id, None)
        if not attempt.cancelled():
            attempt.exception()  # mark it as retrieved: perhaps nobody waits any more

    async def _open(self, broker_id: int) -> Connection:
        connection = await self.connect(broker_id)
        broker = self._image.members.find(broker_id)
        self._links[broker_id] = (0 if broker is None else broker.epoch, connection)
        return connection

    # --- watch

    async def run(self) -> None:
        """Keep a link to every registered broker, and tell when one is lost."""
        self._image.member_watchers.append(self._changed.set)
        watching: dict[int, tuple[int, asyncio.Task[None]]] = {}
        try:
            while True:
                self._changed.clear()
                brokers = {each.broker_id: each for each in self._image.members if each.broker_id != self._broker_id}
                for broker_id, (epoch, task) in list(watching.items()):
                    if broker_id not in brokers or brokers[broker_id].epoch != epoch:
                        task.cancel()
                        del watching[broker_id]
                for broker_id, broker in brokers.items():
                    if broker_id not in watching:
                        task = asyncio.get_running_loop().create_task(self._watch(broker))
                        watching[broker_id] = (broker.epoch, task)
                await self._changed.wait()
        finally:
            self._image.member_watchers.remove(self._changed.set)
            for _, task in watching.values():
                task.cancel()
            self.close()

    async def _watch(self, broker: ClusterBroker) -> None:
        """Watch one registration of a broker until it has ended."""
        pause_s = _RETRY_S
        while True:
            try:
                link = await self._link(broker.broker_id)
                pause_s = _RETRY_S
                while link.is_open:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_PING_EVERY_S):
                            await link.wait_lost()
                    if link.is_open:
                        await link.request(Ping(), Done, _REQUEST_TIMEOUT_S)
            except FlyMQError as error:
                logger.debug("no link to broker %d: %s", broker.broker_id, error.message)
            self.on_lost(broker.broker_id, broker.epoch)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_S_MAX)

    async def listens(self, broker: ClusterBroker) -> bool:
        """Return False if the address of a broker refuses connections, and only then.

        A machine that is off or cut off does not refuse, it is silent.
        """
        address = broker.registration.listeners[0]
        try:
            probe = await self._host.network.connect(_Probe, address.host, address.port, None)
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
        probe.close()
        return True

    def close(self) -> None:
        for attempt in list(self._connecting.values()):
            attempt.cancel()
        for _, link in self._links.values():
            link.close()
        self._links.clear()


class _Probe(asyncio.Protocol):
    """A connection that is closed at once."""

    _transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
