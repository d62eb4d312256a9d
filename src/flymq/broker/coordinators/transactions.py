"""The transaction coordinator, on the partitions of `__transactions`: the writes of a transaction take effect in all of
its partitions and groups, or in none.

How a transaction ends; each step is durable before the next one:

1. its records and offsets, in all of its partitions and groups;
2. COMMITTING or ABORTING in `__transactions`: from here on the outcome is final;
3. a marker in every partition, the offsets of every group;
4. COMMITTED or ABORTED. If that is lost in a crash, step 3 is repeated where it is missing.

A partition or group is added in `__transactions` before the first batch or offset is written to its own log. In a
cluster, where another broker may coordinate, that is committed before the batch is written (first_writes.py). A broker
without others does not wait for it, and looks for what a crash has left (interrupted_transactions.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from flymq.broker.coordinators.deadlines import Deadlines
from flymq.broker.coordinators.first_writes import FirstWrites
from flymq.broker.coordinators.groups import Committer, Groups, OffsetsToCommit
from flymq.broker.coordinators.interrupted_transactions import InterruptedTransactions
from flymq.broker.coordinators.markers import Markers
from flymq.broker.coordinators.other_coordinators import OtherCoordinators
from flymq.broker.coordinators.peers import Peers
from flymq.broker.coordinators.producer_ids import ProducerIds
from flymq.broker.coordinators.state_log import Leadership, StateLog
from flymq.broker.coordinators.transaction_ends import TransactionEnds
from flymq.broker.replicas.partition import Partition, Written
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.safety import Safe, all_safe, wait_safe
from flymq.cluster.image import Image
from flymq.coordination.attempts import Attempt, decide_commit_attempts, home_of
from flymq.coordination.entries import Entry, ProducerIdentity, TransactionKey, TransactionState, TransactionValue
from flymq.coordination.request_order import RequestOrder
from flymq.coordination.transaction_table import TransactionTable
from flymq.coordination.transactions import (
    Joining,
    TransactionLimits,
    check_announced,
    check_identity,
    check_ongoing,
    check_producer,
    check_renewal,
    decide_acknowledge,
    decide_add,
    decide_begin,
    decide_end,
    decide_init,
    find_ended,
    is_exhausted,
)
from flymq.host.clock import Clock
from flymq.host.failure_log import FailureLog
from flymq.host.tasks import Tasks
from flymq.model.delivery import Acks
from flymq.model.errors import (
    CoordinatorUnavailable,
    FlyMQError,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    StorageError,
    TransactionInProgress,
    TransactionNotFound,
)
from flymq.model.names import TopicPartition
from flymq.record.header import Buffer, parse_header
from flymq.wire.native.messages.fields import PartitionRef
from flymq.wire.native.messages.peer_transactions import JoinTransaction

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
_SETTLE_S = 5.0


class Transactions:
    """The transactions that this broker coordinates."""

    def __init__(  # noqa: PLR0913  # assembled once, in server/open_broker.py
        self,
        log: StateLog[TransactionTable],
        image: Image,
        replicas: Replicas,
        groups: Groups,
        producer_ids: ProducerIds,
        clock: Clock,
        tasks: Tasks,
        limits: TransactionLimits,
        peers: Peers | None = None,
    ) -> None:
        """`peers`: the other brokers of the cluster; None for a broker without others."""
        self._log = log
        self._image = image
        self._replicas = replicas
        self._groups = groups
        self._producer_ids = producer_ids
        self._clock = clock
        self._tasks = tasks
        self._limits = limits
        self._others = None if peers is None else OtherCoordinators(log, image, replicas.broker_id, clock, peers)
        self.first_writes = FirstWrites()
        self.markers = Markers(image, replicas, groups, self.first_writes, clock, peers)
        """Ends transactions in the partitions and groups led here, also those that other brokers coordinate."""
        self._leadership = Leadership(log, replicas, tasks, self._loaded, self._resigned)
        self._ends = TransactionEnds(log, self.markers, clock, tasks)
        self._open_until_s: dict[str, float] = {}
        self._orders = {False: RequestOrder(), True: RequestOrder()}  # True: of produce requests
        self._unsearched: set[int] = set()
        """Partitions in which transactions that a crash has interrupted may be open still."""
        self._was_clean = True
        self._deadlines = Deadlines(clock, self._look_at)
        self._failures = FailureLog(logger, "the transaction %r cannot be aborted yet, retrying")

    @property
    def ended(self) -> Mapping[TransactionState, int]:
        """Transactions that ended since the start, by outcome, for metrics."""
        return self._ends.completed

    # --- start

    async def open(self) -> None:
        """Load the state of this coordinator, and complete ending transactions."""
        await self._leadership.open()

    async def _loaded(self, number: int, table: TransactionTable) -> None:
        for name, value in table:
            if value.state is TransactionState.ONGOING:
                age_ms = self._clock.now_ms() - value.began_at_ms
                self._watch(name, max(0, min(value.timeout_ms, value.timeout_ms - age_ms)))
        await self._settle(name for name, value in table if value.state.is_ending)
        if number in self._unsearched:
            self._tasks.spawn("abort of interrupted transactions", self._search_later())

    def _resigned(self, number: int, table: TransactionTable) -> None:
        """Another broker coordinates these transactions now, and completes those that were ending."""
        error = NotCoordinator(f"another broker leads {self._log.topic}-{number}")
        for name, _ in table:
            self._forget_order(name)
            self._open_until_s.pop(name, None)
            self._ends.resign(name, error)

    async def abort_interrupted(self, *, was_clean: bool) -> None:
        """Abort transactions left open by a crash, on a broker without others.

        Until that is done, as on a full disk, no client may go on with one: it may have lost records.
        """
        if self._others is not None:
            return
        self._was_clean = was_clean
        self._unsearched = set(range(self._log.partitions))
        await self._leadership.settled()
        await self._abort_interrupted()

    async def _abort_interrupted(self) -> None:
        interrupted = InterruptedTransactions(
            self._log, self._replicas, self._groups, self._producer_ids, self._clock, self._settle
        )
        await interrupted.abort(was_clean=self._was_clean)
        self._unsearched = {number for number in self._unsearched if self._log.find_table(number) is None}

    async def _search_later(self) -> None:
        """A partition could not be read at the start: abort what the crash has interrupted there."""
        while True:
            try:
                await self._abort_interrupted()
                return
            except StorageError as error:
                self._failures.failed(self._log.topic, error)
                await asyncio.sleep(_RETRY_S)

    async def _settle(self, names: Iterable[str]) -> None:
        """End these transactions. One that is blocked by a failed disk is retried, and does not block the start."""
        ends = [self._end_later(name) for name in names]
        if ends:
            await asyncio.wait(ends, timeout=_SETTLE_S)

    def close(self) -> None:
        self._deadlines.close()

    # --- producers

    async def init(self, name: str, timeout_ms: int, *, renews: ProducerIdentity | None = None) -> ProducerIdentity:
        """Give the transactional id to this producer: fence the previous one, and abort its open transaction.

        `renews`: the identity of a producer that requests a new epoch. If another one has the id by now, it is fenced.
        """
        if not 1 <= timeout_ms <= self._limits.timeout_ms_max:
            raise InvalidTransactionTimeout(
                f"the transaction timeout must be 1 to {self._limits.timeout_ms_max} ms, not {timeout_ms}"
            )
        expected = renews
        while True:
            value = self._table(name).find(name)
            if expected is not None and (renewed := check_renewal(name, value, expected)) is not None:
                await wait_safe(self._log.safe(self._number(name)))
                return renewed
            if value is not None and not value.state.is_idle:
                ended = await self._decide_end(name, value.producer, commit=False, by_broker=renews is not None)
                expected = None if expected is None else ended.successor
                continue
            fresh = await self._fresh_producer_id(name)
            if self._table(name).find(name) == value:
                break
        now_ms = self._clock.now_ms()
        entries = decide_init(name, value, fresh, timeout_ms=timeout_ms, predecessor=renews, now_ms=now_ms)
        safe = self._write(name, entries)
        self._forget_order(name)  # late requests have another epoch
        producer = self._get(name).producer
        await wait_safe(safe)
        return producer

    def check_order(self, name: str, producer: ProducerIdentity, connection: int, *, produces: bool = False) -> None:
        """Raise an error if a request of a producer that keeps its epoch is late: see request_order.py."""
        value = self._table(name).find(name)
        if value is not None and value.producer == producer:  # another producer is refused by its epoch
            self._orders[produces].check(name, connection)

    def _forget_order(self, name: str) -> None:
        for order in self._orders.values():
            order.forget(name)

    def begin(self, name: str, producer: ProducerIdentity, *, keeps_epoch: bool = False) -> Safe:
        """Begin a transaction; return when the next coordinator would know of it, too.

        Not durable yet on a broker without others: a transaction that is lost in a crash had not written anything.
        """
        value = check_producer(name, self._table(name).find(name), producer)
        entries = decide_begin(name, value, keeps_epoch=keeps_epoch, now_ms=self._clock.now_ms())
        if entries:
            self._write(name, entries)
            self._watch(name, value.timeout_ms)
        return self._log.replicated(self._number(name))

    @property
    def is_clustered(self) -> bool:
        """Whether other brokers may coordinate transactions, or lead their partitions."""
        return self._others is not None

    def must_confirm(self, partition: Partition, producer: ProducerIdentity) -> bool:
        """Whether a batch has to wait for the coordinator: the first one to this partition in a transaction."""
        if self.first_writes.is_waiting(partition.name, producer.producer_id):
            return True
        return partition.open_epoch(producer.producer_id) != producer.epoch

    async def confirm(
        self, name: str, partition: Partition, producer: ProducerIdentity, joining: Joining
    ) -> Callable[[], bool]:
        """Wait until the coordinator has committed that the partition is part of the transaction.

        Returns whether that still holds: see `FirstWrites.confirm`.
        """
        if partition.open_epoch(producer.producer_id) == producer.epoch:
            return _is_open
        ask = partial(self._join_anywhere, name, producer, joining, partitions=[partition.name])
        return await self.first_writes.confirm(
            partition.name, producer.producer_id, ask, lambda: partition.leader_epoch
        )

    def produce(
        self,
        name: str,
        partition: Partition,
        batches: Buffer,
        acks: Acks,
        joining: Joining,
        connection: int = 0,
        *,
        holds: Callable[[], bool] | None = None,
    ) -> Written:
        """Append a batch to an open transaction.

        `holds`: in a cluster, what `confirm` has returned for the first batch to a partition.
        """
        producer = producer_of(batches)
        if self._others is not None and acks is Acks.LEADER:
            acks = Acks.ALL  # nobody else waits for it before the transaction is committed
        if self._others is not None:
            if joining is Joining.ANNOUNCED:
                self._orders[True].check(name, connection)
            if partition.open_epoch(producer.producer_id) != producer.epoch and (holds is None or not holds()):
                raise CoordinatorUnavailable(
                    f"the transaction of {name!r} has ended meanwhile, or {partition.name} has a new leader",
                    hint="Retry: the coordinator is asked again.",
                )
            return partition.append_in_transaction(batches, acks)
        if joining is Joining.ANNOUNCED:
            self.check_order(name, producer, connection, produces=True)
        joined = self.join(name, producer, joining, partitions=[partition.name])
        written = partition.append_in_transaction(batches, acks)
        if joined is not None:
            written.safe = all_safe((joined, written.safe))
        return written

    async def _join_anywhere(
        self,
        name: str,
        producer: ProducerIdentity,
        joining: Joining,
        *,
        partitions: Sequence[TopicPartition] = (),
        groups: Sequence[str] = (),
    ) -> None:
        """Let the coordinator, whichever broker it is, make these part of the transaction."""
        assert self._others is not None
        here = partial(self.join_committed, name, producer, joining, partitions=partitions, groups=groups)
        request = JoinTransaction(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            joining=joining,
            partitions=[PartitionRef(*each) for each in partitions],
            groups=list(groups),
        )
        await self._others.join(request, here=here)

    async def join_committed(
        self,
        name: str,
        producer: ProducerIdentity,
        joining: Joining,
        *,
        partitions: Sequence[TopicPartition] = (),
        groups: Sequence[str] = (),
    ) -> None:
        """Like `join`; return when no failover can lose it."""
        self.join(name, producer, joining, partitions=partitions, groups=groups)
        await wait_safe(self._log.safe(self._number(name)))

    def join(
        self,
        name: str,
        producer: ProducerIdentity,
        joining: Joining,
        *,
        partitions: Sequence[TopicPartition] = (),
        groups: Sequence[str] = (),
    ) -> Safe:
        """Make partitions and groups part of the transaction before they are written to, or check that they are."""
        if joining is Joining.BEGINS:
            return self.begin_with(name, producer, partitions=partitions, groups=groups)
        value = check_ongoing(name, self._table(name).find(name), producer)
        if joining is Joining.WRITTEN:
            return self._add(name, value, partitions, groups)
        check_announced(name, value, partitions=partitions, groups=groups)
        return None

    def begin_with(
        self,
        name: str,
        producer: ProducerIdentity,
        *,
        partitions: Sequence[TopicPartition] = (),
        groups: Sequence[str] = (),
        keeps_epoch: bool = False,
    ) -> Safe:
        """Add partitions and groups to the transaction; begin it if none is open."""
        value = check_producer(name, self._table(name).find(name), producer)
        if value.state.is_idle:
            self.begin(name, producer, keeps_epoch=keeps_epoch)
        return self._add(name, check_ongoing(name, self._get(name), producer), partitions, groups)

    def _add(
        self, name: str, value: TransactionValue, partitions: Sequence[TopicPartition], groups: Sequence[str]
    ) -> Safe:
        entries = decide_add(name, value, partitions=partitions, groups=groups, now_ms=self._clock.now_ms())
        return self._write(name, entries) if entries else None

    async def commit_offsets(
        self,
        name: str,
        producer: ProducerIdentity,
        group: str,
        committer: Committer,
        offsets: OffsetsToCommit,
        joining: Joining = Joining.WRITTEN,
    ) -> tuple[dict[TopicPartition, FlyMQError], Safe]:
        """Commit offsets in the transaction; return the errors of some, and when the others are durable.

        Called on the coordinator of the group, which need not be that of the transaction.
        """
        if self._others is None:
            joined = self.join(name, producer, joining, groups=[group])
            errors, safe = self._groups.commit_in_transaction(group, committer, producer, offsets)
            return errors, all_safe((joined, safe))
        self._groups.check_coordinates(group)
        with self.first_writes.queue(group, producer.producer_id) as before:
            if before is not None:
                await before
            if not self._groups.has_pending(group, producer):
                ask = partial(self._join_anywhere, name, producer, joining, groups=[group])
                await self.first_writes.confirm(
                    group, producer.producer_id, ask, partial(self._groups.leader_epoch, group)
                )
            return self._groups.commit_in_transaction(group, committer, producer, offsets)

    def known(self) -> list[tuple[str, TransactionValue]]:
        """All transactional ids that this broker coordinates and their states, sorted by id."""
        self._log.check_loaded()
        return sorted(self._all(), key=lambda item: item[0])

    def get(self, name: str) -> TransactionValue:
        """Return the state of a transactional id."""
        value = self._table(name).find(name)
        if value is None:
            raise TransactionNotFound(f"unknown transactional id {name!r}")
        return value

    async def abort_owned(self, producer: ProducerIdentity) -> bool:
        """Abort the open transaction of this producer, whichever broker coordinates it; False if none does."""
        if self._others is not None:
            return await self._others.abort_owned(producer, here=self.abort_owned_here)
        found, looked_through = await self.abort_owned_here(producer)
        if not found and len(looked_through) < self._log.partitions:
            raise CoordinatorUnavailable(
                f"producer {producer.producer_id} may have a coordinator that still loads", hint="Retry later."
            )
        return found

    async def abort_owned_here(self, producer: ProducerIdentity) -> tuple[bool, set[int]]:
        """Like `abort_owned`, if this broker coordinates it; also returns the partitions that were looked through."""
        for name, value in self._all():
            if value.producer == producer and not value.state.is_idle:
                if value.state.is_ending:
                    raise TransactionInProgress(f"the transaction of {name!r} is being ended")
                await self.abort(name)
                return True, set()
        return False, {number for number in range(self._log.partitions) if self._log.find_table(number) is not None}

    # --- commit and abort

    async def abort(self, name: str) -> None:
        """Abort the open transaction of a transactional id as an administrator; its producer gets an error later."""
        value = self.get(name)
        if value.state is not TransactionState.ONGOING:
            raise InvalidTransactionState(f"no transaction of {name!r} is open")
        logger.warning("the transaction %r was aborted by an administrator", name)
        await self._abort_as_broker(name, value)

    async def _abort_as_broker(self, name: str, value: TransactionValue) -> None:
        """Abort a transaction without its producer, which learns of it with its next request."""
        await self._decide_end(name, value.producer, commit=False, keeps_epoch=value.keeps_epoch, by_broker=True)

    async def end(
        self, name: str, producer: ProducerIdentity, *, commit: bool, keeps_epoch: bool = False
    ) -> ProducerIdentity:
        """Commit or abort; return the identity of the producer from now on. Idempotent."""
        value = self._table(name).find(name)
        if (before := find_ended(value, producer, commit=commit)) is not None:
            return before.successor
        value = check_identity(name, value, producer)
        if value.state.is_idle and not commit and keeps_epoch:
            entries = decide_acknowledge(name, value, now_ms=self._clock.now_ms())
            await wait_safe(self._write(name, entries) if entries else None)
            return producer
        if commit and not value.state.is_ending:
            await wait_safe(self._all_written(check_ongoing(name, value, producer)))
        ended = await self._decide_end(name, producer, commit=commit, keeps_epoch=keeps_epoch)
        if ended.by_broker and not commit:  # as requested, and this producer knows now
            return await self.end(name, producer, commit=False, keeps_epoch=keeps_epoch)
        if ended.producer != producer or ended.by_broker:
            check_producer(name, self._table(name).find(name), producer)
        if (ended.state is TransactionState.COMMITTING) != commit:
            raise InvalidTransactionState(f"the transaction of {name!r} was concurrently ended with the other outcome")
        assert ended.successor is not None
        return ended.successor

    async def commit_attempts(self, attempt: Attempt, listed: Mapping[str, ProducerIdentity]) -> None:
        """Commit the listed attempts of a query's batch atomically, and abort its others; once per batch."""
        if not attempt.query or ":" in attempt.query:
            raise InvalidRequest(f"the name of a query must not be empty or contain a colon: {attempt.query!r}")
        table = self._table(attempt.query)
        if not table.is_committed(attempt):
            values = [check_ongoing(name, table.find(name), producer) for name, producer in listed.items()]
            await wait_safe(all_safe([self._all_written(value) for value in values]))
        entries = decide_commit_attempts(
            attempt,
            listed,
            last_batch=table.last_batch(attempt.query),
            known=table.attempts(attempt.query),
            now_ms=self._clock.now_ms(),
        )
        safe = self._write(attempt.query, entries) if entries else None
        ending = [
            asyncio.shield(self._end_later(name))
            for name, value in table.attempts(attempt.query)
            if value.state.is_ending
        ]
        await wait_safe(safe)
        await asyncio.gather(*ending)

    def _all_written(self, value: TransactionValue) -> Safe:
        """Return when all writes of the transaction are durable.

        In a cluster they are when they are acknowledged.
        """
        if self._others is not None:
            return None
        safe = [self._groups.safe(group) for group in value.groups]
        return all_safe([*safe, *(partition.safe() for partition in self._partitions(value))])

    async def _decide_end(
        self, name: str, producer: ProducerIdentity, *, commit: bool, keeps_epoch: bool = False, by_broker: bool = False
    ) -> TransactionValue:
        """Decide how the transaction ends, unless it was decided before; return the outcome.

        An abort is decided even if no transaction is open: see `decide_end`.
        """
        fresh = -1 if keeps_epoch else await self._fresh_producer_id(name)
        # No await from here on: nothing can come between the check and the write.
        value = check_identity(name, self._table(name).find(name), producer)
        if value.state is TransactionState.ONGOING or (value.state.is_idle and not commit):
            entries = decide_end(
                name,
                value,
                fresh,
                commit=commit,
                keeps_epoch=keeps_epoch,
                by_broker=by_broker,
                now_ms=self._clock.now_ms(),
            )
            self._write(name, entries)
        elif value.state.is_idle:
            raise InvalidTransactionState(f"the transaction of {name!r} is no longer open")
        return await asyncio.shield(self._end_later(name))

    def _end_later(self, name: str) -> asyncio.Future[TransactionValue]:
        """Complete a decided end, whether or not the client still waits for it."""
        self._open_until_s.pop(name, None)
        return self._ends.complete(name)

    # --- timeouts

    def _watch(self, name: str, timeout_ms: int) -> None:
        """Abort the transaction if it is still open after this time."""
        until_s = self._clock.monotonic_s() + timeout_ms / 1000
        self._open_until_s[name] = until_s
        self._deadlines.set(name, until_s)

    def _look_at(self, name: str) -> float | None:
        until_s = self._open_until_s.get(name)
        if until_s is None or until_s > self._clock.monotonic_s():
            return until_s
        del self._open_until_s[name]
        self._tasks.spawn(f"abort of the transaction {name}", self._time_out(name))
        return None

    async def _time_out(self, name: str) -> None:
        with suppress(NotCoordinator, NotLeader):  # another broker aborts it
            value = self._get(name)
            if value.state is TransactionState.ONGOING:
                try:
                    await self._abort_as_broker(name, value)
                except (StorageError, NotEnoughReplicas) as error:  # the disk is full, say
                    self._failures.failed(name, error)
                    self._watch(name, round(_RETRY_S * 1000))
                    return
                logger.warning("the transaction %r timed out after %d ms and was aborted", name, value.timeout_ms)

    def expire(self, now_ms: int) -> None:
        """Delete unused transactional ids and queries."""
        for number in range(self._log.partitions):
            table = self._log.find_table(number)
            entries = [] if table is None else table.decide_expire(now_ms, self._limits)
            for key, _ in entries:
                if isinstance(key, TransactionKey):
                    self._forget_order(key.transactional_id)
            if entries:
                self._log.write(number, entries)

    # --- internal

    def _all(self) -> list[tuple[str, TransactionValue]]:
        return [item for table in self._log.tables() for item in table]

    def _number(self, name: str) -> int:
        return self._log.number_of(home_of(name))

    def _table(self, name: str) -> TransactionTable:
        if self._unsearched and self._number(name) in self._unsearched:
            raise CoordinatorUnavailable("transactions that a crash has interrupted cannot be aborted yet")
        return self._log.table(home_of(name))

    def _get(self, name: str) -> TransactionValue:
        value = self._log.table(home_of(name)).find(name)
        assert value is not None, f"the transactional id {name!r} is known"
        return value

    def _partitions(self, value: TransactionValue) -> Iterator[Partition]:
        """Yield the partitions of the transaction, without deleted ones.

        A topic deleted and created again may have fewer partitions than the one that was written to.
        """
        for name in value.partitions:
            topic = self._image.find(name.topic)
            if topic is not None and name.partition < len(topic.partitions):
                yield self._replicas.get(name)

    async def _fresh_producer_id(self, name: str) -> int:
        """Allocate a producer id if this transactional id needs one; else return -1."""
        value = self._table(name).find(name)
        return await self._producer_ids.take() if value is None or is_exhausted(value) else -1

    def _write(self, name: str, entries: Sequence[Entry]) -> Safe:
        return self._log.write(self._number(name), entries)


def producer_of(batches: Buffer) -> ProducerIdentity:
    """Return the producer of a transactional batch."""
    header = parse_header(batches)
    if not header.is_transactional:
        raise InvalidRequest("the request has a transactional id, but the batch is not transactional")
    return ProducerIdentity(header.producer_id, header.producer_epoch)


def _is_open() -> bool:
    return True
