"""First writes of a transaction to a partition or group, while its coordinator is asked whether they belong to it.

The coordinator may be another broker, and the write must wait for its response. Meanwhile

- later writes of the same producer queue up behind it, which keeps its batches in order; others do not wait;
- the end of the transaction may arrive, even before the response, since it takes another way:

      this broker:   asks ──────────────── response: it is open ─▶ would be written after its end, and never be ended
      coordinator:       └▶ "it is open" ─ ends it ─▶ marker ─┘

  Then the coordinator is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from flymq.model.names import TopicPartition

Where = TopicPartition | str
"""A partition, or a group."""


class FirstWrites:
    """The first writes that wait, on this broker."""

    def __init__(self) -> None:
        self._last: dict[tuple[Where, int], asyncio.Future[None]] = {}
        """Where, and producer id → done when the last write in the queue is."""
        self._asking: dict[tuple[Where, int], object] = {}

    def is_waiting(self, where: Where, producer_id: int) -> bool:
        """Whether a write of this producer waits, so that later ones have to queue."""
        return (where, producer_id) in self._last

    @contextmanager
    def queue(self, where: Where, producer_id: int) -> Iterator[asyncio.Future[None] | None]:
        """Queue a write until the block ends; yields what is done when it is its turn, None for at once."""
        key = where, producer_id
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before, self._last[key] = self._last.get(key), done
        try:
            yield before
        finally:
            self._asking.pop(key, None)
            if self._last[key] is done:
                del self._last[key]
            done.set_result(None)

    async def confirm(
        self, where: Where, producer_id: int, ask: Callable[[], Awaitable[None]], leader_epoch: Callable[[], int]
    ) -> Callable[[], bool]:
        """Ask the coordinator. Returns whether its response still holds, to be called right before the write.

        `leader_epoch`: of the partition that is written to. Where another broker has led meanwhile, it may have been
        told of the end. To be called in the turn of the write.
        """
        key = where, producer_id
        while True:
            asked, epoch = object(), leader_epoch()
            self._asking[key] = asked
            await ask()

            def holds(asked: object = asked, epoch: int = epoch) -> bool:
                return self._asking.get(key) is asked and leader_epoch() == epoch

            if holds():
                return holds

    def ended(self, where: Where, producer_id: int) -> None:
        """The transaction of this producer has been ended here: what the coordinator said before is out of date."""
        self._asking.pop((where, producer_id), None)
