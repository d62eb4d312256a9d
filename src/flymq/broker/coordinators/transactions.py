"""The transaction coordinator, on the partitions of `__transactions`: the writes of a transaction take effect in all of
its partitions and groups, or in none.

How a transaction ends; each step is durable before the next one:

1. its records and offsets, in all of its partitions and groups;
2. COMMITTING or ABORTING in `__transactions`: from here on the outcome is final;
3. a marker in every partition, the offsets of every group;
4. COMMITTED or ABORTED. If that is lost in a crash, step 3 is repeated where it is missing.

A partition or group is added in `__transactions` before the first batch or offset is written to its own log. After a
power failure the batch may be there without the entry. Then the batch was never acknowledged, and `open`, which looks
for such batches and offsets, aborts them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from flymq.broker.coordinators.deadlines import Deadlines
from flymq.broker.coordinators.groups import Committer, Groups, OffsetsToCommit
from flymq.broker.coordinators.producer_ids import ProducerIds
from flymq.broker.coordinators.state_log import Leadership, StateLog
from flymq.broker.replicas.partition import Partition, Written
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.safety import Safe, all_safe, wait_safe
from flymq.cluster.image import Image
from flymq.coordination.attempts import Attempt, decide_commit_attempts, decide_delete, home_of
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
    decide_abort_left_open,
    decide_acknowledge,
    decide_add,
    decide_begin,
    decide_complete,
    decide_end,
    decide_init,
    decide_replace,
    find_ended,
    is_exhausted,
    marker_epoch,
    needs_marker,
)
from flymq.host.clock import Clock
from flymq.host.failure_log import FailureLog
from flymq.host.tasks import Tasks
from flymq.model.delivery import Acks
from flymq.model.errors import (
    FlyMQError,
    FsyncFailed,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NotCoordinator,
    NotLeader,
    StorageError,
    TransactionNotFound,
)
from flymq.model.names import TopicPartition
from flymq.record.control import Marker, MarkerType
from flymq.record.header import Buffer, parse_header

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
_SETTLE_S = 5.0


class Transactions:
    """The transactions that this broker coordinates."""

    def __init__(
        self,
        log: StateLog[TransactionTable],
        image: Image,
        replicas: Replicas,
        groups: Groups,
        producer_ids: ProducerIds,
        clock: Clock,
        tasks: Tasks,
        limits: TransactionLimits,
    ) -> None:
        self._log = log
        self._image = image
        self._replicas = replicas
        self._groups = groups
        self._producer_ids = producer_ids
        self._clock = clock
        self._tasks = tasks
        self._limits = limits
        self._leadership = Leadership(log, replicas, tasks, self._loaded, self._resigned)
        self._ending: dict[str, asyncio.Future[TransactionValue]] = {}
        self._open_until_s: dict[str, float] = {}
        self.ended: Counter[TransactionState] = Counter()
        """Transactions that ended since the start, by outcome, for metrics."""
        self._orders = {False: RequestOrder(), True: RequestOrder()}  # True: of produce requests
        self._deadlines = Deadlines(clock, self._look_at)
        self._failures = FailureLog(logger, "the transaction %r cannot end yet, retrying")

    # --- start

    async def open(self) -> None:
        """Load the state of this coordinator, and complete ending transactions."""
        await self._leadership.open()

    async def _loaded(self, _number: int, table: TransactionTable) -> None:
        for name, value in table:
            if value.state is TransactionState.ONGOING:
                age_ms = self._clock.now_ms() - value.began_at_ms
                self._watch(name, max(0, min(value.timeout_ms, value.timeout_ms - age_ms)))
        await self._settle(name for name, value in table if value.state.is_ending)

    def _resigned(self, number: int, table: TransactionTable) -> None:
        """Another broker coordinates these transactions now, and completes those that were ending."""
        error = NotCoordinator(f"another broker leads {self._log.topic}-{number}")
        for name, _ in table:
            self._forget_order(name)
            self._open_until_s.pop(name, None)
            if (ended := self._ending.pop(name, None)) is not None:
                _fail(ended, error)

    async def abort_interrupted(self, *, was_clean: bool) -> None:
        """Abort transactions left open by a crash. Only if no other broker can coordinate one that is unknown here."""
        await self._leadership.settled()
        if not self._log.serves_all:
            return
        partitions, groups = self._find_open_partitions(was_clean), self._find_open_groups(was_clean)
        for name, value in self._all():
            is_left_open = name in partitions or name in groups
            if is_left_open or (value.state is TransactionState.ONGOING and not was_clean):
                fresh = await self._fresh_producer_id(name)
                entries = decide_abort_left_open(
                    name,
                    value,
                    fresh,
                    partitions=partitions.get(name, []),
                    groups=groups.get(name, []),
                    now_ms=self._clock.now_ms(),
                )
                self._write(name, entries)
        await self._settle(name for name, value in self._all() if value.state.is_ending)
        await self._replace_overtaken()

    async def _replace_overtaken(self) -> None:
        """Replace producer ids of which partitions know later epochs: entries were lost, as from a salvaged log."""
        owners = {value.producer.producer_id: (name, value) for name, value in self._all() if value.state.is_idle}
        overtaken: dict[str, TransactionValue] = {}
        for partition in self._replicas:
            for producer in partition.log.producers.all():
                name, value = owners.get(producer.producer_id, ("", None))
                if value is not None and producer.epoch > value.producer.epoch:
                    overtaken[name] = value
        for name, value in overtaken.items():
            logger.warning("%r has lost entries in %s: its producer gets a new id", name, self._log.topic)
            fresh = await self._producer_ids.take()
            if self._table(name).find(name) == value:
                self._write(name, decide_replace(name, value, fresh, now_ms=self._clock.now_ms()))

    async def _settle(self, names: Iterable[str]) -> None:
        """End these transactions. One that is blocked by a failed disk is retried, and does not block the start."""
        ends = [self._end_later(name) for name in names]
        if ends:
            await asyncio.wait(ends, timeout=_SETTLE_S)

    def _find_open_partitions(self, was_clean: bool) -> dict[str, list[TopicPartition]]:
        """Return partitions with transactions left open; abort those of unknown producers."""
        owners = {value.producer: (name, value) for name, value in self._all()}
        found: dict[str, list[TopicPartition]] = {}
        for partition in self._replicas:
            if not partition.leads:
                continue
            for producer in partition.log.producers.all():
                if producer.open_since is None or partition.log.failure is not None:
                    continue
                identity = ProducerIdentity(producer.producer_id, producer.epoch)
                if identity not in owners:
                    partition.append_marker(self._marker(MarkerType.ABORT, identity, coordinator_epoch=0))
                    continue
                name, value = owners[identity]
                if not value.state.is_ending and not (was_clean and partition.name in value.partitions):
                    found.setdefault(name, []).append(partition.name)
        return found

    def _find_open_groups(self, was_clean: bool) -> dict[str, list[str]]:
        """Return groups with pending offsets of transactions left open; drop those of unknown producers."""
        owners = {value.producer: (name, value) for name, value in self._all()}
        found: dict[str, list[str]] = {}
        for group in self._groups.list():
            for identity in group.offsets.waiting_for():
                if identity not in owners:
                    self._groups.end_transaction(group.name, identity, committed=False)
                    continue
                name, value = owners[identity]
                if not value.state.is_ending and not (was_clean and group.name in value.groups):
                    found.setdefault(name, []).append(group.name)
        return found

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

    def begin(self, name: str, producer: ProducerIdentity, *, keeps_epoch: bool = False) -> None:
        """Begin a transaction. Not durable yet: one that is lost in a crash had not written anything."""
        value = check_producer(name, self._table(name).find(name), producer)
        entries = decide_begin(name, value, keeps_epoch=keeps_epoch, now_ms=self._clock.now_ms())
        if entries:
            self._write(name, entries)
            self._watch(name, value.timeout_ms)

    def produce(
        self, name: str, partition: Partition, batches: Buffer, acks: Acks, joining: Joining, connection: int = 0
    ) -> Written:
        """Append a batch to an open transaction."""
        header = parse_header(batches)
        if not header.is_transactional:
            raise InvalidRequest("the request has a transactional id, but the batch is not transactional")
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        if joining is Joining.ANNOUNCED:
            self.check_order(name, producer, connection, produces=True)
        joined = self.join(name, producer, joining, partitions=[partition.name])
        written = partition.append_in_transaction(batches, acks)
        if joined is not None:
            written.safe = all_safe((joined, written.safe))
        return written

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

    def commit_offsets(
        self,
        name: str,
        producer: ProducerIdentity,
        group: str,
        committer: Committer,
        offsets: OffsetsToCommit,
        joining: Joining = Joining.WRITTEN,
    ) -> tuple[dict[TopicPartition, FlyMQError], Safe]:
        """Commit offsets in the transaction; return the errors of some, and when the others are durable."""
        joined = self.join(name, producer, joining, groups=[group])
        errors, safe = self._groups.commit_in_transaction(group, committer, producer, offsets)
        return errors, all_safe((joined, safe))

    def known(self) -> list[tuple[str, TransactionValue]]:
        """All transactional ids and their states, sorted by id."""
        return sorted(self._all(), key=lambda item: item[0])

    def get(self, name: str) -> TransactionValue:
        """Return the state of a transactional id."""
        value = self._table(name).find(name)
        if value is None:
            raise TransactionNotFound(f"unknown transactional id {name!r}")
        return value

    @property
    def knows_all(self) -> bool:
        """Whether a transaction that is unknown here is unknown everywhere."""
        return self._log.serves_all

    def find_owner(self, producer: ProducerIdentity) -> tuple[str, TransactionValue] | None:
        """Return the transactional id whose open or ending transaction is this producer's, and its state."""
        for name, value in self._all():
            if value.producer == producer and not value.state.is_idle:
                return name, value
        return None

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
        """Return when all writes of the transaction are durable."""
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
        ended = self._ending.get(name)
        if ended is None:
            ended = self._ending[name] = asyncio.get_running_loop().create_future()
            self._open_until_s.pop(name, None)
            self._tasks.spawn(f"end of the transaction {name}", self._run_end(name, ended))
        return ended

    async def _run_end(self, name: str, ended: asyncio.Future[TransactionValue]) -> None:
        """Complete the end. If this broker resigns meanwhile, `ended` fails, and another broker completes it."""
        if ended.done():
            return
        value = self._get(name)
        try:
            await self._until_written(name, value, ended)
            if ended.done():
                return
        except (NotCoordinator, NotLeader) as error:  # another broker completes it
            _fail(ended, error)
            return
        except FlyMQError as error:
            _fail(ended, error)
            raise
        except BaseException:
            ended.cancel()
            raise
        finally:
            if self._ending.get(name) is ended:
                del self._ending[name]
        self.ended[value.state] += 1
        if not ended.done():
            ended.set_result(value)

    async def _until_written(self, name: str, value: TransactionValue, ended: asyncio.Future[TransactionValue]) -> None:
        """Write all parts of the end, and retry until they are durable: a full disk has room again some time."""
        number = self._number(name)
        while not ended.done():
            try:
                await wait_safe(self._log.safe(number))
                await wait_safe(self._append_markers(value, self._log.leader_epoch(number)))
                if not ended.done():
                    await self._write_completion(name, value)
                self._failures.succeeded(name)
                return
            except FsyncFailed:
                raise
            except (StorageError, NotLeader) as error:
                self._failures.failed(name, error)
                await asyncio.sleep(_RETRY_S)

    async def _write_completion(self, name: str, value: TransactionValue) -> None:
        last_batch = self._table(name).last_batch(home_of(name))
        entries = decide_delete(name, value, last_batch=last_batch)
        entries = entries or decide_complete(name, value, now_ms=self._clock.now_ms())
        safe = self._write(name, entries)
        if value.successor == value.producer:  # only this entry separates its next transaction from this one
            await wait_safe(safe)

    def _append_markers(self, value: TransactionValue, coordinator_epoch: int) -> Safe:
        committed = value.state is TransactionState.COMMITTING
        kind = MarkerType.COMMIT if committed else MarkerType.ABORT
        identity = ProducerIdentity(value.producer.producer_id, marker_epoch(value))
        marker = self._marker(kind, identity, coordinator_epoch)
        safe: list[Safe] = []
        for partition in self._partitions(value):
            if needs_marker(value, open_epoch=partition.open_epoch(value.producer.producer_id)):
                partition.append_marker(marker)
            safe.append(partition.safe())
        for group in value.groups:
            self._groups.end_transaction(group, value.producer, committed=committed)
            safe.append(self._groups.safe(group))
        return all_safe(safe)

    def _marker(self, kind: MarkerType, producer: ProducerIdentity, coordinator_epoch: int) -> Marker:
        return Marker(kind, producer.producer_id, producer.epoch, coordinator_epoch, self._clock.now_ms())

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
                except StorageError as error:  # the disk is full, say
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
        return self._log.table(home_of(name))

    def _get(self, name: str) -> TransactionValue:
        value = self._table(name).find(name)
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


def _fail(ended: asyncio.Future[TransactionValue], error: FlyMQError) -> None:
    if not ended.done():
        ended.set_exception(error)
        ended.exception()  # mark the exception as retrieved: nobody may be waiting
