"""Ask leaders for offsets: the earliest, the latest, the one at a time."""

from __future__ import annotations

from collections.abc import Mapping

from flymq.client.aio.cluster import Cluster
from flymq.model.delivery import Isolation
from flymq.model.names import TopicPartition
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages.records import ListOffsets, ListOffsetsAnswer, OffsetFound, OffsetQuery


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: Isolation = Isolation.READ_COMMITTED
) -> dict[TopicPartition, OffsetFound]:
    """Return the offset of each partition at a position (AT_…) or a time in ms; wait for leaders if need be."""
    return await cluster.retry(lambda: _list_once(cluster, wanted, isolation))


async def _list_once(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, OffsetFound]:
    by_leader: dict[int, list[OffsetQuery]] = {}
    for (topic, partition), at in wanted.items():
        leader = await cluster.leader_of(topic, partition)
        by_leader.setdefault(leader, []).append(OffsetQuery(topic=topic, partition=partition, at=at))
    found: dict[TopicPartition, OffsetFound] = {}
    for leader, queries in by_leader.items():
        request = ListOffsets(partitions=queries, isolation=isolation)
        answer = await cluster.tell(request, ListOffsetsAnswer, broker=leader)
        for part in answer.partitions:
            if part.error is not None:
                cluster.forget(part.topic)
                raise error_of(part.error)
            found[TopicPartition(part.topic, part.partition)] = part
    return found
