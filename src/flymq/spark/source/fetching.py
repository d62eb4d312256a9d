"""Fetch the batches of an offset range, prefetching the next ones while the last are decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.leaders import ask_leaders
from flymq.client.aio.offsets import list_offsets
from flymq.model.delivery import Isolation
from flymq.model.errors import OffsetOutOfRange, RequestTimedOut
from flymq.record.header import Buffer
from flymq.record.reading import Aborted, end_offset
from flymq.spark.broker_connection import BrokerConnection
from flymq.spark.source.offsets import lost
from flymq.spark.source.planning import OffsetRange
from flymq.wire.native.messages.records import (
    AT_EARLIEST,
    Fetch,
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
)

_WAIT_MS = 500
_SHORTER_LOG_ROUNDS = 10


class Run(NamedTuple):
    """Whole batches, of which the records from `start_offset` on are to be read."""

    batches: Buffer
    start_offset: int
    aborted: Sequence[Aborted]


class RangeFetch:
    """Fetches an offset range in a task."""

    def __init__(
        self, connection: BrokerConnection, *, isolation: Isolation, fetch_bytes: int, fail_on_data_loss: bool
    ) -> None:
        self._connection = connection
        self._isolation = isolation
        self._fetch_bytes = fetch_bytes
        self._fail_on_data_loss = fail_on_data_loss

    def runs(self, range_: OffsetRange) -> Iterator[Run]:
        """Yield the batches of the range; the last ones may extend past its end."""
        offset = range_.start
        idle_rounds = 0
        coming = self._begin(range_, offset)
        while coming is not None:
            try:
                part = coming.result()
            except OffsetOutOfRange:
                earliest = self._earliest(range_)
                if earliest <= offset and idle_rounds < _SHORTER_LOG_ROUNDS:
                    # The planned offsets exist: a leader that was just elected may not know its log's end yet.
                    idle_rounds += 1
                    self._connection.run(asyncio.sleep(_WAIT_MS / 1000))
                else:
                    offset = self._where_it_goes_on(range_, offset, earliest)
                coming = self._begin(range_, offset)
                continue
            batches = memoryview(part.batches)
            next_offset = end_offset(batches)
            if next_offset is None:
                idle_rounds += 1
                self._check_patience(range_, offset, idle_rounds)
                coming = self._begin(range_, offset)
                continue
            idle_rounds = 0
            coming = self._begin(range_, next_offset)
            yield Run(batches, offset, part.aborted)
            offset = next_offset

    def _begin(self, range_: OffsetRange, offset: int) -> Future[FetchedPartition] | None:
        if offset >= range_.end:
            return None
        asked = FetchPartition(range_.topic, range_.partition, offset, self._fetch_bytes)
        request = Fetch(
            partitions=[asked], max_wait_ms=_WAIT_MS, max_bytes=self._fetch_bytes, isolation=self._isolation
        )
        return self._connection.start(_fetch(self._connection.cluster, request))

    def _earliest(self, range_: OffsetRange) -> int:
        found = self._connection.run(list_offsets(self._connection.cluster, {range_.name: AT_EARLIEST}))
        return found[range_.name].offset

    def _where_it_goes_on(self, range_: OffsetRange, offset: int, earliest: int) -> int:
        """Handle an offset that was deleted after planning: continue with the earliest one, or fail."""
        if self._fail_on_data_loss:
            raise lost(f"{range_.name} starts at {earliest} and no longer has the offsets {offset} to {range_.end - 1}")
        return min(earliest, range_.end) if earliest > offset else range_.end

    def _check_patience(self, range_: OffsetRange, offset: int, idle_rounds: int) -> None:
        """Wait for more records: the planned offsets exist, but a broker may be restarting."""
        if idle_rounds * _WAIT_MS > self._connection.cluster.config.request_timeout_ms:
            raise RequestTimedOut(f"{range_.name} ends at {offset}, before the planned end {range_.end}")


async def _fetch(cluster: Cluster, request: Fetch) -> FetchedPartition:
    [asked] = request.partitions
    found = await ask_leaders(cluster, request.partitions, lambda _: request, FetchAnswer)
    return found[0] if found else FetchedPartition(asked.topic, asked.partition)
