"""The consumer for blocking code. Fetching, heartbeats and auto-commits run in the background."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from types import TracebackType

from flymq.client.aio.consumer import AsyncConsumer
from flymq.client.aio.processing import Handler
from flymq.client.records import ConsumerRecord
from flymq.client.sync.loop import LoopThread
from flymq.model.errors import UnreadableRecord
from flymq.model.names import TopicPartition


class Consumer:
    """Reads topics. Iterate it record by record, or take lists with `poll` and `batches`. For one thread at a time."""

    def __init__(self, loop: LoopThread, consumer: AsyncConsumer) -> None:
        self._loop = loop
        self.asynchronous = consumer

    # --- reading ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records until `stop`. Iteration can be interrupted and resumed: nothing is lost or repeated."""
        consumer = self.asynchronous
        while (polled := consumer.polled or self._loop.run(consumer.next_polled())) is not None:
            for record in polled:
                yield record
                if consumer.is_stopping:
                    return
            consumer.polled = None

    def batches(self) -> Iterator[list[ConsumerRecord]]:
        """Yield lists of records, each of one partition, as they were fetched: the fastest way to consume."""
        while (records := self._loop.run(self.asynchronous.next_batch())) is not None:
            yield records
            if self.asynchronous.is_stopping:
                return

    def poll(self, timeout_ms: float = 1000, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return available records, at most `max_records`; wait up to `timeout_ms` for the first."""
        return self._loop.run(self.asynchronous.poll(timeout_ms, max_records))

    def process(
        self,
        handler: Handler,
        *,
        concurrency: int = 8,
        order_by: str = "key",
        retries: int = 3,
        retry_backoff_ms: int = 100,
        dead_letter_topic: str | None = None,
    ) -> None:
        """Process records in parallel, in threads, until `stop` is called from another thread or a handler.

        Records of one key, or one partition (`order_by`), are processed in order. A handler that fails is retried up to
        `retries` times; then the record goes to the dead-letter topic, or, without one, the error is raised.
        """
        self._loop.run(
            self.asynchronous.process(
                handler,
                concurrency=concurrency,
                order_by=order_by,
                retries=retries,
                retry_backoff_ms=retry_backoff_ms,
                dead_letter_topic=dead_letter_topic,
            )
        )

    def span(self, record: ConsumerRecord) -> AbstractContextManager[None]:
        """Trace the block as processing of the record, if tracing is on; `process` does so by itself."""
        return self.asynchronous.span(record)

    def skip(self, error: UnreadableRecord) -> None:
        """Skip a record that could not be read."""
        self._loop.call(lambda: self.asynchronous.skip(error))

    # --- position ---------------------------------------------------------------------------------------------------

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions assigned to this consumer."""
        return self._loop.call(self.asynchronous.assignment)

    def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record to be returned."""
        return self.asynchronous.position(topic, partition)

    def lag(self) -> dict[TopicPartition, int]:
        """Return the lag of each partition in records, as of its last fetch."""
        return self._loop.call(self.asynchronous.lag)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue with the record at `offset`."""
        self._loop.run(self.asynchronous.seek(topic, partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the first record of these partitions, or of all."""
        self._loop.run(self.asynchronous.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of these partitions, or of all: only new records are read."""
        self._loop.run(self.asynchronous.seek_to_end(*partitions))

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Seek to the first record at or after a timestamp; to the end where there is none."""
        self._loop.run(self.asynchronous.seek_to_time(timestamp_ms, *partitions))

    def seek_to_committed(self) -> None:
        """Seek back to the committed offsets of the group, for example after an aborted transaction."""
        self._loop.run(self.asynchronous.seek_to_committed())

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions, or of any, until `resume`."""
        self._loop.call(lambda: self.asynchronous.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        self._loop.call(lambda: self.asynchronous.resume(*partitions))

    def paused(self) -> list[TopicPartition]:
        return self._loop.call(self.asynchronous.paused)

    # --- commits ----------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit offsets: of all records returned so far, or the given ones, each the next offset to read."""
        self._loop.run(self.asynchronous.commit(offsets))

    def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; partitions without one are left out."""
        return self._loop.run(self.asynchronous.committed(*partitions))

    # --- lifecycle --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start prefetching. Polling starts it too; call this to have the partitions assigned before."""
        self._loop.run(self.asynchronous.start())

    def stop(self) -> None:
        """End iterations and polls after the current record. May be called from any thread or signal handler."""
        self._loop.post(self.asynchronous.stop)

    def close(self) -> None:
        """Commit the records returned so far, if auto-commit is on; leave the group; stop."""
        self._loop.run(self.asynchronous.close())

    @property
    def is_closed(self) -> bool:
        return self.asynchronous.is_closed

    @property
    def is_stopping(self) -> bool:
        return self.asynchronous.is_stopping

    def __enter__(self) -> Consumer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.run(self.asynchronous.__aexit__(kind, error, traceback))
