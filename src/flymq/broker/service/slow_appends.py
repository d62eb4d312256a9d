"""Appends whose records take long to check: checked in a thread, then appended in the order of their arrival.

Decompressing a megabyte that unpacks to fifty takes tens of milliseconds, which other clients must not wait for.
Compressing a batch again, for a topic with a `compression.type` of its own, takes as long, and is always done there.
While a partition has such appends, later ones to it queue up behind them, which keeps a producer's batches in order:

    batch 1 (large) ── checked in the thread ──▶ appended ─▶ acknowledged
    batch 2 (small)            waits             ──────────▶ appended ─▶ acknowledged

One thread does all checks, so that one decompressed batch is in memory at a time. Many small batches can take as long
as a large one: what is checked at once is counted, and beyond a limit in one iteration of the loop the rest queues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from flymq.broker.replicas.partition import Partition, Written
from flymq.host.clock import Clock
from flymq.host.tasks import Tasks, Threads
from flymq.model.errors import FlyMQError
from flymq.record.header import Buffer
from flymq.storage.batch_validation import CHECK_COST_MAX, check_cost, check_in_thread, must_recompress

logger = logging.getLogger(__name__)

COST_PER_ITERATION_MAX = 4 * CHECK_COST_MAX
"""Checked at once in one iteration of the event loop, about 8 ms; see `check_cost`."""
_COUNTED_COST_MIN = 16 << 10  # the request itself costs more than such a check

WAITING_BYTES_MAX = 32 << 20
"""Above it, clients that send more are throttled."""
_THROTTLE_MS = 100

Append = Callable[[Buffer], Written]


class SlowAppends:
    """The appends of a broker that wait for their check, or behind others that do."""

    def __init__(self, threads: Threads, clock: Clock) -> None:
        self._threads = threads
        self._clock = clock
        self._tasks = Tasks(_log_failure)
        self._last: dict[tuple[str, int], asyncio.Future[None]] = {}
        """Partition → done when the last append in its queue is."""
        self.waiting_bytes = 0
        self._cost = 0  # in this iteration of the event loop

    @property
    def throttle_ms(self) -> int:
        """How long a client should wait before it sends more."""
        return _THROTTLE_MS if self.waiting_bytes > WAITING_BYTES_MAX else 0

    def must_queue(self, partition: Partition, batches: Buffer) -> bool:
        """Whether these batches must not be appended at once."""
        if partition.name in self._last or must_recompress(batches, partition.log.config):
            return True
        cost = check_cost(batches)
        if cost < _COUNTED_COST_MIN:
            return False
        if cost > CHECK_COST_MAX or self._cost + cost > COST_PER_ITERATION_MAX:
            return True
        if not self._cost:
            asyncio.get_running_loop().call_soon(self._next_iteration)
        self._cost += cost
        return False

    def _next_iteration(self) -> None:
        self._cost = 0

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
            config = partition.log.config
            if must_recompress(batches, config) or check_cost(batches) >= _COUNTED_COST_MIN:
                now_ms = self._clock.now_ms()
                checked = await self._threads.run(partial(check_in_thread, batches, config, now_ms))
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
