"""The consumer for asyncio, standalone or as a member of a consumer group."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.fetcher import START_POSITIONS, Fetcher
from flymq.client.aio.membership import Assignor, Membership, Partitions
from flymq.client.aio.offsets import list_offsets
from flymq.client.aio.processing import Handler, ParallelWork, ProcessConfig
from flymq.client.cursor import Cursor, PolledRecords
from flymq.client.decoding import Decoder
from flymq.client.encryption import Cipher
from flymq.client.offset_stores import OffsetStore
from flymq.client.records import ConsumerRecord
from flymq.client.settings import ConsumerConfig
from flymq.host.tasks import Tasks
from flymq.model.errors import (
    ClientClosed,
    FlyMQError,
    InvalidSetting,
    OffsetOutOfRange,
    PartitionNotFound,
    RebalanceInProgress,
    UnreadableBatch,
    UnreadableRecord,
)
from flymq.model.names import TopicPartition
from flymq.wire.native.messages.records import AT_EARLIEST, AT_LATEST

if TYPE_CHECKING:
    from flymq.client.tracing import Tracing

logger = logging.getLogger(__name__)


class RebalanceListener(Protocol):
    """Called when partitions are assigned or revoked. Either method may be a coroutine; the rebalance waits for it."""

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None: ...

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None: ...


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Group membership of a consumer; without a name it is standalone."""

    name: str = ""
    listener: RebalanceListener | None = None
    assignors: Sequence[Assignor] = ()
    offset_store: OffsetStore | None = None


