"""The cluster as a client sees it: cached metadata (who leads which partition) and connections to the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from flymq.client.aio.connection import Connection, connect
from flymq.client.metrics import Counters
from flymq.client.retry import Backoff
from flymq.client.settings import Address, ConnectionConfig
from flymq.host.host import Host, system_host
from flymq.model.errors import (
    BrokenFrame,
    BrokerUnavailable,
    ClientClosed,
    FlyMQError,
    NotLeader,
    PartitionNotFound,
    TopicNotFound,
)
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.topics import NO_BROKER, Metadata, MetadataAnswer, TopicMetadata

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class Cluster:
    """Connections and metadata, shared by the producers and consumers of one client."""

    def __init__(
        self,
        config: ConnectionConfig,
        counters: Counters,
        host: Host | None = None,
        *,
        expects_broker: bool = False,
    ) -> None:
        self.config = config
        self.counters = counters
        self.backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.host = host or system_host()
        self.entropy = self.host.entropy
        self.request_timeout_s = config.request_timeout_ms / 1000
        self._addresses: dict[int, Address] = {}  # by broker id
        self._connections: dict[Address, Connection] = {}
        self._connecting: dict[Address, asyncio.Task[Connection]] = {}
        self._topics: dict[str, tuple[TopicMetadata, float]] = {}
        self._was_connected = expects_broker  # another process has reached a broker, so an outage is temporary
        self._is_closed = False

    # --- connections ------------------------------------------------------------------------------------------------

    async def connection(self, broker: int = NO_BROKER) -> Connection:
        """Return an open connection to this broker, or to any."""
        if broker == NO_BROKER:
            return await self._any_connection()
        if (address := self._addresses.get(broker)) is None:
            raise BrokerUnavailable(f"the address of broker {broker} is not known yet")
        return await self._connect(address)

    def open_connection(self, broker: int) -> Connection | None:
        """Return the connection to this broker if it is open; do not wait."""
        address = self._addresses.get(broker)
        connection = None if address is None else self._connections.get(address)
        return connection if connection is not None and connection.is_open else None

    async def _any_connection(self) -> Connection:
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        failures: list[FlyMQError] = []
        for address in dict.fromkeys([*self.config.addresses, *self._addresses.values()]):
            try:
                return await self._connect(address)
            except BrokerUnavailable as error:
                failures.append(error)
        raise BrokerUnavailable("; ".join(error.message for error in failures), hint=failures[0].hint)

    async def _connect(self, address: Address) -> Connection:
        """Return the connection to an address; concurrent calls share one attempt."""
        if self._is_closed:
            raise ClientClosed
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        attempt = self._connecting.get(address)
        if attempt is None:
            attempt = asyncio.get_running_loop().create_task(self._open(address), name="connect {}:{}".format(*address))
            self._connecting[address] = attempt
            attempt.add_done_callback(lambda _: self._connecting.pop(address, None))
        return await asyncio.shield(attempt)

    async def _open(self, address: Address) -> Connection:
        connection = await connect(address, self.config, self.counters, self.host.network)
        if self._is_closed:
            connection.close()
            raise ClientClosed
        self._connections[address] = connection
        self._was_connected = True
        if connection.broker != NO_BROKER:
            # Whatever address it advertises: this one works, so keep using it.
            self._addresses.setdefault(connection.broker, address)
        return connection

    def abort(self) -> None:
        """Disconnect at once. Requests in flight fail."""
        self._is_closed = True
        for attempt in list(self._connecting.values()):
            attempt.cancel()
        for connection in self._connections.values():
            connection.close(ClientClosed())

    async def close(self) -> None:
        self.abort()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        await asyncio.sleep(0)  # let the loop call connection_lost
        self._connections.clear()

    # --- requests ---------------------------------------------------------------------------------------------------

    async def ask(self, request: Message, answer: type[M], *, broker: int = NO_BROKER) -> M:
        """Send an idempotent request; retry until it is answered or the request timeout has passed."""
        return await self.retry(lambda: self.tell(request, answer, broker=broker))

    async def tell(self, request: Message, answer: type[M], *, broker: int = NO_BROKER) -> M:
        """Send a request once. A request with side effects must not be retried blindly after its answer was lost."""
        connection = await self.connection(broker)
        return await connection.request(request, answer, self.request_timeout_s)

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Call `attempt`, which must be idempotent, until it succeeds or the request timeout has passed."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.request_timeout_s
        count = 0
        while True:
            try:
                return await attempt()
            except FlyMQError as error:
                count += 1
                pause_s = self.backoff.delay_s(count, self.entropy)
                if not self.may_retry(error) or loop.time() + pause_s >= deadline_s:
                    raise
            self.counters.retries += 1
            await asyncio.sleep(pause_s)

    def may_retry(self, error: FlyMQError) -> bool:
        """Whether a retry can help. A broker that was never reached is reported at once: the address is wrong, or the
        broker is not running."""
        return error.retriable and not (isinstance(error, BrokerUnavailable) and not self._was_connected)

    # --- metadata: requested once, callers retry --------------------------------------------------------------------

    async def topic(self, name: str) -> TopicMetadata:
        """Return a topic's metadata, from the cache if it is fresh enough."""
        known = self._topics.get(name)
        age_max_s = self.config.metadata_max_age_ms / 1000
        if known is not None and asyncio.get_running_loop().time() - known[1] < age_max_s:
            return known[0]
        return await self.refresh(name)

    async def topic_or_new(self, name: str) -> TopicMetadata:
        """Return a topic's metadata; create the topic if it does not exist and the broker allows auto-creation."""
        try:
            return await self.topic(name)
        except TopicNotFound:
            return await self.refresh(name, auto_create=True)

    async def refresh(self, name: str, *, auto_create: bool = False) -> TopicMetadata:
        """Fetch a topic's metadata from a broker."""
        answer = await self.tell(Metadata(topics=[name], auto_create=auto_create), MetadataAnswer)
        self._learn(answer)
        for topic in answer.topics:
            if topic.error is not None:
                self._topics.pop(name, None)
                raise error_of(topic.error)
            if topic.topic == name:
                return topic
        raise BrokenFrame(f"the broker's metadata does not contain the topic {name!r}")

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the leader from the cache, or -1."""
        known = self._topics.get(topic)
        if known is None or partition >= len(known[0].partitions):
            return NO_BROKER
        return known[0].partitions[partition].leader

    async def leader_of(self, topic: str, partition: int) -> int:
        """Return the id of the leader; fetch the metadata if it is not cached."""
        metadata = await self.topic(topic)
        if partition >= len(metadata.partitions):
            raise PartitionNotFound(f"topic {topic!r} has no partition {partition}")
        leader = metadata.partitions[partition].leader
        if leader == NO_BROKER:
            self.invalidate(topic)
            raise NotLeader(f"partition {partition} of topic {topic!r} has no leader at the moment")
        return leader

    def invalidate(self, topic: str) -> None:
        """Drop the cached metadata of a topic: the next lookup asks a broker."""
        self._topics.pop(topic, None)

    def _learn(self, answer: MetadataAnswer) -> None:
        for broker in answer.brokers:
            address = (broker.host, broker.port)
            known = self._addresses.get(broker.broker)
            # Keep an address that works; use the advertised one when it does not.
            if known is None or (known != address and self.open_connection(broker.broker) is None):
                self._addresses[broker.broker] = address
        now_s = asyncio.get_running_loop().time()
        for topic in answer.topics:
            topic.partitions.sort(key=lambda partition: partition.partition)
            if topic.error is None:
                self._topics[topic.topic] = (topic, now_s)
