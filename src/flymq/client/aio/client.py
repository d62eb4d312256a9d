"""The client for asyncio: the entry point of the SDK."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from flymq.client.aio.admin import AsyncAdmin, Settings
from flymq.client.aio.cluster import Cluster
from flymq.client.aio.consumer import AsyncConsumer, GroupOptions, RebalanceListener
from flymq.client.aio.leaders import ask_leader, ask_leaders
from flymq.client.aio.membership import Assignor
from flymq.client.aio.producer import AsyncProducer
from flymq.client.aio.transaction import AsyncTransaction
from flymq.client.aio.transform import Transformation, transform
from flymq.client.appender import Headers
from flymq.client.cursor import FetchedRun
from flymq.client.decoding import Decoder
from flymq.client.deliveries import BatchResult
from flymq.client.encryption import Cipher
from flymq.client.metrics import ClientMetrics, Counters
from flymq.client.offset_stores import OffsetStore
from flymq.client.records import ConsumerRecord, RecordMetadata
from flymq.client.settings import (
    ClientSettings,
    ConnectionConfig,
    ConsumerConfig,
    ConsumerSettings,
    ProducerConfig,
    ProducerSettings,
    check_known,
    parse_addresses,
    pick,
)
from flymq.host.entropy import new_id
from flymq.host.host import Host
from flymq.model.delivery import Isolation
from flymq.model.errors import ClientClosed, InvalidSetting
from flymq.record.record import Record
from flymq.wire.native.messages.records import Consume, Fetch, FetchAnswer, FetchPartition

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from flymq.client.tracing import Tracing


class AsyncFlyMQClient:
    """A client of a FlyMQ broker or cluster, for asyncio.

    It connects on first use and reconnects by itself. `bootstrap_servers` is "host:port", several of them separated by
    commas, or a list; without it, the environment variable FLYMQ_BOOTSTRAP or localhost:9092. `on_host` is the machine
    it runs on, if that is a simulated one.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] | None = None,
        *,
        on_host: Host | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        check_known(settings, ClientSettings)
        connection = pick(ConnectionConfig, settings, addresses=parse_addresses(bootstrap_servers))
        self._counters = Counters(connection.client_id)
        self._cluster = Cluster(connection, self._counters, on_host)
        self._producer_settings = {
            name: value for name, value in settings.items() if name in ProducerSettings.__annotations__
        }
        self._producer_config = pick(ProducerConfig, self._producer_settings)
        self._cipher: Cipher | None = None
        if (key := settings.get("encryption_key")) is not None:
            self._cipher = Cipher(
                key, settings.get("decryption_keys", ()), required=settings.get("encryption_required", True)
            )
        self._tracing = _tracing(settings.get("tracing", False), connection.client_id)
        self._default_producer: AsyncProducer | None = None
        self._transactional: dict[str | None, list[AsyncProducer]] = {}  # idle transactional producers, by id
        self._opened: list[AsyncProducer | AsyncConsumer] = []
        self._is_closed = False
        self.admin = AsyncAdmin(self._cluster)

    # --- writing ----------------------------------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        """Write one record and return its metadata, which is an int: the offset."""
        return await self.default_producer().produce(
            topic, value, key, partition=partition, headers=headers, timestamp=timestamp
        )

    async def produce_batch(self, topic: str, messages: Iterable[Any], *, partition: int | None = None) -> BatchResult:
        """Write many records, given as (key, value) pairs or as values; return their metadata in the same order."""
        return await self.default_producer().produce_batch(topic, messages, partition=partition)

    async def flush(self) -> None:
        """Wait until everything sent is acknowledged."""
        if self._default_producer is not None:
            await self._default_producer.flush()

    def producer(self, **settings: Unpack[ProducerSettings]) -> AsyncProducer:
        """Return a producer with its own buffer and settings, which default to those of this client."""
        check_known(settings, ProducerSettings)
        producer = AsyncProducer(
            self._cluster, pick(ProducerConfig, {**self._producer_settings, **settings}), self._cipher, self._tracing
        )
        self._register(producer)
        return producer

    def default_producer(self) -> AsyncProducer:
        if self._is_closed:
            raise ClientClosed
        if self._default_producer is None:
            self._default_producer = AsyncProducer(self._cluster, self._producer_config, self._cipher, self._tracing)
        return self._default_producer

    def transaction(self, transactional_id: str | None = None, *, timeout_ms: int = 60_000) -> AsyncTransaction:
        """Return a transaction for `async with`: committed at the end of the block, aborted when the block fails.

        With the same transactional id at every start, a program fences the producers of its previous run. The broker
        aborts a transaction that stays open for `timeout_ms`.
        """
        known = self._transactional.setdefault(transactional_id, [])
        if known:
            producer = known.pop()
        else:
            new_name = f"{self._cluster.config.client_id}-{new_id(self._cluster.entropy)}"
            producer = AsyncProducer(
                self._cluster,
                self._producer_config,
                self._cipher,
                self._tracing,
                transactional_id=transactional_id or new_name,
                transaction_timeout_ms=timeout_ms,
            )
            self._register(producer)
        return AsyncTransaction(self._cluster, producer, on_end=known.append)

    async def begin_transaction(
        self, transactional_id: str | None = None, *, timeout_ms: int = 60_000
    ) -> AsyncTransaction:
        """Begin a transaction that is ended by its `commit` or `abort`."""
        return await self.transaction(transactional_id, timeout_ms=timeout_ms).begin()

    async def transform(
        self, consumer: AsyncConsumer, transformation: Transformation, *, transactional_id: str
    ) -> None:
        """Consume, transform and produce, exactly once, until the consumer is stopped.

        `transformation` returns an iterable of (topic, value) or (topic, value, key) to produce for a record. The
        consumer must be in a group, with auto_commit=False; use the same unique `transactional_id` at every start.
        """
        await transform(consumer, transformation, lambda: self.transaction(transactional_id))

    # --- reading ----------------------------------------------------------------------------------------------------

    async def consume(self, topic: str, offset: int = 0, *, partition: int = 0) -> ConsumerRecord:
        """Return the record at one offset."""
        request = Consume(topic=topic, partition=partition, offset=int(offset))
        found = await ask_leader(self._cluster, request)
        record = Record(
            None if found.key is None else bytes(found.key),
            None if found.value is None else bytes(found.value),
            tuple((name, None if value is None else bytes(value)) for name, value in found.headers),
            found.timestamp,
            found.offset,
        )
        self._counters.records_received += 1
        return Decoder(self._cipher).decode_one(topic, partition, record)

    async def fetch(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        max_records: int | None = None,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> list[ConsumerRecord]:
        """Return records of a partition from `offset` on, up to `max_bytes`; none at the end of the partition."""
        fetched = await ask_leaders(
            self._cluster,
            [FetchPartition(topic, partition, int(offset), max_bytes)],
            lambda parts: Fetch(partitions=parts, max_wait_ms=max_wait_ms, isolation=isolation),
            FetchAnswer,
        )
        records: list[ConsumerRecord] = []
        for part in fetched:
            run = FetchedRun(memoryview(part.batches), offset, -1, part.aborted)
            records, _ = Decoder(self._cipher).decode(topic, partition, run)
        self._counters.records_received += len(records)
        return records[:max_records]

    def consumer(
        self,
        *topics: str,
        group: str = "",
        partitions: Iterable[int] | None = None,
        listener: RebalanceListener | None = None,
        custom_assignors: Sequence[Assignor] = (),
        offset_store: OffsetStore | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> AsyncConsumer:
        """Return a consumer of these topics: of all partitions, of those given, or as a member of a consumer group."""
        check_known(settings, ConsumerSettings)
        consumer = AsyncConsumer(
            self._cluster,
            topics,
            pick(ConsumerConfig, settings),
            self._cipher,
            self._tracing,
            partitions=partitions,
            group=GroupOptions(group, listener, custom_assignors, offset_store),
        )
        self._register(consumer)
        return consumer

    # --- topics -----------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Settings | None = None,
        *,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic, with the broker's defaults for what is not given."""
        await self.admin.create_topic(name, partitions, replication_factor, settings, exist_ok=exist_ok)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        await self.admin.delete_topic(name)

    async def list_topics(self) -> list[str]:
        """Return the names of all topics."""
        return [topic.name for topic in await self.admin.list_topics()]

    # --- lifecycle --------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect to a broker now; raise if none can be reached."""
        await self._cluster.connection()

    def metrics(self) -> ClientMetrics:
        """Return a snapshot of connections, request latency, errors, retries and record counts."""
        return self._counters.snapshot()

    async def close(self) -> None:
        """Flush, close producers and consumers, disconnect."""
        if self._is_closed:
            return
        self._is_closed = True
        default = [] if self._default_producer is None else [self._default_producer]
        first_error: Exception | None = None
        for part in [*self._opened, *default]:
            try:
                await part.close()
            except Exception as error:  # close all of them, even if one fails
                first_error = first_error or error
        await self._cluster.close()
        if first_error is not None:
            raise first_error

    def abort(self) -> None:
        """Disconnect at once, without flushing."""
        self._is_closed = True
        self._cluster.abort()

    def close_after_fork(self) -> None:
        """Reject further calls, in a forked process that has this client's memory but not its event loop."""
        self._is_closed = True
        for part in (self._default_producer, *self._opened):
            if isinstance(part, AsyncProducer):
                part.sender.accumulator.close()

    def _register(self, part: AsyncProducer | AsyncConsumer) -> None:
        """Keep it, to close it with the client; drop those closed already."""
        self._opened = [open_part for open_part in self._opened if not open_part.is_closed]
        self._opened.append(part)

    async def __aenter__(self) -> AsyncFlyMQClient:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _tracing(wanted: bool | TracerProvider, client_id: str) -> Tracing | None:
    """Return the tracing of this client, if it is on: with the global tracer provider, or the one given."""
    if wanted is False:
        return None
    try:
        from flymq.client.tracing import Tracing
    except ImportError:
        raise InvalidSetting(
            "`tracing` needs the package opentelemetry-api", hint="Install it with: pip install 'flymq[tracing]'"
        ) from None
    if wanted is not True and not hasattr(wanted, "get_tracer"):
        raise InvalidSetting(f"`tracing` takes True, False or a tracer provider, not {wanted!r}")
    return Tracing(client_id, None if wanted is True else wanted)
