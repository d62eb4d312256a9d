"""List offsets: the earliest, the latest, or the one at a timestamp."""

from __future__ import annotations

from collections.abc import Mapping

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.leaders import ask_leaders
from flymq.model.delivery import Isolation
from flymq.model.names import TopicPartition
from flymq.wire.native.messages.records import ListOffsets, ListOffsetsAnswer, OffsetFound, OffsetQuery


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: Isolation = Isolation.READ_COMMITTED
) -> dict[TopicPartition, OffsetFound]:
    """Return the offset of each partition at a position (AT_…) or a timestamp in ms; wait for leaders if necessary."""
    queries = [OffsetQuery(*name, at) for name, at in wanted.items()]
    found = await ask_leaders(
        cluster, queries, lambda some: ListOffsets(partitions=some, isolation=isolation), ListOffsetsAnswer
    )
    return {TopicPartition(part.topic, part.partition): part for part in found}
