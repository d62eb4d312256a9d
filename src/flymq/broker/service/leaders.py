"""What only the leaders of partitions know, asked of them: offsets, sizes, and how far each follower is behind.

Any broker answers for the whole cluster. What it does not lead, it asks the leader for; what that does not tell,
because it is not there or does not answer, stays unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from flymq.broker.replicas.followers import UNKNOWN
from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replica_sessions import ReplicaId
from flymq.broker.replicas.replicas import Replicas
from flymq.cluster.image import Image
from flymq.cluster.peers import Peers
from flymq.host.clock import Clock
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.wire.native.messages.peers import (
    DescribeLed,
    DescribeLedAnswer,
    FollowerLag,
    LedPartition,
    ReplicaRef,
)

logger = logging.getLogger(__name__)

_ANSWERS_WITHIN_S = 3.0


class Leaders:
    """Describes partitions as their leaders see them."""

    def __init__(self, image: Image, replicas: Replicas, clock: Clock, peers: Peers | None = None) -> None:
        """`peers`: None for a broker without a cluster."""
        self._image = image
        self._replicas = replicas
        self._clock = clock
        self._peers = peers

    async def describe(self, wanted: Iterable[ReplicaId]) -> dict[ReplicaId, LedPartition]:
        """Describe these partitions, as far as their leaders answer."""
        by_leader: dict[int, list[ReplicaId]] = {}
        for replica in wanted:
            topic = self._image.find_by_id(replica[0])
            if topic is not None and replica[1] < len(topic.partitions):
                by_leader.setdefault(topic.partitions[replica[1]].leader, []).append(replica)
        here = self.describe_here(by_leader.pop(self._replicas.broker_id, []))
        others = await asyncio.gather(*(self._ask_leader(leader, some) for leader, some in by_leader.items()))
        return {(bytes(each.topic_id), each.partition): each for found in (here, *others) for each in found}

    async def describe_elsewhere(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, LedPartition]:
        """Describe those of these partitions that other brokers lead, as far as they answer."""
        wanted: dict[ReplicaId, TopicPartition] = {}
        for name in names:
            topic = self._image.find(name.topic)
            states = () if topic is None else topic.partitions[name.partition :][:1]
            if topic is not None and any(state.leader != self._replicas.broker_id for state in states):
                wanted[topic.topic_id.bytes, name.partition] = name
        return {wanted[replica]: each for replica, each in (await self.describe(wanted)).items()}

    async def _ask_leader(self, leader: int, some: list[ReplicaId]) -> list[LedPartition]:
        if self._peers is None or self._image.members.find(leader) is None:
            return []
        try:
            question = DescribeLed(partitions=[ReplicaRef(*replica) for replica in some])
            answer = await self._peers.request(leader, question, DescribeLedAnswer, timeout_s=_ANSWERS_WITHIN_S)
        except FlyMQError as error:
            logger.info("broker %d does not tell about the partitions that it leads: %s", leader, error.message)
            return []
        return answer.partitions

    def describe_here(self, wanted: Iterable[ReplicaId]) -> list[LedPartition]:
        """Describe those of these partitions that this broker leads."""
        found, now_s = [], self._clock.monotonic_s()
        for replica in wanted:
            with suppress(FlyMQError):
                partition = self._replicas.get_by_id(replica)
                if partition.leads:
                    found.append(_describe(replica, partition, now_s))
        return found


def _describe(replica: ReplicaId, partition: Partition, now_s: float) -> LedPartition:
    log = partition.log
    return LedPartition(
        *replica,
        log.start_offset,
        partition.high_watermark,
        partition.last_stable_offset,
        log.size,
        "" if log.failure is None else log.failure.message,
        follower_lags(partition, now_s),
    )


def follower_lags(partition: Partition, now_s: float) -> list[FollowerLag]:
    """Return how far the followers of a partition that is led here are behind."""
    replication = partition.replication
    if replication is None:
        return []
    lags = []
    for broker in replication.state.replicas:
        if (follower := replication.followers.of(broker)) is not None:
            known = follower.position != UNKNOWN
            records = max(0, partition.log.end_offset - follower.position) if known else -1
            behind_ms = 0 if records == 0 else max(0, int(1000 * (now_s - follower.caught_up_s)))
            lags.append(FollowerLag(broker, records, behind_ms))
    return lags
