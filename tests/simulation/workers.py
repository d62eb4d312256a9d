"""Members of a group that read, transform and write exactly once: each step is one transaction with its offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from kio.schema.consumer_group_heartbeat import v1 as heartbeat
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId
from kio.static.primitive import i32Timedelta
from tests.simulation.kafka import KafkaLink
from tests.simulation.producers import MUST_BEGIN_ANEW, TRANSACTION_TIMEOUT_MS
from tests.simulation.world import BROKER, Clients, World, patiently

from flymq.client.aio.client import AsyncFlyMQClient
from flymq.client.aio.consumer import AsyncConsumer
from flymq.client.records import ConsumerRecord
from flymq.coordination.consumer_group import IS_AWAY, JOINS, LEAVES, ConsumerGroup
from flymq.coordination.group import Group
from flymq.coordination.subscriptions import parse_assignment
from flymq.model.errors import (
    FlyMQError,
    InstanceInUse,
    MemberEpochFenced,
    MemberFenced,
    StaleGeneration,
    StaleMemberEpoch,
    TransactionAborted,
    UnknownMember,
)
from flymq.model.names import TopicPartition
from flymq.wire.native.messages.fields import PartitionRef
from flymq.wire.native.messages.groups import FetchOffsets, FetchOffsetsAnswer

GROUP = "workers"
AT_ODDS = (TransactionAborted, StaleGeneration, UnknownMember)  # the transaction is lost, the member recovers
LOST_PLACE = (UnknownMember, StaleGeneration, StaleMemberEpoch, MemberFenced, MemberEpochFenced, InstanceInUse)


_ERRORS = {
    ErrorCode.unknown_member_id: UnknownMember(),
    ErrorCode.fenced_member_epoch: MemberEpochFenced(),
    ErrorCode.unreleased_instance_id: InstanceInUse(),
    ErrorCode.fenced_instance_id: MemberFenced(),
}
_REBALANCE_TIMEOUT = i32Timedelta.parse(timedelta(seconds=3))


class StartedAgain(Exception):
    """The member forgets everything, as a process that was killed and started again."""


class Worker:
    """One member, on the SDK's consumer: as `client.transform` does it, but clumsy."""

    def __init__(self, world: Clients, number: int, assignor: str, *, instance: str = "") -> None:
        self.world = world
        self.name = f"worker-{number}"
        self.assignor = assignor
        self.instance = instance

    async def run(self, is_done: Callable[[], bool]) -> None:
        """Work until everything is done, whatever happens."""
        while not is_done():
            client = self.world.client(self.name, acks="all")
            try:
                await patiently(client.connect)
                await self.live(client, is_done)
            except (StartedAgain, *LOST_PLACE, *MUST_BEGIN_ANEW):
                continue
            finally:
                client.abort()

    async def live(self, client: AsyncFlyMQClient, is_done: Callable[[], bool]) -> None:
        consumer = client.consumer(
            "in",
            group=GROUP,
            listener=self,
            auto_commit=False,
            assignors=[self.assignor],
            instance_id=self.instance,
            session_timeout_ms=2_000,
            heartbeat_interval_ms=500,
            rebalance_timeout_ms=3_000,
            fetch_wait_ms=100,
        )
        if self.world.chance.random() < 0.4:
            await self.transform(client, consumer, is_done)
        while not is_done():
            try:
                records = await consumer.poll(timeout_ms=300, max_records=self.world.chance.randint(1, 3))
                if records:
                    await self.copy(client, consumer, records)
                await self.stumble(consumer)
            except FlyMQError as error:
                if not (error.retriable or isinstance(error, AT_ODDS)):
                    raise
                await patiently(consumer.seek_to_committed)

    async def transform(self, client: AsyncFlyMQClient, consumer: AsyncConsumer, is_done: Callable[[], bool]) -> None:
        """Let the SDK do all of it."""

        async def transformation(record: ConsumerRecord) -> list[tuple[str, bytes]]:
            await self.stumble(consumer)
            return [("out", record.value)]

        async def stop() -> None:
            while not is_done():  # noqa: ASYNC110  # it stops within a while
                await asyncio.sleep(0.5)
            consumer.stop()

        stopping = asyncio.ensure_future(stop())
        try:
            await client.transform(consumer, transformation, transactional_id=self.name)
        except FlyMQError as error:
            assert not (error.retriable or isinstance(error, AT_ODDS)), f"it gives up too early: {error!r}"
            raise
        finally:
            stopping.cancel()

    async def copy(self, client: AsyncFlyMQClient, consumer: AsyncConsumer, records: Sequence[ConsumerRecord]) -> None:
        """Copy a few records in one transaction."""
        chance = self.world.chance
        async with client.transaction(self.name, timeout_ms=TRANSACTION_TIMEOUT_MS) as transaction:
            await transaction.produce_batch("out", [record.value for record in records])
            if chance.random() < 0.5:
                await self.stumble(consumer)
            await transaction.commit_consumed(consumer)
            if chance.random() < 0.5:
                await self.stumble(consumer)

    async def stumble(self, consumer: AsyncConsumer) -> None:
        """Now and then, be gone for longer than the group waits, forget who one is, or leave."""
        chance = self.world.chance
        what = chance.random()
        if what < 0.03:
            await asyncio.sleep(chance.uniform(2, 6))
        elif what < 0.05:
            raise StartedAgain
        elif what < 0.06:
            await consumer.close()
            raise StartedAgain
        else:
            await asyncio.sleep(chance.expovariate(1 / 0.02))

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        check_assignments(self.world)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        check_assignments(self.world)


