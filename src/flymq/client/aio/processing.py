"""Process records in parallel: in order where order matters, with retries, dead letters and backpressure.

    consumer → lanes (bounded) → handler, retried with backoff → dead-letter topic when it keeps failing

Records of one key, or of one partition, go through one lane and so stay in order. A full lane pauses consumption, so
memory stays bounded whatever the handler does. Offsets are committed up to the oldest record still in progress.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.leaders import ask_leader
from flymq.client.aio.producer import AsyncProducer
from flymq.client.cursor import Cursor
from flymq.client.progress import Progress
from flymq.client.records import ConsumerRecord
from flymq.client.retry import Backoff
from flymq.client.settings import ProducerConfig
from flymq.model.errors import InvalidSetting, UnreadableBatch, UnreadableRecord
from flymq.wire.native.messages.records import Consume

if TYPE_CHECKING:
    from flymq.client.aio.consumer import AsyncConsumer

Handler: TypeAlias = Callable[[ConsumerRecord], Awaitable[Any] | Any]
"""Processes one record. A coroutine function runs in the event loop, any other in a thread."""

Lane: TypeAlias = asyncio.Queue[tuple[ConsumerRecord, Progress] | None]
"""Records that are processed one after the other; None ends it."""

LANE_LENGTH = 16


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """How records are processed."""

    concurrency: int = 8
    order_by: str = "key"
    retries: int = 3
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    dead_letter_topic: str | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InvalidSetting(f"`concurrency` takes a number of at least 1, not {self.concurrency}")
        if self.order_by not in ("key", "partition", "nothing"):
            raise InvalidSetting(f"`order_by` takes 'key', 'partition' or 'nothing', not {self.order_by!r}")
        if self.retries < 0:
            raise InvalidSetting(f"`retries` takes a number of at least 0, not {self.retries}")


class ParallelWork:
    """One run of `AsyncConsumer.process`."""

    def __init__(
        self,
        consumer: AsyncConsumer,
        cluster: Cluster,
        handler: Handler,
        config: ProcessConfig,
        *,
        is_traced: bool = False,
    ) -> None:
        self._consumer = consumer
        self._cluster = cluster
        self._handler = handler
        self._is_coroutine = inspect.iscoroutinefunction(handler)
        self._try = self._call_traced if is_traced else self._call
        self._threads = ThreadPoolExecutor(config.concurrency, thread_name_prefix="flymq handler")
        self._config = config
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._progress: dict[Cursor, Progress] = {}
        self._dead_letters = AsyncProducer(cluster, ProducerConfig()) if config.dead_letter_topic else None

    async def run(self) -> None:
        """Process until the consumer is stopped, and finish what was started. Raises the error of a failed handler."""
        count = self._config.concurrency
        shared: Lane | None = asyncio.Queue(LANE_LENGTH * count) if self._config.order_by == "nothing" else None
        lanes: list[Lane] = [shared or asyncio.Queue(LANE_LENGTH) for _ in range(count)]
        try:
            async with asyncio.TaskGroup() as tasks:
                for lane in lanes:
                    tasks.create_task(self._work(lane), name="flymq lane")
                await self._feed(lanes)
                for lane in lanes:
                    await lane.put(None)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._threads.shutdown(wait=False)
            if self._dead_letters is not None:
                await self._dead_letters.close()

    async def _feed(self, lanes: list[Lane]) -> None:
        while True:
            try:
                taken = await self._consumer.take_all()
            except UnreadableRecord as error:
                if self._dead_letters is None or isinstance(error, UnreadableBatch):
                    raise  # of a whole batch nothing is known that could be a dead letter
                await self._send_to_dead_letters(error.topic, error.partition, error.offset, error)
                self._consumer.skip(error)
                continue
            if taken is None:
                return
            cursor, records = taken
            progress = self._progress_of(cursor)
            for record in records:
                progress.start(record.offset)
            for record in records:
                await self._lane_of(lanes, record).put((record, progress))

    def _progress_of(self, cursor: Cursor) -> Progress:
        progress = self._progress.get(cursor)
        if progress is None or not progress.is_current:
            progress = self._progress[cursor] = Progress(cursor)
        return progress

    def _lane_of(self, lanes: list[Lane], record: ConsumerRecord) -> Lane:
        if self._config.order_by == "key" and isinstance(record.key, Hashable) and record.key is not None:
            return lanes[hash((record.topic, record.key)) % len(lanes)]
        return lanes[hash((record.topic, record.partition)) % len(lanes)]

    async def _work(self, lane: Lane) -> None:
        while (item := await lane.get()) is not None:
            record, progress = item
            if progress.is_current:  # else the partition was revoked, or the consumer has sought elsewhere
                await self._handle(record)
                progress.finish(record.offset)

    async def _handle(self, record: ConsumerRecord) -> None:
        attempt = 0
        while True:
            try:
                await self._try(record)
                return
            except Exception as error:  # anything the user's handler raises
                attempt += 1
                if attempt > self._config.retries:
                    if self._dead_letters is None:
                        raise
                    await self._send_to_dead_letters(record.topic, record.partition, record.offset, error)
                    return
            self._cluster.counters.retries += 1
            await asyncio.sleep(self._backoff.delay_s(attempt, self._cluster.entropy))

    async def _call(self, record: ConsumerRecord) -> None:
        if self._is_coroutine:
            await self._handler(record)
        else:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, record)

    async def _call_traced(self, record: ConsumerRecord) -> None:
        with self._consumer.span(record):
            if self._is_coroutine:
                await self._handler(record)
            else:  # a thread does not inherit the context
                run = copy_context().run
                await asyncio.get_running_loop().run_in_executor(self._threads, run, self._handler, record)

    async def _send_to_dead_letters(self, topic: str, partition: int, offset: int, reason: Exception) -> None:
        """Copy the record, byte for byte as in the log, to the dead-letter topic, with its origin in headers."""
        assert self._dead_letters is not None
        assert self._config.dead_letter_topic is not None
        request = Consume(topic=topic, partition=partition, offset=offset)
        original = await ask_leader(self._cluster, request)
        origin = {
            "flymq-origin-topic": topic,
            "flymq-origin-partition": str(partition),
            "flymq-origin-offset": str(offset),
            "flymq-error": f"{type(reason).__name__}: {reason}",
        }
        kept = [(name, None if value is None else bytes(value)) for name, value in original.headers]
        await self._dead_letters.produce(
            self._config.dead_letter_topic,
            None if original.value is None else bytes(original.value),
            None if original.key is None else bytes(original.key),
            headers=[*kept, *origin.items()],
            timestamp=original.timestamp,
        )
