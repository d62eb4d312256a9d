"""Producer ids: numbers that are given out once, ever. Taken from the metadata in blocks; a crash wastes a block.

The upper half of the numbers is not given out: a request that names itself derives its ids from that name, the same
ones whenever it comes again.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from flymq.cluster.catalog import Catalog
from flymq.storage.producers.producer_state import DERIVED_ID_FIRST


class ProducerIds:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._block: Iterator[int] = iter(())

    async def take(self) -> int:
        """Return an id nobody has had."""
        while (found := next(self._block, None)) is None:
            self._block = iter(await self._catalog.take_producer_ids())
        return found


def derive_producer_id(name: bytes) -> int:
    """Return the id that stands for `name`: of 2^62, so that no two names of our time share one."""
    digest = blake2b(name, digest_size=8).digest()
    return DERIVED_ID_FIRST | int.from_bytes(digest, "big") >> 2
