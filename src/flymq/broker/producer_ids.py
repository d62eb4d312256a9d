"""Producer ids: numbers that are given out once, ever. Taken from the metadata in blocks; a crash wastes a block."""

from __future__ import annotations

from collections.abc import Iterator

from flymq.broker.catalog import Catalog


class ProducerIds:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._block: Iterator[int] = iter(())

    async def take(self) -> int:
        """Return an id nobody has had."""
        while (found := next(self._block, None)) is None:
            self._block = iter(await self._catalog.take_producer_ids())
        return found
