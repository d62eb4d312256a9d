"""The image in an etcd that others use too."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.unit.metadata.test_conformance import etcd

from flymq.cluster.image import Image
from flymq.metadata.store import Put, exists
from flymq.model.topic_config import TopicConfig


async def test_a_revision_of_somebody_elses_key_is_reached(tmp_path: Path) -> None:
    async with etcd(tmp_path) as store, etcd(tmp_path) as other:
        image = Image(store, TopicConfig())
        await image.load()
        following = asyncio.ensure_future(image.follow())
        foreign = await other.txn(success=[Put("theirs", b"")])
        refused = await store.txn([exists("ours")], [Put("ours", b"")])
        assert not refused.succeeded and refused.revision >= foreign.revision
        await image.until(refused.revision)
        assert image.revision >= refused.revision
        following.cancel()
        await store.close()
        await other.close()
