"""Members of a group that read, transform and write exactly once: each step is one transaction with its offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from tests.simulation.producers import MUST_BEGIN_ANEW, Producer
from tests.simulation.world import Node, World

from flymq.broker.coordinators.consumer_groups import Place
from flymq.broker.coordinators.groups import Committer, Joined
from flymq.coordination.consumer_group import IS_AWAY, JOINS, LEAVES, Beat, ConsumerGroup
from flymq.coordination.entries import OffsetValue
from flymq.coordination.group import Group, Join
from flymq.coordination.subscriptions import Subscription, encode_subscription, parse_assignment
from flymq.model.delivery import Acks
from flymq.model.errors import (
    ConnectionLost,
    InstanceInUse,
    MemberEpochFenced,
    MemberFenced,
    RebalanceInProgress,
    StaleGeneration,
    StaleMemberEpoch,
    TransactionInProgress,
    UnknownMember,
)
from flymq.model.names import TopicPartition

GROUP = "workers"
LOST_PLACE = (UnknownMember, StaleGeneration, MemberFenced, MemberEpochFenced, InstanceInUse)


class Worker:
    """One member."""

    def __init__(self, world: World, number: int, assignor: str, *, instance: str = "") -> None:
        self.world = world
        self.producer = Producer(world, f"worker-{number}", number)
        self.assignor = assignor
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.share: list[TopicPartition] = []

    @property
    def committer(self) -> Committer:
        return Committer(self.member_id, self.generation, self.instance)

    async def run(self, is_done: Callable[[], bool]) -> None:
        """Work until everything is done, whatever happens."""
        while not is_done():
            try:
                await self.join()
                while not is_done():
                    await self.beat()
                    await self.work()
                    await self.stumble()
            except (RebalanceInProgress, StaleMemberEpoch):
                continue
            except LOST_PLACE:
                self.member_id, self.share = "", []
            except (ConnectionLost, TransactionInProgress):
                await asyncio.sleep(self.world.chance.uniform(0.01, 0.3))
            except MUST_BEGIN_ANEW:
                self.producer.identity = None

    async def beat(self) -> None:
        await self.world.call(lambda node: node.groups.heartbeat(GROUP, self.committer))

    async def leave(self) -> None:
        await self.world.call(lambda node: node.groups.leave(GROUP, self.member_id))

    async def join(self) -> None:
        """Get a share; give up what is no longer part of it before asking for the rest."""
        while True:
            owned = self.share if self.assignor == "cooperative-sticky" else []
            wanted = encode_subscription(Subscription(["in"], owned))
            join = Join(
                ((self.assignor, wanted),),
                self.member_id,
                self.instance,
                session_timeout_ms=2_000,
                rebalance_timeout_ms=3_000,
                assigned_by_broker=True,
            )
            joined = await self.world.call(partial(_join, join))
            self.member_id, self.generation = joined.member_id, joined.generation
            share = parse_assignment(await self.world.call(lambda node: node.groups.sync(GROUP, self.committer)))
            check_shares(self.world)
            is_smaller = bool(set(self.share) - set(share))
            self.share = share
            if not (is_smaller and self.assignor == "cooperative-sticky"):
                return

    async def work(self) -> None:
        """Copy a few records in one transaction."""
        chance = self.world.chance
        if not self.share:
            await asyncio.sleep(0.5)
            return
        partition = chance.choice(self.share)
        offset = await self.world.call(lambda node: self.position(node, partition))
        records = await self.world.call(lambda node: self.world.read(*partition))
        values = [record.value or b"" for record in records if record.offset >= offset]
        values = values[: chance.randint(1, 3)]
        if not values:
            await asyncio.sleep(0.1)
            return
        if self.producer.identity is None:
            await self.producer.init()
        await self.producer.begin()
        try:
            await self.producer.write(TopicPartition("out", chance.randrange(2)), values, Acks.ALL)
            if chance.random() < 0.5:
                await self.stumble()
            await self.commit_offset(partition, offset + len(values))
            if chance.random() < 0.5:
                await self.stumble()
            await self.producer.end(commit=True)
        except (RebalanceInProgress, StaleMemberEpoch, *LOST_PLACE):
            await self.producer.end(commit=False)
            raise

    async def position(self, node: Node, partition: TopicPartition) -> int:
        await node.groups.until_stable(GROUP, [partition])
        committed = node.groups.committed(GROUP).get(partition)
        return 0 if committed is None else committed.offset

    async def commit_offset(self, partition: TopicPartition, offset: int) -> None:
        identity, committer = self.producer.identity, self.committer
        assert identity is not None

        async def commit(node: Node) -> None:
            errors, waiting = node.transactions.commit_offsets(
                self.producer.name, identity, GROUP, committer, {partition: OffsetValue(offset)}
            )
            assert not errors
            await asyncio.gather(*waiting)

        await self.producer.retry(commit)

    async def stumble(self) -> None:
        """Now and then, be gone for longer than the group waits, forget who one is, or leave."""
        chance = self.world.chance
        what = chance.random()
        if what < 0.03:
            await asyncio.sleep(chance.uniform(2, 6))
        elif what < 0.05:
            self.member_id, self.share, self.producer.identity = "", [], None
            raise ConnectionLost("the member has started again")
        elif what < 0.06 and not self.instance:
            await self.leave()
            self.member_id, self.share = "", []
            raise ConnectionLost("the member has left")
        else:
            await asyncio.sleep(chance.expovariate(1 / 0.02))


class ToldWorker(Worker):
    """A member that the broker tells what to read, at its heartbeats."""

    def __init__(self, world: World, number: int, assignor: str, *, instance: str = "") -> None:
        super().__init__(world, number, assignor, instance=instance)
        self.number = number
        self.lives = 0
        self.must_tell = True

    async def join(self) -> None:
        if self.member_id:
            return  # it was told to wait, and still has its place
        self.lives += 1
        self.member_id, self.generation, self.share = f"member-{self.number}-{self.lives}", JOINS, []
        await self.beat()

    async def beat(self) -> None:
        """Say what has changed; go on with what the answer allows. What is lost is let go of at once."""
        is_joining = self.generation == JOINS
        beat = Beat(
            self.member_id,
            self.generation,
            self.instance,
            rebalance_timeout_ms=3_000,
            topics=("in",) if is_joining or self.must_tell else None,
            assignor=self.assignor,
            owned=frozenset(self.share) if is_joining or self.must_tell else None,
        )
        self.must_tell = True  # until the answer is there
        place = await self.world.call(partial(_beat, beat))
        check_holders(self.world)
        self.generation = place.epoch
        self.must_tell = place.share is not None and set(place.share) != set(self.share)
        if place.share is not None:
            self.share = list(place.share)

    async def leave(self) -> None:
        beat = Beat(self.member_id, IS_AWAY if self.instance else LEAVES, self.instance)
        await self.world.call(partial(_beat, beat))


async def _beat(beat: Beat, node: Node) -> Place:
    place, durable = node.groups.consumers.heartbeat(GROUP, beat)
    if durable is not None:
        await durable
    return place


def check_holders(world: World) -> None:
    """No partition may be read by two members, nor by one while another is still giving it up."""
    for group in [] if world.node is None else world.node.groups.list():
        if isinstance(group, ConsumerGroup):
            values = [member.value for member in group.members.values()]
            held = [name for value in values for name in (*value.assigned, *value.revoking)]
            assert len(set(held)) == len(held), f"two members hold one partition in epoch {group.generation}"


def _join(join: Join, node: Node) -> asyncio.Future[Joined]:
    return node.groups.join(GROUP, join)


def check_shares(world: World) -> None:
    """No partition belongs to two members of the current generation."""
    for group in [] if world.node is None else world.node.groups.list():
        assert isinstance(group, Group)
        shares = [name for member in group.value.members for name in parse_assignment(member.share)]
        assert len(set(shares)) == len(shares), f"two members of generation {group.generation} own one partition"
