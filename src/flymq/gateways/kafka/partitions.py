"""Find what a request names: topics by name or id, partitions whose leader the client knows rightly."""

from __future__ import annotations

from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replicas import Topics
from flymq.model.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from flymq.model.names import TopicPartition

NO_EPOCH = -1


def find_partition(topics: Topics, topic: str | bytes, number: int, leader_epoch: int = NO_EPOCH) -> Partition:
    """Return the partition; `leader_epoch` is the one the client takes for the current one."""
    name = topics.get_by_id(topic).name if isinstance(topic, bytes) else topic
    partition = topics.partition(TopicPartition(name, number))
    if leader_epoch in (NO_EPOCH, partition.leader_epoch):
        return partition
    if leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(f"{partition.name} is at leader epoch {partition.leader_epoch}, not {leader_epoch}")
    raise UnknownLeaderEpoch(f"{partition.name} is at leader epoch {partition.leader_epoch}, not yet {leader_epoch}")
