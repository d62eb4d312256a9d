"""One member of a consumer group: joins, keeps alive, and tells the consumer which partitions are its own.

Runs as a task of its own, so that heartbeats do not depend on how fast the user's loop goes round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from flymq.client.aio.cluster import Cluster
from flymq.client.settings import ConsumerConfig
from flymq.model.errors import FlyMQError, RebalanceInProgress, StaleGeneration, UnknownMember
from flymq.model.names import TopicPartition
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages import groups as wire
from flymq.wire.native.messages.fields import Message, PartitionRef, TopicPartitions
from flymq.wire.native.messages.session import Done

M = TypeVar("M", bound=Message)
Partitions = frozenset[TopicPartition]

COOPERATIVE = "cooperative-sticky"


class Assignor(Protocol):
    """A way of sharing partitions of the users' own; runs in one of the members."""

    name: str

    def assign(
        self, members: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Return the partitions of each member, given the topics each wants."""


class Membership:
    """A consumer's place in its group."""

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
        """Be a member until cancelled. Ends with an error only when trying again cannot help."""
        attempt = 0
        while True:
            try:
                await self._join()
                attempt = 0
                await self._stay()
            except (RebalanceInProgress, StaleGeneration, UnknownMember) as error:
                await self._step_back(error)
            except FlyMQError as error:
                if not self._cluster.may_retry(error):
                    raise
                attempt += 1
                await asyncio.sleep(self._cluster.backoff.delay_s(attempt, self._cluster.entropy))

    async def leave(self) -> None:
        """Give the share back at once. A static member keeps it until its session ends, to come back to it."""
        if self.member and not self._config.instance_id:
            await self._ask(wire.Leave(group=self.group, member=self.member), Done)
        self.member, self.generation = "", wire.NO_GENERATION

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Save the next offset to read of each partition."""
        request = wire.Commit(
            group=self.group,
            offsets=[
                wire.OffsetToCommit(topic, partition, int(offset)) for (topic, partition), offset in offsets.items()
            ],
            member=self.member,
            generation=self.generation,
        )
        for part in (await self._ask(request, wire.CommitAnswer)).partitions:
            if part.error is not None:
                raise error_of(part.error)

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets; partitions without one are left out."""
        wanted = [PartitionRef(topic, partition) for topic, partition in partitions]
        answer = await self._ask(wire.FetchOffsets(group=self.group, partitions=wanted), wire.FetchOffsetsAnswer)
        found: dict[TopicPartition, int] = {}
        for part in answer.partitions:
            if part.error is not None:
                raise error_of(part.error)
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
            patience_s=config.rebalance_timeout_ms / 1000,
        )
        self.member, self._assignor = joined.member, joined.assignor
        request = wire.Sync(group=self.group, member=self.member, generation=joined.generation)
        if joined.assigns:
            request.assignments = await self._assign(joined)
        share = await self._ask(request, wire.SyncAnswer, patience_s=config.rebalance_timeout_ms / 1000)
        # Not before: until it lets go of what it lost, it must not commit anything in the new generation.
        self.generation = joined.generation
        await self._take_over(frozenset(_flat(share.partitions)))

    async def _take_over(self, share: Partitions) -> None:
        lost, won = self._owned - share, share - self._owned
        if lost:
            await self._on_revoked(lost)
            self._owned -= lost
        if won:
            await self._on_assigned(won)
            self._owned |= won
        if lost and self._assignor == COOPERATIVE:
            raise RebalanceInProgress("partitions were given up; the group shares them out now")

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(self._config.heartbeat_interval_ms / 1000)
            beat = wire.Heartbeat(group=self.group, member=self.member, generation=self.generation)
            await self._ask(beat, Done)

    async def _step_back(self, error: FlyMQError) -> None:
        """Give up what may belong to others once the group is shared out anew."""
        if isinstance(error, UnknownMember):
            self.member = ""
        keeps_share = isinstance(error, RebalanceInProgress) and self._assignor == COOPERATIVE
        if self._owned and not keeps_share:
            lost, self._owned = self._owned, frozenset()
            await self._on_revoked(lost)

    async def _assign(self, joined: wire.SubscribeAnswer) -> list[wire.MemberAssignment]:
        assignor = self._assignors[joined.assignor]
        topics = {topic for member in joined.members for topic in member.topics}
        counts = {topic: len((await self._cluster.topic(topic)).partitions) for topic in sorted(topics)}
        shares = assignor.assign({member.member: member.topics for member in joined.members}, counts)
        return [wire.MemberAssignment(member, _grouped(frozenset(share))) for member, share in shares.items()]

    async def _ask(self, request: Message, answer: type[M], patience_s: float = 0.0) -> M:
        connection = await self._cluster.connection()
        return await connection.request(request, answer, self._cluster.request_timeout_s + patience_s)


def _grouped(partitions: Partitions) -> list[TopicPartitions]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic, numbers) for topic, numbers in by_topic.items()]


def _flat(partitions: Sequence[TopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(part.topic, number) for part in partitions for number in part.partitions]
