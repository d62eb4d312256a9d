"""Ask leaders for offsets: the earliest, the latest, the one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from flymq.client.aio.cluster import Cluster
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages.records import ListOffsets, ListOffsetsAnswer, OffsetFound, OffsetQuery


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: Isolation = Isolation.READ_COMMITTED
) -> dict[TopicPartition, OffsetFound]:
    """Return the offset of each partition at a position (AT_…) or a time in ms; wait for leaders if need be."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + cluster.request_timeout_s
    found: dict[TopicPartition, OffsetFound] = {}
    attempt = 0
    while missing := {name: at for name, at in wanted.items() if name not in found}:
        try:
            found |= await _list_once(cluster, missing, isolation)
            continue
        except FlyMQError as error:
            attempt += 1
            pause_s = cluster.backoff.delay_s(attempt, cluster.entropy)
            if not cluster.may_retry(error) or loop.time() + pause_s >= deadline_s:
                raise
        for name in missing:
            cluster.forget(name.topic)
        cluster.counters.retries += 1
        await asyncio.sleep(pause_s)
    return found


async def _list_once(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, OffsetFound]:
    by_leader: dict[int, list[OffsetQuery]] = {}
    for (topic, partition), at in wanted.items():
        leader = await cluster.leader_of(topic, partition)
        by_leader.setdefault(leader, []).append(OffsetQuery(topic=topic, partition=partition, at=at))
    found: dict[TopicPartition, OffsetFound] = {}
    for leader, queries in by_leader.items():
        connection = await cluster.connection(leader)
        request = ListOffsets(partitions=queries, isolation=isolation)
        answer = await connection.request(request, ListOffsetsAnswer, cluster.request_timeout_s)
        for part in answer.partitions:
            if part.error is not None:
                raise error_of(part.error)
            found[TopicPartition(part.topic, part.partition)] = part
    return found