class AsyncConsumer:
    """Reads topics. Iterate it record by record, or take lists with `poll` and `batches`.

    Without a group it reads all partitions of its topics, or those given, from the position of the `start` setting. In
    a group it reads its assignment, from the committed offsets on.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        config: ConsumerConfig,
        cipher: Cipher | None = None,
        tracing: Tracing | None = None,
        *,
        partitions: Iterable[int] | None = None,
        group: GroupOptions = GroupOptions(),  # noqa: B008  # frozen
    ) -> None:
        if not topics:
            raise InvalidSetting("a consumer needs at least one topic")
        if group.name and partitions is not None:
            raise InvalidSetting("a group member gets its partitions by assignment: leave out `partitions`")
        self._cluster = cluster
        self._config = config
        self._topics = list(dict.fromkeys(topics))
        self._partitions = None if partitions is None else sorted(set(partitions))
        self._listener = group.listener
        self._offset_store = group.offset_store
        self._group_name = group.name
        self._tracing = tracing
        self._decoder = Decoder(cipher, config.key_deserializer, config.value_deserializer)
        self._fetcher = Fetcher(cluster, config)
        self._tasks = Tasks(self._task_failed)
        self._started: asyncio.Task[None] | None = None
        self.is_stopping = False
        self.is_closed = False
        self._failure: Exception | None = None  # the error that ended the membership
        self._taken: list[PolledRecords] = []  # records returned by the last poll
        self._saved: dict[TopicPartition, int] = {}  # offsets as last committed
        self._begun_at: dict[TopicPartition, int] = {}  # first offsets of records that no transaction has committed yet
        self._has_lost_records = False  # some of those were returned, and their partition is another member's now
        self.polled: PolledRecords | None = None
        self._membership: Membership | None = None
        if group.name:
            self._membership = Membership(
                cluster,
                group.name,
                self._topics,
                config,
                assignors=group.assignors,
                on_assigned=self._assigned,
                on_revoked=self._revoked,
            )

    # --- reading ----------------------------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Yield records until `stop`. Iteration can be interrupted and resumed: nothing is lost or repeated."""
        while (polled := self.polled or await self.next_polled()) is not None:
            for record in polled:
                yield record
                if self.is_stopping:
                    return
            self.polled = None

    async def batches(self) -> AsyncIterator[list[ConsumerRecord]]:
        """Yield lists of records, each of one partition, as they were fetched: the fastest way to consume."""
        while (records := await self.next_batch()) is not None:
            yield records
            if self.is_stopping:
                return

    async def next_batch(self) -> list[ConsumerRecord] | None:
        """Wait for records of any partition and return those fetched together; None after `stop`."""
        records: list[ConsumerRecord] = []
        while not records:
            polled = self.polled or await self.next_polled()
            if polled is None:
                return None
            self.polled = None
            self._release()
            self._taken = [polled]
            records = polled.take(len(polled))
        return records

    async def poll(self, timeout_ms: float = 1000, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return available records, at most `max_records`; wait up to `timeout_ms` for the first."""
        limit = max_records or self._config.poll_records_max
        records: list[ConsumerRecord] = []
        self._release()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                while not records and (polled := self.polled or await self.next_polled()) is not None:
                    records = self._fill(polled, limit)
        return records

    async def process(
        self,
        handler: Handler,
        *,
        concurrency: int = 8,
        order_by: str = "key",
        retries: int = 3,
        retry_backoff_ms: int = 100,
        dead_letter_topic: str | None = None,
    ) -> None:
        """Process records in parallel until `stop`.

        Records of one key, or one partition (`order_by`), are processed in order. A handler that fails is retried up to
        `retries` times; then the record goes to the dead-letter topic, or, without one, the error is raised.
        """
        config = ProcessConfig(
            concurrency=concurrency,
            order_by=order_by,
            retries=retries,
            retry_backoff_ms=retry_backoff_ms,
            dead_letter_topic=dead_letter_topic,
        )
        await ParallelWork(self, self._cluster, handler, config, is_traced=self._tracing is not None).run()

    def span(self, record: ConsumerRecord) -> AbstractContextManager[None]:
        """Trace the block as processing of the record, if tracing is on; `process` does so by itself."""
        return contextlib.nullcontext() if self._tracing is None else self._tracing.process(record, self._group_name)

    async def take_all(self) -> tuple[Cursor, list[ConsumerRecord]] | None:
        """Wait for records of one partition and return all that were fetched, for callers that track progress."""
        polled = self.polled or await self.next_polled()
        self.polled = None
        return None if polled is None else (polled.cursor, polled.take(len(polled)))

    def skip(self, error: UnreadableRecord) -> None:
        """Skip a record, or a batch of them, that could not be read."""
        next_offset = error.next_offset if isinstance(error, UnreadableBatch) else error.offset + 1
        cursor = self._cursor(error.topic, error.partition)
        if cursor.runs and cursor.runs[0].start_offset == error.offset:
            cursor.runs[0] = cursor.runs[0]._replace(start_offset=next_offset)
            cursor.position = next_offset

    def _fill(self, polled: PolledRecords | None, limit: int) -> list[ConsumerRecord]:
        """Take up to `limit` records from what is already fetched."""
        records: list[ConsumerRecord] = []
        while polled is not None and len(records) < limit:
            taken = polled.take(limit - len(records))
            if taken:
                self._taken.append(polled)
                records += taken
            self.polled = polled if len(polled) else None
            polled = self.polled
            if polled is None and len(records) < limit:
                try:
                    polled = self._open_next()
                except FlyMQError:
                    if not records:
                        raise
                    break  # the records come first; the next poll meets the error again
        return records

    def _release(self) -> None:
        """Mark what was polled as processed: the user polls again, commits or closes."""
        for polled in self._taken:
            polled.release()
        self._taken = []
        if self.polled is not None:
            self.polled.release()

    async def next_polled(self) -> PolledRecords | None:
        """Wait for records of any partition; None after `stop`."""
        await self.start()
        self._release()
        while not self.is_stopping:
            if self._failure is not None:
                raise self._failure
            self.polled = self._open_next()
            if self.polled is not None:
                return self.polled
            await self._fetcher.wait()
        return None

    def _open_next(self) -> PolledRecords | None:
        """Decode the next fetched run, if there is one."""
        while (taken := self._fetcher.take()) is not None:
            cursor, run = taken
            try:
                records, rest = self._decoder.decode(cursor.topic, cursor.partition, run)
            except UnreadableRecord as error:
                cursor.position = error.offset
                self._fetcher.put_back(cursor, run._replace(start_offset=error.offset))
                if not isinstance(error, UnreadableBatch) or self._config.on_corrupt_batch == "raise":
                    raise
                self._skip_batch(error)
                continue
            if rest is not None:
                self._fetcher.put_back(cursor, rest)
            next_offset = run.next_offset if rest is None else rest.start_offset
            if records:
                self._cluster.counters.records_received += len(records)
                return PolledRecords(cursor, records, next_offset)
            cursor.position = next_offset
        return None

    def _skip_batch(self, error: UnreadableBatch) -> None:
        logger.warning("%s; %d offsets skipped", error.message, error.next_offset - error.offset)
        self._cluster.counters.batches_skipped += 1
        self.skip(error)

    # --- position ---------------------------------------------------------------------------------------------------

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions assigned to this consumer."""
        return sorted(self._fetcher.cursors)

    def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record to be returned."""
        return self._cursor(topic, partition).position

    def lag(self) -> dict[TopicPartition, int]:
        """Return the lag of each partition in records, as of its last fetch."""
        return {
            name: max(cursor.high_watermark - cursor.position, 0)
            for name, cursor in self._fetcher.cursors.items()
            if cursor.high_watermark >= 0
        }

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue with the record at `offset`."""
        await self.start()
        if offset < 0:
            raise OffsetOutOfRange(f"an offset is at least 0, not {offset}")
        self._seek(self._cursor(topic, partition).name, int(offset))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the first record of these partitions, or of all."""
        await self._seek_all(partitions or await self._started_assignment(), AT_EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of these partitions, or of all: only new records are read."""
        await self._seek_all(partitions or await self._started_assignment(), AT_LATEST)

    async def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Seek to the first record at or after a timestamp; to the end where there is none."""
        await self._seek_all(partitions or await self._started_assignment(), timestamp_ms)

    async def seek_to_committed(self) -> None:
        """Seek back to the committed offsets of the group, for example after an aborted transaction."""
        names = self.assignment()
        committed = await self._load(names)
        for name, offset in committed.items():
            self._seek(name, offset)
        others = [name for name in names if name not in committed and name in self._fetcher.cursors]
        await self._seek_all(others, START_POSITIONS.get(self._config.start, AT_EARLIEST))
        self._has_lost_records = False

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions, or of any, until `resume`."""
        for cursor in self._chosen(partitions):
            cursor.is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for cursor in self._chosen(partitions):
            self._fetcher.resume(cursor)

    def paused(self) -> list[TopicPartition]:
        return sorted(name for name, cursor in self._fetcher.cursors.items() if cursor.is_paused)

    async def _started_assignment(self) -> list[TopicPartition]:
        await self.start()
        return self.assignment()

    async def _seek_all(self, partitions: Sequence[TopicPartition], at: int) -> None:
        for name in partitions:
            self._cursor(*name)  # or say that it is not read here
        found = await list_offsets(self._cluster, dict.fromkeys(partitions, at), self._config.isolation)
        missing = {name: AT_LATEST for name in partitions if found[name].offset < 0}
        if missing:
            found |= await list_offsets(self._cluster, missing, self._config.isolation)
        for name in partitions:
            self._seek(name, found[name].offset)

    def _seek(self, name: TopicPartition, offset: int) -> None:
        """Continue at `offset`, unless the partition was assigned to another member meanwhile."""
        if (cursor := self._fetcher.cursors.get(name)) is not None:
            self._begun_at[name] = offset
            self._fetcher.seek(cursor, offset)

    def _chosen(self, partitions: Sequence[TopicPartition]) -> list[Cursor]:
        return [self._cursor(*name) for name in partitions] if partitions else list(self._fetcher.cursors.values())

    def _cursor(self, topic: str, partition: int) -> Cursor:
        cursor = self._fetcher.cursors.get(TopicPartition(topic, partition))
        if cursor is None:
            raise PartitionNotFound(f"this consumer does not read {topic}-{partition}")
        return cursor

    # --- commits ----------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit offsets: of all records returned so far, or the given ones, each the next offset to read."""
        if offsets is None:
            self._release()
            offsets = self._done()
        await self._commit(offsets)

    def consumed(self) -> tuple[Membership, dict[TopicPartition, int]]:
        """Return this member and the offsets to commit for all records returned so far, for a transaction.

        Raises RebalanceInProgress when a partition was revoked after records of it were returned: its new owner reads
        them again, so a transaction with results from them must be aborted.
        """
        self._release()
        if self._has_lost_records:
            raise RebalanceInProgress("a partition whose records are in this transaction belongs to another member now")
        offsets = self._done()
        self._begun_at |= offsets
        return self._member(), offsets

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; partitions without one are left out."""
        return await self._load(list(partitions) or self.assignment())

    async def _commit(self, offsets: Mapping[TopicPartition, int], *, is_closing: bool = False) -> None:
        changed = {name: offset for name, offset in offsets.items() if self._saved.get(name) != offset}
        if changed:
            member = self._member()
            if self._offset_store is None:
                await member.commit(changed, is_closing=is_closing)
            else:
                await asyncio.to_thread(self._offset_store.save, member.group, changed)
            self._saved |= changed

    async def _load(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        member = self._member()
        if self._offset_store is None:
            return await member.committed(partitions)
        return dict(await asyncio.to_thread(self._offset_store.load, member.group, partitions))

    def _done(self) -> dict[TopicPartition, int]:
        """Return the offset to commit of each partition: no record in progress is skipped."""
        return {name: cursor.committable for name, cursor in self._fetcher.cursors.items()}

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            with contextlib.suppress(FlyMQError):  # retried in the next round, or by the rebalance
                await self._commit(self._done())

    def _member(self) -> Membership:
        if self._membership is None:
            raise InvalidSetting(
                "this consumer has no group to commit offsets for", hint="Create it with group='name'."
            )
        return self._membership

    # --- lifecycle --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start prefetching. Polling starts it too; call this to have the partitions assigned before."""
        if self.is_closed:
            raise ClientClosed("the consumer has been closed")
        if self._started is None or (self._started.done() and self._started.exception() is not None):
            self._started = self._tasks.spawn("start", self._begin())
        await asyncio.shield(self._started)  # a poll that times out must not cancel it

    async def _begin(self) -> None:
        if self._membership is not None:
            self._tasks.spawn("group membership", self._run_membership(self._membership))
            if self._config.auto_commit:
                self._tasks.spawn("auto commit", self._commit_regularly())
            return
        await self._add_partitions(await self._all_partitions(), START_POSITIONS.get(self._config.start))
        if self._partitions is None:
            self._tasks.spawn("watch for partitions", self._watch_partitions())

    def stop(self) -> None:
        """End iterations and polls after the current record, so that the consumer can be closed cleanly."""
        self.is_stopping = True
        self._fetcher.wake()

    async def close(self) -> None:
        """Commit the records returned so far, if auto-commit is on; leave the group; stop."""
        self._release()
        await self._close()

    async def _close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.stop()
        await self._tasks.close()  # first, or the heartbeat task would notice that the member has left, and rejoin
        try:
            if self._membership is not None and self._membership.member:
                with contextlib.suppress(
                    FlyMQError
                ):  # a member that was removed already has nothing to commit or leave
                    if self._config.auto_commit:
                        await self._commit(self._done(), is_closing=True)
                    await self._membership.leave()
        finally:
            await self._fetcher.close()

    async def __aenter__(self) -> AsyncConsumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:  # the records in progress when it failed are not processed: do not commit them
            await self._close()

    async def _all_partitions(self) -> list[TopicPartition]:
        names: list[TopicPartition] = []
        for topic in self._topics:
            metadata = await self._cluster.retry(partial(self._cluster.topic_or_new, topic))
            count = len(metadata.partitions)
            wanted = range(count) if self._partitions is None else self._partitions
            for partition in wanted:
                if partition >= count:
                    raise PartitionNotFound(f"topic {topic!r} has no partition {partition}")
                names.append(TopicPartition(topic, partition))
        return names

    async def _add_partitions(self, names: Sequence[TopicPartition], at: int | None) -> None:
        if not names:
            return
        if at is None:
            self._fetcher.add(Cursor(topic, partition, 0) for topic, partition in names)
            return
        found = await list_offsets(self._cluster, dict.fromkeys(names, at), self._config.isolation)
        self._fetcher.add(Cursor(name.topic, name.partition, found[name].offset) for name in names)

    async def _watch_partitions(self) -> None:
        """Pick up partitions added to a topic, from their first record on."""
        while True:
            await asyncio.sleep(self._cluster.config.metadata_max_age_ms / 1000)
            with contextlib.suppress(FlyMQError):  # retried in the next round
                for topic in self._topics:
                    await self._cluster.refresh(topic)
                new = [name for name in await self._all_partitions() if name not in self._fetcher.cursors]
                await self._add_partitions(new, AT_EARLIEST)

    # --- group membership -------------------------------------------------------------------------------------------

    async def _run_membership(self, membership: Membership) -> None:
        try:
            await membership.run()
        except Exception as error:  # a listener's too: raised by the next poll
            self._failure = error
            self._fetcher.wake()

    async def _assigned(self, partitions: Partitions) -> None:
        names = sorted(partitions)
        committed = await self._load(names)
        self._saved |= committed
        self._fetcher.add(Cursor(name.topic, name.partition, offset) for name, offset in committed.items())
        await self._add_partitions(
            [name for name in names if name not in committed], START_POSITIONS.get(self._config.start)
        )
        self._begun_at |= {name: self._fetcher.cursors[name].position for name in names}
        if self._listener is not None:
            await _call(self._listener.on_assigned, names)

    async def _revoked(self, partitions: Partitions) -> None:
        # First of all and without a wait: a transaction must not commit in the new generation what it read in the old.
        for name in partitions & self._fetcher.cursors.keys():
            position = self._fetcher.cursors[name].position
            self._has_lost_records |= position != self._begun_at.pop(name, position)
        if self._config.auto_commit:
            with contextlib.suppress(FlyMQError):  # rejected when the partitions already belong to another member
                await self._commit(self._done())
        if self._listener is not None:
            await _call(self._listener.on_revoked, sorted(partitions))
        self._fetcher.remove(partitions)
        for name in partitions:
            self._saved.pop(name, None)

    def _task_failed(self, name: str, error: BaseException) -> None:
        if name == "start":
            return  # raised by start()
        context: dict[str, Any] = {"message": f"FlyMQ consumer: {name} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


async def _call(function: Callable[..., Awaitable[None] | None], partitions: Sequence[TopicPartition]) -> None:
    result = function(partitions)
    if inspect.isawaitable(result):
        await result
