"""Whatever happens while the controller looks at the partitions, nobody counts on a broker whose losses are not known.

Brokers restart at any time, having lost records or not; leaders change the in-sync replicas; connections are lost. The
store is watched by itself, revision by revision: when a lossy registration is admitted, no partition has that broker
in sync, unless nobody else was; and no leader is made of a registration that was not admitted.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.unit.cluster.test_controller import TOPIC, World

from flymq.cluster.brokers import Kept, registration_key
from flymq.cluster.catalog import NO_LEADER, PartitionState
from flymq.cluster.elections import change_isr
from flymq.cluster.image import Image
from flymq.host.virtual_time import run
from flymq.metadata.store import created_at
from flymq.model.topic_config import TopicConfig

BROKERS = (1, 2, 3)
PARTITIONS = 30


class Witness:
    """Follows the store by itself and checks every revision."""

    def __init__(self, world: World) -> None:
        self.image = Image(world.store, TopicConfig())
        self._live: dict[int, int] = {}
        self._leaders: dict[int, tuple[int, int]] = {}
        self.admitted = self.elected = 0

    async def begin(self) -> None:
        await self.image.load()
        self._live = self._epochs()
        self.image.member_watchers.append(self._look)
        self.image.watchers.append(lambda _: self._look())

    def _epochs(self) -> dict[int, int]:
        return {each.broker_id: each.epoch for each in self.image.members if each.is_live}

    def _look(self) -> None:
        live, topic = self._epochs(), self.image.find("orders")
        if topic is None:
            return
        for broker_id in live.keys() - self._live.keys() | {b for b in live if live[b] != self._live.get(b)}:
            member = self.image.members.find(broker_id)
            assert member is not None
            self.admitted += 1
            for state in topic.partitions:
                assert state.leader != broker_id, "it leads with the epoch of its last life"
                if member.registration.kept < Kept.WRITTEN:
                    assert broker_id not in state.isr or state.isr == [broker_id], "it may have lost records"
        for number, state in enumerate(topic.partitions):
            leads = state.leader, state.leader_epoch
            if leads != self._leaders.get(number, leads) and state.leader != NO_LEADER:
                self.elected += 1
                # When it was elected, it was registered and admitted; it may have been fenced since.
                assert self.image.members.find(state.leader) is not None, "a leader that was gone already"
            self._leaders[number] = leads
        self._live = live


async def grow(world: World, chance: random.Random) -> None:
    """A leader lets a follower into the in-sync replicas, as broker/replicas/in_sync.py does."""
    leader = chance.choice(list(world.nodes))
    image = world.nodes[leader].image
    number = chance.randrange(PARTITIONS)
    before = image.get("orders").partitions[number]
    follower = chance.choice(BROKERS)
    me, member = image.members.find(leader), image.members.find(follower)
    if before.leader != leader or me is None or member is None or not member.is_live:
        return
    after = change_isr(before, {*before.isr, follower}, min_isr=2)
    compares = [created_at(registration_key(each.broker_id), each.epoch) for each in (me, member)]
    await world.catalog.change_state(TOPIC, number, before, after, compares)


async def happen(world: World, chance: random.Random) -> None:
    broker_id = chance.choice(BROKERS)
    if chance.random() < 0.6:
        for _ in range(chance.randrange(1, 20)):
            await grow(world, chance)
    elif broker_id in world.nodes and len(world.nodes) > 1:
        epoch = world.kill_9(broker_id)
        if chance.random() < 0.7:
            world.lose_connections(broker_id, epoch)
    elif broker_id not in world.nodes:
        world.settle_s = 0.0
        await world.start(broker_id, was_clean=chance.random() < 0.3)
    await asyncio.sleep(chance.choice((0, 0, 0.001, 0.01, 0.3)))


@pytest.mark.parametrize("seed", range(12))
def test_nobody_counts_on_a_broker_whose_losses_are_not_known(seed: int) -> None:
    async def live() -> None:
        chance = random.Random(seed)
        world = World()
        states = [PartitionState(leader, 0, [1, 2, 3], [1, 2, 3]) for leader in (1, 2, 3) * (PARTITIONS // 3)]
        for broker_id in BROKERS:
            await world.start(broker_id)
        await world.create(*states, min_isr=2)
        witness = Witness(world)
        await witness.begin()
        following = asyncio.ensure_future(witness.image.follow())
        for _ in range(60):
            await happen(world, chance)
        world.settle_s = 2.0
        for broker_id in BROKERS:
            if broker_id not in world.nodes:
                await world.start(broker_id)
        await world.settle()
        assert witness.image.members.live == set(BROKERS)
        topic = witness.image.get("orders")
        assert all(state.leader in state.isr for state in topic.partitions), "a partition that nobody leads"
        assert witness.admitted > 3 and witness.elected > 10
        following.cancel()
        await world.close()

    run(live())
