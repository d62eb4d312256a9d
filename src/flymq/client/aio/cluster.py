"""The cluster as a client sees it: who leads which partition, who coordinates what, and requests to any broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from flymq.client.aio.brokers import Brokers
from flymq.client.aio.connection import Connection
from flymq.client.aio.coordinators import Coordinators
from flymq.client.aio.failover import first_success, unless_replaced
from flymq.client.metrics import Counters
from flymq.client.retry import Backoff
from flymq.client.settings import Address, ConnectionConfig
from flymq.host.host import Host, system_host
from flymq.model.errors import (
    BrokenFrame,
    BrokerUnavailable,
    FlyMQError,
    NotLeader,
    PartitionNotFound,
    RequestTimedOut,
    TopicNotFound,
)
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages.fields import NO_EPOCH, Message
from flymq.wire.native.messages.topics import NO_BROKER, Metadata, MetadataAnswer, PartitionMetadata, TopicMetadata

M = TypeVar("M", bound=Message)
T = TypeVar("T")

ASK_NEXT_S = 1.0
"""How long to wait for one broker before the same is asked of another."""


class Cluster:
    """Brokers and metadata, shared by the producers and consumers of one client."""

    def __init__(
        self,
        config: ConnectionConfig,
        counters: Counters,
        host: Host | None = None,
        *,
        expects_broker: bool = False,
    ) -> None:
        """`expects_broker`: another process has reached a broker, so an outage is temporary."""
        self.config = config
        self.counters = counters
        self.backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.host = host or system_host()
        self.entropy = self.host.entropy
        self.request_timeout_s = config.request_timeout_ms / 1000
        self.brokers = Brokers(config, counters, self.host.network, expects_broker=expects_broker)
        self.open_connection = self.brokers.open_connection
        self.coordinators = Coordinators(self)
        self._topics: dict[str, tuple[TopicMetadata, float]] = {}
        self._refreshing: dict[str, asyncio.Task[TopicMetadata]] = {}

    # --- connections ------------------------------------------------------------------------------------------------

    async def connection(self, broker: int = NO_BROKER) -> Connection:
        """Return an open connection to this broker, or to any."""
        if broker == NO_BROKER:
            return await self.brokers.any_connection()
        return await self.brokers.connection(broker)

    def abort(self) -> None:
        """Disconnect at once. Requests in flight fail."""
        for refresh in list(self._refreshing.values()):
            refresh.cancel()
        self.brokers.abort()

    async def close(self) -> None:
        self.abort()
        await asyncio.gather(*self._refreshing.values(), return_exceptions=True)
        await self.brokers.close()

    # --- requests ---------------------------------------------------------------------------------------------------

    async def ask(self, request: Message, answer: type[M], *, broker: int = NO_BROKER) -> M:
        """Send an idempotent request; retry until it is answered or the request timeout has passed. Without a broker,
        any may answer: if one is silent, the next is asked as well."""
        if broker == NO_BROKER:
            return await self.retry(lambda: self.ask_any(request, answer))
        return await self.retry(lambda: self.tell(request, answer, broker=broker))

    async def tell(self, request: Message, answer: type[M], *, broker: int = NO_BROKER) -> M:
        """Send a request once. A request with side effects must not be retried blindly after its answer was lost."""
        connection = await self.connection(broker)
        return await connection.request(request, answer, self.request_timeout_s)

    async def ask_any(self, request: Message, answer: type[M]) -> M:
        """Send an idempotent request to one broker after the other until one answers, without further retries."""
        connections = self.brokers.open_connections()
        if not connections:
            connections = [await self.brokers.any_connection()]
        attempts: list[Callable[[], Coroutine[Any, Any, M]]] = [
            partial(connection.request, request, answer, self.request_timeout_s) for connection in connections
        ]
        attempts += [partial(self._ask_at, address, request, answer) for address in self.brokers.unconnected()]
        return await first_success(attempts, stagger_s=ASK_NEXT_S)

    async def _ask_at(self, address: Address, request: Message, answer: type[M]) -> M:
        connection = await self.brokers.connect(address)
        return await connection.request(request, answer, self.request_timeout_s)

    async def retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        within_s: float | None = None,
        may_retry: Callable[[FlyMQError], bool] = lambda _: True,
    ) -> T:
        """Call `attempt`, which must be idempotent, until it succeeds, fails with an error that cannot be retried, or
        the time has passed: the request timeout, at which the last attempt may go on, or `within_s`, at which it is
        cancelled."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + (self.request_timeout_s if within_s is None else within_s)
        count = 0
        last: FlyMQError | None = None
        while True:
            try:
                if within_s is None:
                    return await attempt()
                async with asyncio.timeout_at(deadline_s):
                    return await attempt()
            except TimeoutError:
                raise last or RequestTimedOut(f"no broker answered in {within_s:g} s") from None
            except FlyMQError as error:
                count += 1
                pause_s = self.backoff.delay_s(count, self.entropy)
                if not (self.may_retry(error) and may_retry(error)) or loop.time() + pause_s >= deadline_s:
                    raise
                last = error
            self.counters.retries += 1
            await asyncio.sleep(pause_s)

    def may_retry(self, error: FlyMQError) -> bool:
        """Whether a retry can help. A broker that was never reached is reported at once: the address is wrong, or the
        broker is not running."""
        return error.retriable and not (isinstance(error, BrokerUnavailable) and not self.brokers.was_reached)

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
        """Fetch a topic's metadata from a broker; concurrent calls share one request."""
        if auto_create:
            return await self._fetch(name, auto_create=True)
        fetching = self._refreshing.get(name)
        if fetching is None:
            fetching = asyncio.get_running_loop().create_task(self._fetch(name), name=f"metadata of {name}")
            self._refreshing[name] = fetching
            fetching.add_done_callback(partial(self._refreshed, name))
        return await asyncio.shield(fetching)

    def _refreshed(self, name: str, fetching: asyncio.Task[TopicMetadata]) -> None:
        self._refreshing.pop(name, None)
        if not fetching.cancelled():
            fetching.exception()  # retrieve it: nobody may be waiting any more

    async def _fetch(self, name: str, *, auto_create: bool = False) -> TopicMetadata:
        answer = await self.ask_any(Metadata(topics=[name], auto_create=auto_create), MetadataAnswer)
        self._learn(answer)
        for topic in answer.topics:
            if topic.error is not None:
                self._topics.pop(name, None)
                raise error_of(topic.error)
            if topic.topic == name:
                return self._topics[name][0]
        raise BrokenFrame(f"the broker's metadata does not contain the topic {name!r}")

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        """Return the metadata of a partition from the cache."""
        known = self._topics.get(topic)
        return None if known is None or partition >= len(known[0].partitions) else known[0].partitions[partition]

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of a topic from the cache."""
        return None if (known := self._topics.get(name)) is None else bytes(known[0].topic_id)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the epoch of the leader from the cache, or -1."""
        return NO_EPOCH if (known := self.partition(topic, partition)) is None else known.leader_epoch

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the leader from the cache, or -1."""
        known = self._topics.get(topic)
        if known is None or partition >= len(known[0].partitions):
            return NO_BROKER
        return known[0].partitions[partition].leader

    async def leader_of(self, topic: str, partition: int) -> int:
        """Return the id of the leader; fetch the metadata if it is not cached."""
        is_cached = topic in self._topics
        metadata = await self.topic(topic)
        if partition >= len(metadata.partitions):
            raise PartitionNotFound(f"topic {topic!r} has no partition {partition}")
        leader = metadata.partitions[partition].leader
        if leader == NO_BROKER and is_cached:
            await self.refresh(topic)
            leader = self.leader(topic, partition)
        if leader == NO_BROKER:
            raise NotLeader(f"partition {partition} of topic {topic!r} has no leader at the moment")
        return leader

    async def while_leading(self, leader: int, partitions: Sequence[tuple[str, int]], work: Awaitable[T]) -> T:
        """Wait for the leader of these partitions, but no longer than it leads any of them."""
        if not self.brokers.has_others:
            return await work

        async def is_replaced() -> bool:
            return not await self.leads_any(leader, partitions)

        return await unless_replaced(work, is_replaced)

    async def leads_any(self, leader: int, partitions: Sequence[tuple[str, int]]) -> bool:
        """Whether this broker still leads any of these partitions, by fresh metadata."""
        for topic in {topic for topic, _ in partitions}:
            await self.refresh(topic)
        return any(self.leader(*name) == leader for name in partitions)

    def invalidate(self, topic: str, partition: int | None = None) -> None:
        """Drop the cached metadata of a topic, or the leader of one partition: the next lookup asks a broker."""
        if partition is None:
            self._topics.pop(topic, None)
        elif (known := self.partition(topic, partition)) is not None:
            known.leader = NO_BROKER

    def _learn(self, answer: MetadataAnswer) -> None:
        for broker in answer.brokers:
            self.brokers.learn(broker.broker, (broker.host, broker.port))
        now_s = asyncio.get_running_loop().time()
        for topic in answer.topics:
            if topic.error is None:
                topic.partitions.sort(key=lambda partition: partition.partition)
                self._keep_newer_leaders(topic)
                self._topics[topic.topic] = (topic, now_s)

    def _keep_newer_leaders(self, topic: TopicMetadata) -> None:
        """A broker that lags behind still names leaders that this client knows to be replaced."""
        known, _ = self._topics.get(topic.topic, (None, 0.0))
        if known is None or known.topic_id != topic.topic_id:
            return
        for at, (old, new) in enumerate(zip(known.partitions, topic.partitions, strict=False)):
            if new.leader_epoch != NO_EPOCH and old.leader_epoch > new.leader_epoch:
                topic.partitions[at] = old
