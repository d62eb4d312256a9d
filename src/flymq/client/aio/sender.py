"""Send batches to the leaders of their partitions, and retry until they are acknowledged or time out.

Everything here runs in the client's event loop. A pump takes the batches that can be sent now and sends one request to
each leader; an answer settles its batches and pumps again. No task is created per request: only waiting for a
connection, for metadata or for a producer id takes one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias, cast

from flymq.client.accumulator import Accumulator, PartitionQueue, TopicQueues
from flymq.client.aio.cluster import Cluster
from flymq.client.aio.connection import Connection
from flymq.client.aio.coordinators import TRANSACTION
from flymq.client.aio.failover import PATIENCE_S, InFlight
from flymq.client.deliveries import Batch, settled
from flymq.client.settings import ProducerConfig
from flymq.host.tasks import Tasks
from flymq.model.delivery import Acks
from flymq.model.errors import (
    BrokenFrame,
    ClientClosed,
    ConnectionLost,
    FlyMQError,
    InternalError,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OutOfOrderSequence,
    RequestTimedOut,
    StorageError,
    UnknownBrokerError,
    UnknownProducer,
    UnknownRetriableError,
)
from flymq.record.batch import encode_batch
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.records import PartitionBatches, ProduceBatch, ProduceBatchAnswer
from flymq.wire.native.messages.topics import NO_BROKER
from flymq.wire.native.messages.transactions import InitProducer, InitProducerAnswer

Sending: TypeAlias = tuple[PartitionQueue, Batch]

_SEQUENCE_SPAN = 1 << 31
_ANONYMOUS = InitProducerAnswer(producer_id=-1, producer_epoch=-1)
_AMBIGUOUS = (
    ConnectionLost,
    RequestTimedOut,
    BrokenFrame,
    StorageError,  # as after a failed fsync: the batch is in the log, and perhaps on the disk
    InternalError,
    UnknownBrokerError,
    UnknownRetriableError,
    NotLeader,  # also that a broker lost the leadership while the batch waited for its followers
    NotEnoughReplicasAfterAppend,
)
"""Errors after which the batch may have been written."""
_NEEDS_NEW_IDENTITY = (OutOfOrderSequence, UnknownProducer)


class Sender:
    """The sending half of a producer."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        *,
        transactional_id: str = "",
        transaction_timeout_ms: int = 60_000,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self.transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._clock = cluster.host.clock
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._tasks = Tasks(self._task_failed)
        self._pump_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._identity: InitProducerAnswer | None = None
        self._identifying = asyncio.Lock()
        self._refresh: asyncio.Task[None] | None = None
        self._first_look_s = min(PATIENCE_S, self._cluster.request_timeout_s, config.delivery_timeout_ms / 1000)
        self._failures: list[Batch] = []  # failed since the last flush
        self.is_closed = False
        self.accumulator = Accumulator(
            batch_bytes_max=config.batch_bytes_max,
            buffer_bytes_max=config.buffer_bytes_max,
            linger_s=config.linger_ms / 1000,
            now_s=self._loop.time,
            wake=self._wake,
        )

    async def topic(self, name: str) -> TopicQueues:
        """Return the queues of a topic; fetch its metadata first if it is not cached."""
        if self.is_closed:
            raise ClientClosed
        within_s = self._config.delivery_timeout_ms / 1000
        metadata = await self._cluster.retry(lambda: self._cluster.topic_or_new(name), within_s=within_s)
        if self._refresh is None:
            self._refresh = self._tasks.spawn("refresh metadata", self._refresh_topics())
        return self.accumulator.set_topic(name, len(metadata.partitions), metadata.message_bytes_max)

    async def flush(self) -> None:
        """Send everything now and wait for its outcome. Raises the first error that was not reported yet."""
        self.accumulator.begin_flush()
        try:
            self._pump()
            for batch in self.accumulator.pending():
                await settled(batch)
        finally:
            self.accumulator.end_flush()
        failures, self._failures = self._failures, []
        for batch in failures:
            if not batch.is_reported and batch.error is not None:
                raise batch.error

    async def close(self) -> None:
        """Flush, then stop."""
        if self.is_closed:
            return
        self.accumulator.close()
        try:
            await self.flush()
        finally:
            self.is_closed = True
            await self._tasks.close()
            if self._timer is not None:
                self._timer.cancel()

    # --- sending ----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Pump soon: after the records that are being added now."""
        if self._pump_is_due:
            return
        self._pump_is_due = True
        if threading.get_ident() == self._thread:
            self._loop.call_soon(self._pump)
        else:
            self._loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        """Send every batch that can be sent now."""
        self._pump_is_due = False
        ready, next_s = self.accumulator.take_ready(self._loop.time())
        by_leader: dict[int, list[Sending]] = {}
        for queue, batch in ready:
            by_leader.setdefault(self._cluster.leader(batch.topic, batch.partition), []).append((queue, batch))
        for leader, sendings in by_leader.items():
            connection = self._cluster.open_connection(leader)
            if connection is None or self._identity is None or not connection.is_writable:
                self._tasks.spawn("reach the leader", self._reach(leader, sendings))
            else:
                self._transmit(connection, leader, sendings)
        self._pump_at(next_s)

    def _pump_at(self, at_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            self._timer = self._loop.call_at(at_s, self._pump)

    async def _reach(self, leader: int, sendings: Sequence[Sending]) -> None:
        """Get what is missing to send these: their leaders, or a connection and a producer id. Then queue them again.

        Batches of several leaders are here only until the leaders are known: none waits for the leader of another.
        """
        is_known = leader != NO_BROKER
        steps = [sendings] if is_known else [[sending] for sending in sendings]
        for step in steps:
            work = self._connect(leader, step) if is_known else self._find_leader(step[0][1])
            try:
                async with asyncio.timeout_at(min(self._deadline_s(batch) for _, batch in step)):
                    await work
            except TimeoutError:
                for queue, batch in step:
                    timed_out = RequestTimedOut("the leader could not be reached in time")
                    self._failed(queue, batch, batch.last_error or timed_out)
            except FlyMQError as error:
                self._retry_or_fail(step, error)
            else:
                for queue, _ in step:
                    self.accumulator.put_back(queue, retry_at_s=0.0)
        self._pump()

    async def _find_leader(self, batch: Batch) -> None:
        await self._cluster.leader_of(batch.topic, batch.partition)

    async def _connect(self, leader: int, sendings: Sequence[Sending]) -> None:
        names = [(batch.topic, batch.partition) for _, batch in sendings]
        connection = await self._cluster.while_leading(leader, names, self._cluster.connection(leader))
        await self.identify()
        await connection.until_writable()

    async def _refresh_topics(self) -> None:
        """Refresh metadata periodically, to notice new partitions. Failures are left to the next round."""
        while True:
            await asyncio.sleep(self._cluster.config.metadata_max_age_ms / 1000)
            for name in list(self.accumulator.topics):
                with contextlib.suppress(FlyMQError):
                    metadata = await self._cluster.refresh(name)
                    self.accumulator.set_topic(name, len(metadata.partitions), metadata.message_bytes_max)

    def identity(self) -> InitProducerAnswer:
        assert self._identity is not None, "identify first"
        return self._identity

    def reset_identity(self) -> None:
        """Drop the producer id and epoch; with the next ones, sequence numbers restart at 0 in every partition."""
        self._identity = None
        self.accumulator.reset_sequences()

    def _renew_identity(self, queue: PartitionQueue) -> None:
        """Continue in one partition under a producer id that was never used there. All others keep theirs: batches of
        theirs may be in the log already, and only their sequence numbers tell a retry from a new batch."""
        if queue.identity is self._identity:
            self._identity = None
        queue.identity = None

    def set_identity(self, producer_id: int, producer_epoch: int) -> None:
        """Continue with this producer id and epoch; sequence numbers restart at 0."""
        self._identity = InitProducerAnswer(producer_id=producer_id, producer_epoch=producer_epoch)
        self.accumulator.reset_sequences()

    async def identify(self) -> None:
        """Get a producer id, if the producer is idempotent and the broker supports it."""
        async with self._identifying:
            if self._identity is not None:
                return
            wanted = self._config.idempotent
            if wanted is None:
                connection = await self._cluster.connection()
                wanted = self._config.acks is not Acks.NONE and connection.serves(InitProducer)
            if not wanted and not self.transactional_id:
                self._identity = _ANONYMOUS
                return
            request = InitProducer(
                transactional_id=self.transactional_id, transaction_timeout_ms=self._transaction_timeout_ms
            )
            if self.transactional_id:
                self._identity = await self._cluster.coordinators.ask(
                    TRANSACTION, self.transactional_id, request, InitProducerAnswer
                )
            else:
                self._identity = await self._cluster.ask_any(request, InitProducerAnswer)

    def _transmit(self, connection: Connection, leader: int, sendings: Sequence[Sending]) -> None:
        parcel: list[Sending] = []
        parcel_bytes = 0
        for queue, batch in sendings:
            try:
                encoded = batch.encoded or self._encode(queue, batch)
            except FlyMQError as error:
                self._failed(queue, batch, error)
                continue
            if parcel and parcel_bytes + len(encoded) > connection.batches_bytes_max:
                self._transmit_one(connection, leader, parcel)
                parcel, parcel_bytes = [], 0
            parcel.append((queue, batch))
            parcel_bytes += len(encoded)
        if parcel:
            self._transmit_one(connection, leader, parcel)

    def _encode(self, queue: PartitionQueue, batch: Batch) -> bytearray:
        assert self._identity is not None
        if queue.identity is None:
            queue.identity, queue.next_sequence = self._identity, 0
        identity: InitProducerAnswer = queue.identity
        batch.identity = identity
        batch.timestamp = self._clock.now_ms()
        batch.encoded = encode_batch(
            batch.records,
            timestamp_ms=batch.timestamp,
            compression=self._config.compression,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=queue.next_sequence if identity is not _ANONYMOUS else -1,
            transactional=bool(self.transactional_id),
        )
        return batch.encoded

    def _transmit_one(self, connection: Connection, leader: int, sendings: list[Sending]) -> None:
        request = ProduceBatch(
            partitions=[
                PartitionBatches(topic=batch.topic, partition=batch.partition, batches=batch.encoded or b"")
                for _, batch in sendings
            ],
            acks=self._config.acks,
            transactional_id=self.transactional_id,
        )
        try:
            if self._config.acks is Acks.NONE:
                connection.send_unanswered(request)
                for queue, batch in sendings:
                    self._succeeded(queue, batch, base_offset=-1, log_append_time=-1)
                self._wake()
                return
            answer = connection.send(request)
        except FlyMQError as error:
            self._all_failed(sendings, error)
            return
        flight = InFlight(connection, leader, request.id, sendings, self._loop.time())
        flight.timer = self._loop.call_later(self._first_look_s, self._look_after, flight)
        answer.add_done_callback(partial(self._answered, flight))

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answered(self, flight: InFlight[Sending], answer: asyncio.Future[Message]) -> None:
        flight.end()
        sendings = flight.parts
        error = answer.exception()
        if error is not None:
            self._all_failed(sendings, cast(FlyMQError, error))
            return
        appended = {(part.topic, part.partition): part for part in cast(ProduceBatchAnswer, answer.result()).partitions}
        for queue, batch in sendings:
            outcome = appended.get((batch.topic, batch.partition))
            if outcome is None:
                self._failed(queue, batch, BrokenFrame("the broker's answer lacks a partition"))
            elif outcome.error is not None:
                self._failed(queue, batch, error_of(outcome.error))
            else:
                self._succeeded(queue, batch, outcome.base_offset, outcome.log_append_time)
        self._pump()

    def _look_after(self, flight: InFlight[Sending]) -> None:
        """The leader is silent. Wait until a batch or the request has no more time, or another broker leads."""
        now_s = self._loop.time()
        until_s = flight.since_s + self._cluster.request_timeout_s
        until_s = min(until_s, *(self._deadline_s(batch) for _, batch in flight.parts))
        if now_s >= until_s:
            self._give_up(flight)
            return
        if flight.check is None and now_s - flight.since_s >= PATIENCE_S:
            flight.check = self._tasks.spawn("check the leader", self._check_leader(flight))
        flight.timer = self._loop.call_at(min(until_s, now_s + PATIENCE_S), self._look_after, flight)

    async def _check_leader(self, flight: InFlight[Sending]) -> None:
        names = [(batch.topic, batch.partition) for _, batch in flight.parts]
        with contextlib.suppress(FlyMQError):
            if not await self._cluster.leads_any(flight.leader, names):
                flight.check = None
                self._give_up(flight)
                return
        flight.check = None

    def _give_up(self, flight: InFlight[Sending]) -> None:
        flight.connection.abandon(flight.request_id)
        flight.end()
        self._cluster.counters.errors[RequestTimedOut.code] += 1
        self._all_failed(flight.parts, RequestTimedOut(f"{flight.connection} did not answer PRODUCE_BATCH in time"))

    def _all_failed(self, sendings: Sequence[Sending], error: FlyMQError) -> None:
        self._retry_or_fail(sendings, error)
        self._pump()

    def _retry_or_fail(self, sendings: Sequence[Sending], error: FlyMQError) -> None:
        for queue, batch in sendings:
            self._failed(queue, batch, error)

    def _succeeded(self, queue: PartitionQueue, batch: Batch, base_offset: int, log_append_time: int) -> None:
        if batch.identity is queue.identity:
            queue.next_sequence = (queue.next_sequence + batch.count) % _SEQUENCE_SPAN
        self._cluster.counters.records_sent += batch.count
        self.accumulator.finish(queue, batch)
        batch.succeed(base_offset, log_append_time if log_append_time >= 0 else batch.timestamp)

    def _failed(self, queue: PartitionQueue, batch: Batch, error: FlyMQError) -> None:
        """Queue the batch for a retry, or fail it."""
        batch.attempts += 1
        batch.ambiguous = batch.ambiguous or isinstance(error, _AMBIGUOUS)
        is_idempotent = batch.identity is not None and batch.identity is not _ANONYMOUS
        if is_idempotent and isinstance(error, _NEEDS_NEW_IDENTITY) and not self.transactional_id:
            self._renew_identity(queue)
            batch.encoded = None  # to be encoded again with the new producer id
            may_retry = True
        else:
            may_retry = self._cluster.may_retry(error)
        if may_retry and self._has_time(batch) and not self.is_closed:
            batch.last_error = error
            self._cluster.counters.retries += 1
            self._cluster.invalidate(batch.topic, batch.partition)
            pause_s = self._cluster.backoff.delay_s(batch.attempts, self._cluster.entropy)
            self.accumulator.put_back(queue, min(self._loop.time() + pause_s, self._deadline_s(batch)))
            return
        if batch.ambiguous and is_idempotent and not self.transactional_id:
            self._renew_identity(queue)  # the broker may have seen these sequence numbers or not: do not reuse them
        self.accumulator.finish(queue, batch)
        batch.fail(error)
        self._failures = [failed for failed in self._failures if not failed.is_reported] + [batch]

    def _has_time(self, batch: Batch) -> bool:
        if self._config.retries is not None and batch.attempts > self._config.retries:
            return False
        return self._loop.time() < self._deadline_s(batch)

    def _deadline_s(self, batch: Batch) -> float:
        return batch.opened_s + self._config.delivery_timeout_ms / 1000

    def _task_failed(self, name: str, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": f"FlyMQ producer: {name} failed", "exception": error})
