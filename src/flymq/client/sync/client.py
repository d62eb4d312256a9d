"""The client for blocking code: the entry point of the SDK."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Unpack

from flymq.client.aio.admin import Settings
from flymq.client.aio.client import AsyncFlyMQClient
from flymq.client.aio.consumer import RebalanceListener
from flymq.client.aio.membership import Assignor
from flymq.client.aio.transform import Transformation
from flymq.client.appender import Headers
from flymq.client.deliveries import BatchResult
from flymq.client.metrics import ClientMetrics
from flymq.client.offset_stores import OffsetStore
from flymq.client.records import ConsumerRecord, RecordMetadata
from flymq.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from flymq.client.sync.admin import Admin
from flymq.client.sync.consumer import Consumer
from flymq.client.sync.loop import LoopThread
from flymq.client.sync.producer import Producer
from flymq.client.sync.transaction import Transaction
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError

_open_clients: weakref.WeakSet[FlyMQClient] = weakref.WeakSet()

CLOSE_AT_EXIT_TIMEOUT_S = 10


class FlyMQClient:
    """A client of a FlyMQ broker or cluster. Thread-safe.

    It connects on first use and reconnects by itself. `bootstrap_servers` is "host:port", several of them separated by
    commas, or a list; without it, the environment variable FLYMQ_BOOTSTRAP or localhost:9092.
    """

    def __init__(
        self, bootstrap_servers: str | Iterable[str] | None = None, **settings: Unpack[ClientSettings]
    ) -> None:
        self._client = AsyncFlyMQClient(bootstrap_servers, **settings)
        self._loop = LoopThread.acquire()
        self._producer: Producer | None = None
        self._release = weakref.finalize(self, _release_client, self._client, self._loop)
        self._release.atexit = False
        _open_clients.add(self)
        self.admin = Admin(self._loop, self._client.admin)

    # --- writing ----------------------------------------------------------------------------------------------------

    def produce(
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
        return self.default_producer().produce(
            topic, value, key, partition=partition, headers=headers, timestamp=timestamp
        )

    def produce_batch(self, topic: str, messages: Iterable[Any], *, partition: int | None = None) -> BatchResult:
        """Write many records, given as (key, value) pairs or as values; return their metadata in the same order."""
        return self.default_producer().produce_batch(topic, messages, partition=partition)

    def flush(self) -> None:
        """Wait until everything sent is acknowledged."""
        self._loop.run(self._client.flush())

    def producer(self, **settings: Unpack[ProducerSettings]) -> Producer:
        """Return a producer with its own buffer and settings; what is not given is as in this client."""
        return Producer(self._loop, self._loop.call(lambda: self._client.producer(**settings)))

    def default_producer(self) -> Producer:
        if self._producer is None or self._producer.is_closed:
            self._producer = Producer(self._loop, self._loop.call(self._client.default_producer))
        return self._producer

    def transaction(self, transactional_id: str | None = None, *, timeout_ms: int = 60_000) -> Transaction:
        """Return a transaction for `with`: committed at the end of the block, aborted when the block fails.

        A program that gives its transactions the same id at every start fences what is left of its last run. A
        transaction left open for `timeout_ms` is aborted by the broker.
        """
        transaction = self._loop.call(lambda: self._client.transaction(transactional_id, timeout_ms=timeout_ms))
        return Transaction(self._loop, transaction)

    def begin_transaction(self, transactional_id: str | None = None, *, timeout_ms: int = 60_000) -> Transaction:
        """Begin a transaction that is ended by its `commit` or `abort`."""
        return self.transaction(transactional_id, timeout_ms=timeout_ms).begin()

    def transform(self, consumer: Consumer, transformation: Transformation, *, transactional_id: str) -> None:
        """Read, transform and write, each record exactly once, until the consumer is stopped.

        `transformation` returns (topic, value) or (topic, value, key) for all that is to be written for a record. The
        consumer belongs to a group and has auto_commit=False; the id is the program's own, the same at every start.
        """
        work = self._client.transform(consumer.asynchronous, transformation, transactional_id=transactional_id)
        self._loop.run(work)

    # --- reading ----------------------------------------------------------------------------------------------------

    def consume(self, topic: str, offset: int = 0, *, partition: int = 0) -> ConsumerRecord:
        """Return the record at one offset."""
        return self._loop.run(self._client.consume(topic, offset, partition=partition))

    def fetch(
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
        return self._loop.run(
            self._client.fetch(
                topic,
                partition,
                offset,
                max_records=max_records,
                max_bytes=max_bytes,
                max_wait_ms=max_wait_ms,
                isolation=isolation,
            )
        )

    def consumer(
        self,
        *topics: str,
        group: str = "",
        partitions: Iterable[int] | None = None,
        listener: RebalanceListener | None = None,
        custom_assignors: Sequence[Assignor] = (),
        offset_store: OffsetStore | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> Consumer:
        """Return a consumer of these topics: of all partitions, of those given, or as a member of a consumer group."""
        consumer = self._loop.call(
            lambda: self._client.consumer(
                *topics,
                group=group,
                partitions=partitions,
                listener=listener,
                custom_assignors=custom_assignors,
                offset_store=offset_store,
                **settings,
            )
        )
        return Consumer(self._loop, consumer)

    # --- topics -----------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Settings | None = None,
        *,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic, with the broker's defaults for what is not given."""
        self.admin.create_topic(name, partitions, replication_factor, settings, exist_ok=exist_ok)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        self.admin.delete_topic(name)

    def list_topics(self) -> list[str]:
        """Return the names of all topics."""
        return [topic.name for topic in self.admin.list_topics()]

    # --- lifecycle --------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect to a broker now; raise if none can be reached."""
        self._loop.run(self._client.connect())

    def metrics(self) -> ClientMetrics:
        """Return a snapshot of connections, request latency, errors, retries and record counts."""
        return self._client.metrics()

    def abort(self) -> None:
        """Disconnect at once, without flushing."""
        _open_clients.discard(self)
        self._release()

    def close(self) -> None:
        """Flush, close producers and consumers, disconnect."""
        if self._release.alive:
            try:
                self._loop.run(self._client.close())
            finally:
                _open_clients.discard(self)
                self._release()

    def __enter__(self) -> FlyMQClient:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _release_client(client: AsyncFlyMQClient, loop: LoopThread) -> None:
    """Disconnect, and stop the event loop after the last client. Also called when a client is garbage collected."""
    loop.post(client.abort)
    LoopThread.release()


@atexit.register
def _close_all() -> None:
    """Flush and close clients that the program did not close before it exits."""
    for client in list(_open_clients):
        with contextlib.suppress(FlyMQError, TimeoutError):
            client._loop.run(asyncio.wait_for(client._client.close(), CLOSE_AT_EXIT_TIMEOUT_S))
        client.abort()


def _close_all_after_fork() -> None:
    for client in list(_open_clients):
        client._release.detach()
        client._client.close_after_fork()
    _open_clients.clear()


os.register_at_fork(after_in_child=_close_all_after_fork)
