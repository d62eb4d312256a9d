"""A member of a consumer group: joins, sends heartbeats, and tells the consumer its assignment.

Runs as its own task, so that heartbeats do not depend on how often the application polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.coordinators import GROUP
from flymq.client.settings import ConsumerConfig
from flymq.model.errors import FlyMQError, RebalanceInProgress, StaleGeneration, UnknownMember
from flymq.model.names import TopicPartition
from flymq.wire.native.messages import groups as wire
from flymq.wire.native.messages.fields import Message, PartitionRef, TopicPartitions
from flymq.wire.native.messages.session import Done

M = TypeVar("M", bound=Message)
Partitions = frozenset[TopicPartition]

COOPERATIVE = "cooperative-sticky"


class Assignor(Protocol):
    """A user-defined assignment strategy; runs in one of the members, the group leader."""

    name: str

    def assign(
        self, members: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Return the assignment of each member, given the topics each has subscribed to."""


class Membership:
    """A consumer's membership of its group."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Sequence[str],
        config: ConsumerConfig,
        *,
        assignors: Sequence[Assignor] = (),
        on_assigned: Callable[[Partitions], Awaitable[None]],
        on_revoked: Callable[[Partitions], Awaitable[None]],
    ) -> None:
        self.group = group
        self.member = ""
        self.generation = wire.NO_GENERATION
        self._cluster = cluster
        self._topics = list(topics)
        self._config = config
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._owned: Partitions = frozenset()
        self._assignor = ""

    async def run(self) -> None:
        """Stay in the group until cancelled. Raises only errors that a retry cannot fix."""
        attempt = 0
        while True:
            try:
                await self._join()
                attempt = 0
                await self._send_heartbeats()
            except (RebalanceInProgress, StaleGeneration, UnknownMember) as error:
                await self._revoke_after(error)
            except FlyMQError as error:
                if not self._cluster.may_retry(error):
                    raise
                attempt += 1
                await asyncio.sleep(self._cluster.backoff.delay_s(attempt, self._cluster.entropy))

    async def leave(self) -> None:
        """Leave the group at once. A static member keeps its assignment until its session times out."""
        if self.member and not self._config.instance_id:
            await self._ask(wire.Leave(group=self.group, member=self.member), Done, is_repeated=self._has_broker())
        self.member, self.generation = "", wire.NO_GENERATION

    async def commit(self, offsets: Mapping[TopicPartition, int], *, is_closing: bool = False) -> None:
        """Commit the next offset to read of each partition."""
        request = wire.Commit(
            group=self.group,
            offsets=[
                wire.OffsetToCommit(topic, partition, int(offset)) for (topic, partition), offset in offsets.items()
            ],
            member=self.member,
            generation=self.generation,
        )
        await self._ask(request, wire.CommitAnswer, is_repeated=not is_closing or self._has_broker())

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets; partitions without one are left out."""
        wanted = [PartitionRef(topic, partition) for topic, partition in partitions]
        answer = await self._ask(wire.FetchOffsets(group=self.group, partitions=wanted), wire.FetchOffsetsAnswer)
        found: dict[TopicPartition, int] = {}
        for part in answer.partitions:
            if part.offset >= 0:
                found[TopicPartition(part.topic, part.partition)] = part.offset
        return found

    # ----------------------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        config = self._config
        joined = await self._ask(
            wire.Subscribe(
                group=self.group,
                topics=self._topics,
                member=self.member,
                instance=config.instance_id,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.rebalance_timeout_ms,
                assignors=[*config.assignors, *self._assignors],
                owned=_grouped(self._owned),
            ),
            wire.SubscribeAnswer,
            extra_timeout_s=config.rebalance_timeout_ms / 1000,
        )
        self.member, self._assignor = joined.member, joined.assignor
        request = wire.Sync(group=self.group, member=self.member, generation=joined.generation)
        if joined.assigns:
            request.assignments = await self._assign(joined)
        assigned = await self._ask(request, wire.SyncAnswer, extra_timeout_s=config.rebalance_timeout_ms / 1000)
        # Not before: until it has revoked what it lost, it must not commit anything in the new generation.
        self.generation = joined.generation
        await self._apply_assignment(frozenset(_flat(assigned.partitions)))

    async def _apply_assignment(self, assignment: Partitions) -> None:
        lost, gained = self._owned - assignment, assignment - self._owned
        if lost:
            await self._on_revoked(lost)
            self._owned -= lost
        if gained:
            await self._on_assigned(gained)
            self._owned |= gained
        if lost and self._assignor == COOPERATIVE:
            raise RebalanceInProgress("partitions were revoked; rejoining so that the group can reassign them")

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._config.heartbeat_interval_ms / 1000)
            beat = wire.Heartbeat(group=self.group, member=self.member, generation=self.generation)
            await self._ask(beat, Done)

    async def _revoke_after(self, error: FlyMQError) -> None:
        """Revoke the partitions that the rebalance may assign to other members."""
        if isinstance(error, UnknownMember):
            self.member = ""
        keeps_partitions = isinstance(error, RebalanceInProgress) and self._assignor == COOPERATIVE
        if self._owned and not keeps_partitions:
            lost, self._owned = self._owned, frozenset()
            await self._on_revoked(lost)

    async def _assign(self, joined: wire.SubscribeAnswer) -> list[wire.MemberAssignment]:
        assignor = self._assignors[joined.assignor]
        topics = {topic for member in joined.members for topic in member.topics}
        counts = {topic: len((await self._cluster.topic(topic)).partitions) for topic in sorted(topics)}
        assignments = assignor.assign({member.member: member.topics for member in joined.members}, counts)
        return [
            wire.MemberAssignment(member, _grouped(frozenset(partitions))) for member, partitions in assignments.items()
        ]

    def _has_broker(self) -> bool:
        """Whether retries may succeed soon: a consumer that closes does not wait for a cluster that is down."""
        return bool(self._cluster.brokers.open_connections())

    async def _ask(
        self, request: Message, answer: type[M], *, extra_timeout_s: float = 0.0, is_repeated: bool = True
    ) -> M:
        return await self._cluster.coordinators.ask(
            GROUP, self.group, request, answer, extra_timeout_s=extra_timeout_s, is_repeated=is_repeated
        )


def _grouped(partitions: Partitions) -> list[TopicPartitions]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic, numbers) for topic, numbers in by_topic.items()]


def _flat(partitions: Sequence[TopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(part.topic, number) for part in partitions for number in part.partitions]
