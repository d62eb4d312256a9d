"""Producer ids: allocated once, in blocks, from the metadata store; a crash wastes a block.

The upper half of the ids is not allocated: requests with an idempotency key derive their ids from it, so that a retry
uses the same ones.
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
        """Return an unused id."""
        while (found := next(self._block, None)) is None:
            self._block = iter(await self._catalog.take_producer_ids())
        return found


def derive_producer_id(name: bytes) -> int:
    """Return the id derived from `name`: one of 2^62, so that collisions are unlikely."""
    digest = blake2b(name, digest_size=8).digest()
    return DERIVED_ID_FIRST | int.from_bytes(digest, "big") >> 2
