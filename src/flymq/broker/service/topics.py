"""Topics: list, describe, create, change, delete; leaders and replicas of their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flymq.broker.admin import Admin, Placed
from flymq.broker.admin import TopicDefaults as TopicDefaults
from flymq.broker.partition_admin import Outcomes, PartitionAdmin
from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.service.caller import Caller
from flymq.broker.service.gate import CLUSTER_NAME, Gate, Operation, Resource
from flymq.broker.service.leaders import Leaders
from flymq.cluster.catalog import NO_LEADER as NO_LEADER
from flymq.cluster.catalog import PartitionState
from flymq.cluster.image import Image
from flymq.cluster.image import Topic as Topic
from flymq.model.errors import NotLeader, PartitionOffline
from flymq.model.names import TopicPartition
from flymq.wire.native.messages.peers import LedPartition


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition: its leader, and its offsets, or -1 for what is not known."""

    number: int
    state: PartitionState
    start_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    size: int = 0
    problem: str = ""
    """Why the partition is offline; empty if it is not."""


class Topics:
    """Operations on topics."""

    def __init__(
        self,
        image: Image,
        replicas: Replicas,
        admin: Admin,
        partition_admin: PartitionAdmin,
        gate: Gate,
        leaders: Leaders,
    ) -> None:
        self._image = image
        self._partition_admin = partition_admin
        self._replicas = replicas
        self._admin = admin
        self._gate = gate
        self.leaders = leaders

    # --- describe

    @property
    def defaults(self) -> TopicDefaults:
        """Defaults of new topics."""
        return self._admin.defaults

    @property
    def revision(self) -> int:
        """The revision of the metadata that this broker knows."""
        return self._image.revision

    def all(self, caller: Caller, *, internal: bool = True) -> list[Topic]:
        """Return the topics, sorted by name."""
        return [topic for topic in self._image if internal or not topic.is_internal]

    def exists(self, caller: Caller, name: str) -> bool:
        return name in self._image

    def get(self, caller: Caller, name: str) -> Topic:
        self._gate.check(caller, Operation.DESCRIBE, Resource.TOPIC, name)
        return self._image.get(name)

    def get_by_id(self, caller: Caller, topic_id: bytes) -> Topic:
        topic = self._image.get_by_id(topic_id)
        self._gate.check(caller, Operation.DESCRIBE, Resource.TOPIC, topic.name)
        return topic

    def find(self, caller: Caller, name: str) -> Topic | None:
        return self._image.find(name)

    def find_by_id(self, caller: Caller, topic_id: bytes) -> Topic | None:
        return self._image.find_by_id(topic_id)

    def partitions(self, caller: Caller, topic: Topic) -> list[PartitionInfo]:
        """Describe the partitions of a topic."""
        here, offline = self._replicas.of(topic), self._replicas.offline(topic)
        return [
            _info(number, state, here.get(number), offline.get(number)) for number, state in enumerate(topic.partitions)
        ]

    async def describe_partitions(self, caller: Caller, topic: Topic) -> list[PartitionInfo]:
        """Describe the partitions of a topic as their leaders see them, which may be other brokers."""
        found = self.partitions(caller, topic)
        elsewhere = [info for info in found if info.state.leader != self._replicas.broker_id]
        if not elsewhere:
            return found
        topic_id = topic.topic_id.bytes
        led = await self.leaders.describe([(topic_id, info.number) for info in elsewhere])
        for info in elsewhere:
            found[info.number] = _as_led(topic.name, info, led.get((topic_id, info.number)))
        return found

    def offline_replicas(self, caller: Caller, topic: Topic) -> dict[int, list[int]]:
        """Return the replicas that cannot be used, by the number of the partition: those on brokers that are not there,
        and those on this broker whose files cannot be used."""
        failed = (number for number, each in self._replicas.of(topic).items() if each.log.failure is not None)
        found = {number: [self._replicas.broker_id] for number in (*self._replicas.offline(topic), *failed)}
        if self._image.members:
            live = self._image.members.live
            for number, state in enumerate(topic.partitions):
                if gone := [broker for broker in state.replicas if broker not in live]:
                    found[number] = sorted({*found.get(number, ()), *gone})
        return found

    def partition(self, caller: Caller, name: TopicPartition) -> PartitionInfo:
        """Describe one partition that has a replica on this broker."""
        state = self.get(caller, name.topic).state(name.partition)
        return _info(name.partition, state, self._replicas.get(name), None)

    def is_partition(self, caller: Caller, name: TopicPartition) -> bool:
        topic = self._image.find(name.topic)
        return topic is not None and 0 <= name.partition < len(topic.partitions)

    # --- change

    async def describe_partition(self, caller: Caller, name: TopicPartition) -> PartitionInfo:
        """Describe one partition as its leader sees it, which may be another broker."""
        topic = self.get(caller, name.topic)
        state = topic.state(name.partition)
        if state.leader == self._replicas.broker_id:
            return self.partition(caller, name)
        replica = topic.topic_id.bytes, name.partition
        led = (await self.leaders.describe([replica])).get(replica)
        if led is None:
            raise NotLeader(f"the leader of {name}, broker {state.leader}, does not answer")
        return _as_led(name.topic, PartitionInfo(name.partition, state), led)

    async def create(
        self,
        caller: Caller,
        name: str,
        *,
        partitions: int = 0,
        replication_factor: int = 0,
        settings: Mapping[str, Any] | None = None,
        placed: Placed | None = None,
        validate_only: bool = False,
    ) -> Topic | None:
        """Create a topic; 0 means the default. Returns None if the request is only validated.

        `placed`: the brokers of each partition; if not given, they are chosen.
        """
        self._gate.check(caller, Operation.CREATE, Resource.TOPIC, name)
        return await self._admin.create(
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            settings=settings,
            placed=placed,
            validate_only=validate_only,
        )

    async def get_or_create(self, caller: Caller, name: str, settings: Mapping[str, Any] | None = None) -> Topic:
        """Return a topic, creating it on first use with these settings, if the broker allows it."""
        if name not in self._image and self._admin.may_create(name):
            self._gate.check(caller, Operation.CREATE, Resource.TOPIC, name)
        return await self._admin.get_or_create(name, settings)

    async def alter(
        self, caller: Caller, name: str, settings: Mapping[str, Any], *, validate_only: bool = False
    ) -> None:
        """Change settings of a topic; None resets a setting to its default."""
        self._gate.check(caller, Operation.ALTER_CONFIGS, Resource.TOPIC, name)
        await self._admin.alter(name, settings, validate_only=validate_only)

    async def add_partitions(
        self,
        caller: Caller,
        name: str,
        partitions: int,
        *,
        placed: Placed | None = None,
        validate_only: bool = False,
    ) -> None:
        """Increase the number of partitions to `partitions`. `placed`: the brokers of each new one."""
        self._gate.check(caller, Operation.ALTER, Resource.TOPIC, name)
        await self._admin.add_partitions(name, partitions, placed=placed, validate_only=validate_only)

    async def delete(self, caller: Caller, name: str) -> None:
        """Delete a topic and its records."""
        self._gate.check(caller, Operation.DELETE, Resource.TOPIC, name)
        await self._admin.delete(name)

    # --- leaders and replicas

    async def elect(self, caller: Caller, partitions: Iterable[TopicPartition], *, unclean: bool = False) -> Outcomes:
        """Let the preferred leaders lead; if `unclean`, let any replica lead where nobody does."""
        self._gate.check(caller, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
        return await self._partition_admin.elect(partitions, unclean=unclean)

    async def reassign(self, caller: Caller, replicas: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
        """Begin to move partitions to these brokers, the preferred leader first; None cancels what is under way."""
        self._gate.check(caller, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
        return await self._partition_admin.reassign(replicas)

    async def place(self, caller: Caller, name: str, replication_factor: int = 0, brokers: Sequence[int] = ()) -> None:
        """Begin to give each partition of a topic so many replicas, 0: as many as now, on these brokers, or on all."""
        self._gate.check(caller, Operation.ALTER, Resource.TOPIC, name)
        for error in (await self._partition_admin.place(name, replication_factor, brokers)).values():
            if error is not None:
                raise error

    @property
    def unclean_elections(self) -> int:
        """How many leaders were elected here on request that may lack records."""
        return self._partition_admin.unclean_elections

    def reassignments(self, caller: Caller) -> dict[TopicPartition, PartitionState]:
        """Return the partitions whose replicas are being moved."""
        self._gate.check(caller, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        return self._partition_admin.reassignments()


def _as_led(topic: str, info: PartitionInfo, led: LedPartition | None) -> PartitionInfo:
    """Return what the leader says; nothing is known if it says nothing."""
    if led is None:
        leader = info.state.leader
        why = "has no leader" if leader == NO_LEADER else f"is led by broker {leader}, which does not answer"
        problem = f"{TopicPartition(topic, info.number)} {why}"
        return PartitionInfo(info.number, info.state, size=-1, problem=info.problem or problem)
    return PartitionInfo(
        info.number,
        info.state,
        led.start_offset,
        led.high_watermark,
        led.last_stable_offset,
        led.size_bytes,
        led.problem,
    )


def _info(
    number: int, state: PartitionState, partition: Partition | None, not_opened: PartitionOffline | None
) -> PartitionInfo:
    if partition is None:
        return PartitionInfo(number, state, problem="" if not_opened is None else not_opened.message)
    log = partition.log
    return PartitionInfo(
        number,
        state,
        log.start_offset,
        partition.high_watermark,
        partition.last_stable_offset,
        log.size,
        "" if log.failure is None else log.failure.message,
    )
