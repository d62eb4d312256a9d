"""Whether the cluster is well: its brokers, and the partitions without a leader or with replicas that are behind."""

from __future__ import annotations

from dataclasses import dataclass, field

from flymq.broker.service.caller import Caller
from flymq.broker.service.cluster import Address, BrokerInfo, Cluster
from flymq.broker.service.gate import CLUSTER_NAME, Gate, Operation, Resource
from flymq.broker.service.leaders import Leaders
from flymq.cluster.catalog import PartitionState
from flymq.cluster.image import Image, Topic
from flymq.host.time_slices import TimeSlice
from flymq.model.names import TopicPartition
from flymq.wire.native.messages.peers import FollowerLag

PROBLEMS_MAX = 1_000
"""That are described; the others are counted."""


@dataclass(slots=True)
class PartitionProblem:
    """A partition that has no leader, or replicas that are not in sync."""

    name: TopicPartition
    state: PartitionState
    min_isr: int
    lags: dict[int, FollowerLag] = field(default_factory=dict)
    """By broker; only of those that the leader knows."""


@dataclass(slots=True)
class PartitionCounts:
    """How many partitions there are, and how many are not as they should be."""

    topics: int = 0
    partitions: int = 0
    offline: int = 0
    """Without a leader that lives."""
    under_replicated: int = 0
    """With fewer in-sync replicas than replicas."""
    under_min_isr: int = 0
    """With so few that acks=all is refused."""

    def add(self, topic: Topic, state: PartitionState, *, is_led: bool) -> bool:
        """Count a partition; return whether it is not as it should be."""
        self.partitions += 1
        self.offline += not is_led
        is_behind = len(state.isr) < len(state.replicas)
        self.under_replicated += is_behind
        self.under_min_isr += len(state.isr) < min(topic.config.min_insync_replicas, len(state.replicas))
        return is_behind or not is_led


@dataclass(slots=True)
class ClusterState:
    """The cluster at one moment."""

    brokers: list[BrokerInfo]
    counts: PartitionCounts
    problems: list[PartitionProblem]


class ClusterStates:
    """Describes the state of the cluster."""

    def __init__(self, image: Image, cluster: Cluster, leaders: Leaders, gate: Gate) -> None:
        self._image = image
        self._cluster = cluster
        self._leaders = leaders
        self._gate = gate

    async def describe(self, caller: Caller, dialled: Address) -> ClusterState:
        """Return the state of the cluster; the leaders are asked how far replicas are behind."""
        self._gate.check(caller, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        counts, found = await self._count()
        shown = found[:PROBLEMS_MAX]
        led = await self._leaders.describe((topic.topic_id.bytes, number) for topic, number, _ in shown)
        problems = []
        for topic, number, state in shown:
            problem = PartitionProblem(TopicPartition(topic.name, number), state, topic.config.min_insync_replicas)
            if (known := led.get((topic.topic_id.bytes, number))) is not None:
                problem.lags = {each.broker: each for each in known.followers}
            problems.append(problem)
        return ClusterState(self._cluster.brokers(dialled), counts, problems)

    async def count(self, caller: Caller) -> PartitionCounts:
        """Count all partitions, and those that are not as they should be."""
        self._gate.check(caller, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        return (await self._count())[0]

    async def _count(self) -> tuple[PartitionCounts, list[tuple[Topic, int, PartitionState]]]:
        """Count all partitions; return those that are not as they should be. There may be thousands."""
        counts, found = PartitionCounts(len(self._image)), []
        turn = TimeSlice()
        for topic in list(self._image):
            await turn.yield_if_over()
            for number, state in enumerate(topic.partitions):
                if counts.add(topic, state, is_led=self._cluster.is_live(state.leader)):
                    found.append((topic, number, state))
        return counts, found
