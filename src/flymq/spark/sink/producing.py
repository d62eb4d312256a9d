"""Write the rows of a task to the partition leaders, encoding the next ones while the last are in flight.

One request is in flight at a time. Batches have the sequence numbers of the task's own producer id, so that the broker
recognises duplicates after a lost response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
from msgspec import structs

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.coordinators import TRANSACTION
from flymq.client.aio.leaders import ask_leaders
from flymq.host.clock import SystemClock
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.record.header import Buffer
from flymq.spark.broker_connection import BrokerConnection
from flymq.spark.options import WriteOptions
from flymq.spark.sink.encoding import BatchEncoder
from flymq.wire.native.messages.records import PartitionBatches, ProduceBatch, ProduceBatchAnswer
from flymq.wire.native.messages.session import Done
from flymq.wire.native.messages.transactions import (
    AbortTxn,
    BeginTxn,
    EndTxnAnswer,
    InitProducer,
    InitProducerAnswer,
)

_REQUEST_BYTES_MAX = 4 << 20
_REQUEST_BATCHES_MAX = 5
"""Per partition: a broker recognises as duplicates this many of the last batches of a producer."""


class Parcel(NamedTuple):
    """A record batch to be sent to a partition."""

    name: TopicPartition
    batch: Buffer


class AttemptProducer:
    """Writes record batches in a transaction, or without one if it has no transactional id."""

    def __init__(
        self, connection: BrokerConnection, options: WriteOptions, *, transactional_id: str, first_turn: int
    ) -> None:
        self._connection = connection
        self._options = options
        self._transactional_id = transactional_id
        self._encoder = BatchEncoder(options, first_turn=first_turn, is_transactional=bool(transactional_id))
        self._sending: Future[None] | None = None
        self._waiting: list[Parcel] = []
        self._waiting_bytes = 0
        self._waiting_for: Counter[TopicPartition] = Counter()
        self.identity: InitProducerAnswer | None = None
        self.row_count = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows; earlier ones may still be in flight."""
        if not rows.num_rows:
            return
        if self.identity is None:
            self.identity = self._connection.run(self._begin())
            self._encoder.identity = self.identity
        for topic in self._encoder.unknown_topics(rows):
            known = self._connection.run(self._topic(topic))
            self._encoder.learn(topic, *known)
        for name, batch in self._encoder.encode(rows, SystemClock().now_ms()):
            if self._is_full_for(name, len(batch)):
                self._send()
            self._waiting.append(Parcel(name, batch))
            self._waiting_bytes += len(batch)
            self._waiting_for[name] += 1
        self.row_count += rows.num_rows

    def finish(self) -> None:
        """Wait until everything is written."""
        self._send()
        self._wait()

    def abort(self) -> None:
        """Abort the transaction; if the broker cannot be reached, it aborts it by its timeout."""
        if self._sending is not None:
            self._sending.cancel()
        if self.identity is None or not self._transactional_id:
            return
        request = AbortTxn(
            transactional_id=self._transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
        )
        with suppress(FlyMQError):
            self._connection.run(
                self._connection.cluster.coordinators.tell(TRANSACTION, self._transactional_id, request, EndTxnAnswer)
            )

    def _is_full_for(self, name: TopicPartition, size: int) -> bool:
        is_too_large = self._waiting_bytes + size > _REQUEST_BYTES_MAX
        return bool(self._waiting) and (is_too_large or self._waiting_for[name] == _REQUEST_BATCHES_MAX)

    def _send(self) -> None:
        self._wait()
        if self._waiting:
            request = ProduceBatch(partitions=[], acks=self._options.acks, transactional_id=self._transactional_id)
            self._sending = self._connection.start(_send_all(self._connection.cluster, request, self._waiting))
        self._waiting, self._waiting_bytes = [], 0
        self._waiting_for.clear()

    def _wait(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()

    async def _begin(self) -> InitProducerAnswer:
        cluster = self._connection.cluster
        name = self._transactional_id
        init = InitProducer(transactional_id=name, transaction_timeout_ms=self._options.transaction_timeout_ms)
        if not name:
            return await cluster.ask(init, InitProducerAnswer)
        identity = await cluster.coordinators.ask(TRANSACTION, name, init, InitProducerAnswer)
        begin = BeginTxn(
            transactional_id=name, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
        )
        await cluster.coordinators.ask(TRANSACTION, name, begin, Done)
        return identity

    async def _topic(self, name: str) -> tuple[int, int]:
        cluster = self._connection.cluster
        found = await cluster.retry(lambda: cluster.topic_or_new(name))
        return len(found.partitions), found.message_bytes_max


async def _send_all(cluster: Cluster, request: ProduceBatch, parcels: Sequence[Parcel]) -> None:
    """Send until everything is written. Batches of one partition stay in order: the rest waits behind a failed one."""
    batches = [PartitionBatches(*parcel.name, batches=parcel.batch) for parcel in parcels]
    await ask_leaders(cluster, batches, lambda some: structs.replace(request, partitions=some), ProduceBatchAnswer)