class ToldWorker(Worker):
    """A member that the broker tells what to read, at its heartbeats: Kafka's protocol, since the SDK's is another."""

    def __init__(self, world: World, number: int, assignor: str, *, instance: str = "") -> None:
        super().__init__(world, number, assignor, instance=instance)
        self.lives = 0
        self.topic_id: UUID | None = None
        self.member_id = ""
        self.epoch = JOINS
        self.assigned: list[TopicPartition] = []
        self.must_tell = True

    async def live(self, client: AsyncFlyMQClient, is_done: Callable[[], bool]) -> None:
        self.lives += 1
        self.member_id, self.epoch, self.assigned, self.must_tell = f"{self.name}-{self.lives}", JOINS, [], True
        link = KafkaLink(self.world.host(self.name).network, BROKER, 9092, self.name)
        described = await patiently(client.admin.describe_topic, "in")
        self.topic_id = UUID(bytes=described.topic_id)
        try:
            while not is_done():
                try:
                    await self.beat(link)
                    await self.work(client, link)
                except FlyMQError as error:
                    if not (error.retriable or isinstance(error, (TransactionAborted, StaleMemberEpoch))):
                        raise
                    await asyncio.sleep(0.1)
        finally:
            link.close()

    async def beat(self, link: KafkaLink, *, epoch: int | None = None) -> None:
        """Say what has changed; go on with what the answer allows. What is lost is let go of at once."""
        tells = self.epoch == JOINS or self.must_tell
        numbers = tuple(sorted(partition for _, partition in self.assigned))
        owned = (heartbeat.request.TopicPartitions(topic_id=self.topic_id, partitions=numbers),) if numbers else ()
        request = heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=GroupId(GROUP),
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            instance_id=self.instance or None,
            rebalance_timeout=_REBALANCE_TIMEOUT,
            subscribed_topic_names=("in",) if tells else None,
            server_assignor=self.assignor,
            topic_partitions=owned if tells else None,
        )
        self.must_tell = True  # until the answer is there
        answer = await link.ask(request, heartbeat.ConsumerGroupHeartbeatResponse)
        if answer.error_code is not ErrorCode.none:
            raise _ERRORS[answer.error_code]
        check_holders(self.world)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            assigned = [TopicPartition("in", n) for part in answer.assignment.topic_partitions for n in part.partitions]
            self.must_tell = set(assigned) != set(self.assigned)
            self.assigned = assigned
        else:
            self.must_tell = False

    async def work(self, client: AsyncFlyMQClient, link: KafkaLink) -> None:
        """Copy a few records in one transaction."""
        chance = self.world.chance
        if not self.assigned:
            await asyncio.sleep(0.5)
            return
        partition = chance.choice(self.assigned)
        offset = await self.position(client, partition)
        records = await client.fetch("in", partition.partition, offset, max_records=chance.randint(1, 3))
        if not records:
            await asyncio.sleep(0.1)
            return
        async with client.transaction(self.name, timeout_ms=TRANSACTION_TIMEOUT_MS) as transaction:
            await transaction.produce_batch("out", [record.value for record in records])
            if chance.random() < 0.5:
                await self.fumble(link)
            offsets = {partition: offset + len(records)}
            await transaction._commit_offsets(GROUP, offsets, self.member_id, self.epoch)
            if chance.random() < 0.5:
                await self.fumble(link)
        await self.fumble(link)

    async def position(self, client: AsyncFlyMQClient, partition: TopicPartition) -> int:
        request = FetchOffsets(group=GROUP, partitions=[PartitionRef(*partition)])
        answer = await client._cluster.ask(request, FetchOffsetsAnswer)
        return max(0, answer.partitions[0].offset)

    async def fumble(self, link: KafkaLink) -> None:
        chance = self.world.chance
        what = chance.random()
        if what < 0.03:
            await asyncio.sleep(chance.uniform(2, 6))
        elif what < 0.05:
            raise StartedAgain
        elif what < 0.06:
            await self.beat(link, epoch=IS_AWAY if self.instance else LEAVES)
            raise StartedAgain
        else:
            await asyncio.sleep(chance.expovariate(1 / 0.02))


def check_assignments(world: Clients) -> None:
    """No partition belongs to two members of the current generation."""
    for group in world.groups():
        if isinstance(group, Group):
            owned = [name for member in group.value.members for name in parse_assignment(member.assignment)]
            assert len(set(owned)) == len(owned), f"two members of generation {group.generation} own one partition"


def check_holders(world: Clients) -> None:
    """No partition may be read by two members, nor by one while another is still giving it up."""
    for group in world.groups():
        if isinstance(group, ConsumerGroup):
            values = [member.value for member in group.members.values()]
            held = [name for value in values for name in (*value.assigned, *value.revoking)]
            assert len(set(held)) == len(held), f"two members hold one partition in epoch {group.generation}"
