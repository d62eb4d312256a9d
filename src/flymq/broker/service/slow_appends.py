"""Appends whose records take long to check: checked in a thread, then appended in the order of their arrival.

Decompressing a megabyte that unpacks to fifty takes tens of milliseconds, which other clients must not wait for. While
a partition has such appends, later ones to it queue up behind them, so that a producer's batches keep their order:

    batch 1 (large) ── checked in the thread ──▶ appended ─▶ acknowledged
    batch 2 (small)            waits             ──────────▶ appended ─▶ acknowledged

One thread does all checks, so that one decompressed batch is in memory at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from flymq.broker.replicas.partition import Partition, Written
from flymq.host.tasks import Tasks, Threads
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.record.header import Buffer
from flymq.storage.batch_validation import check_in_thread, takes_long

logger = logging.getLogger(__name__)

WAITING_BYTES_MAX = 32 << 20
"""Above it, clients that send more are throttled."""
_THROTTLE_MS = 100

Append = Callable[[Buffer], Written]


class SlowAppends:
    """The appends of a broker that wait for their check, or behind others that do."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._tasks = Tasks(_log_failure)
        self._last: dict[tuple[str, int], asyncio.Future[None]] = {}
        """Partition → done when the last append in its queue is."""
        self.waiting_bytes = 0

    @property
    def throttle_ms(self) -> int:
        """How long a client should wait before it sends more."""
        return _THROTTLE_MS if self.waiting_bytes > WAITING_BYTES_MAX else 0

    def must_queue(self, name: TopicPartition, batches: Buffer) -> bool:
        """Whether these batches must not be appended at once."""
        return name in self._last or takes_long(batches)

    def add(self, partition: Partition, batches: Buffer, append: Append) -> asyncio.Future[Written]:
        """Queue an append of a copy of these batches; return when it is acknowledged."""
        loop = asyncio.get_running_loop()
        acknowledged: asyncio.Future[Written] = loop.create_future()
        appended = loop.create_future()
        name, kept = partition.name, bytes(batches)
        before, self._last[name] = self._last.get(name), appended
        self.waiting_bytes += len(kept)
        self._tasks.spawn(f"append to {name}", self._run(partition, kept, append, before, appended, acknowledged))
        return acknowledged

    async def _run(
        self,
        partition: Partition,
        batches: bytes,
        append: Append,
        before: asyncio.Future[None] | None,
        appended: asyncio.Future[None],
        acknowledged: asyncio.Future[Written],
    ) -> None:
        try:
            written = await self._append(partition, batches, append, before)
        except FlyMQError as error:
            acknowledged.set_exception(error)
            return
        except BaseException:
            acknowledged.cancel()
            raise
        finally:
            self.waiting_bytes -= len(batches)
            if self._last[partition.name] is appended:
                del self._last[partition.name]
            appended.set_result(None)
        if written.safe is None:
            acknowledged.set_result(written)
        else:
            written.safe.add_done_callback(partial(_acknowledge, written, acknowledged))

    async def _append(
        self, partition: Partition, batches: bytes, append: Append, before: asyncio.Future[None] | None
    ) -> Written:
        checked: Buffer = batches
        try:
            if takes_long(batches):
                checked = await self._threads.run(partial(check_in_thread, batches, partition.log.config))
        finally:  # also when they are refused: the next in the queue follows the one before
            if before is not None:
                await before
        return append(checked)

    async def close(self) -> None:
        """Give up what waits: its outcome is reported as unknown."""
        await self._tasks.close()
        self._threads.close()


def _acknowledge(written: Written, acknowledged: asyncio.Future[Written], safe: asyncio.Future[None]) -> None:
    if safe.cancelled():
        acknowledged.cancel()
    elif (error := safe.exception()) is not None:
        acknowledged.set_exception(error)
    else:
        acknowledged.set_result(written)


def _log_failure(name: str, error: BaseException) -> None:
    logger.error("%s failed", name, exc_info=error)
