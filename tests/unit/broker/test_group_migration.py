"""A running group moves from the classic protocol to the consumer protocol and back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from tests.unit.broker.test_consumer_groups import SESSION_S, beat, numbers
from tests.unit.broker.test_groups import assigned, commit, in_world, join, offsets
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.groups import Committer, Joined
from flymq.coordination.consumer_group import LEAVES, ConsumerGroup
from flymq.coordination.group import Group, GroupState, Join
from flymq.coordination.subscriptions import Subscription, encode_assignment, encode_subscription
from flymq.model.errors import OtherGroupType, RebalanceInProgress, StaleGeneration
from flymq.model.names import TopicPartition


def cooperative(member_id: str = "", owned: Iterable[int] = ()) -> Join:
    partitions = [TopicPartition("orders", number) for number in owned]
    wanted = encode_subscription(Subscription(["orders"], partitions))
    return Join((("cooperative-sticky", wanted),), member_id, session_timeout_ms=10_000, rebalance_timeout_ms=5_000)


async def rejoin(node: Broker, member: Joined) -> Joined:
    """Join again when the heartbeat says so, as an eager client does."""
    with pytest.raises(RebalanceInProgress):
        node.groups.heartbeat("g", Committer(member.member_id, member.generation))
    return await join(node, member.member_id)


def test_a_classic_group_is_upgraded_by_a_member_of_the_consumer_protocol_and_downgraded_when_it_leaves() -> None:
    async def scenario(world: World, node: Broker) -> None:
        classic = await join(node)
        assert await assigned(node, classic) == [0, 1, 2, 3]
        await commit(node, 5, Committer(classic.member_id, classic.generation))
        place = await beat(node, "new")
        assert (type(node.groups.get("g")), numbers(place)) == (ConsumerGroup, [])
        classic = await rejoin(node, classic)
        assert classic.leader == ""
        assert await assigned(node, classic) == [0, 1]
        node.groups.heartbeat("g", Committer(classic.member_id, classic.generation))
        place = await beat(node, "new", place.epoch)
        assert numbers(place) == [2, 3]
        await commit(node, 6, Committer(classic.member_id, classic.generation))
        await beat(node, "new", LEAVES)
        group = node.groups.get("g")
        assert (type(group), group.state) == (Group, GroupState.PREPARING)
        again = await rejoin(node, classic)
        assert again.generation > classic.generation
        assert await assigned(node, again) == [0, 1, 2, 3]
        assert offsets(node) == {TopicPartition("orders", 0): 6}

    in_world(scenario)


def test_a_cooperative_member_keeps_reading_what_it_keeps_during_an_upgrade() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await node.groups.join("g", cooperative())
        everything = encode_assignment(TopicPartition("orders", number) for number in range(4))
        member = Committer(first.member_id, first.generation)
        await node.groups.sync("g", member, {first.member_id: everything})
        place = await beat(node, "new")
        told = await node.groups.join("g", cooperative(first.member_id, range(4)))
        assert told.generation == first.generation, "it has not revoked anything yet"
        assert await assigned(node, told) == [0, 1]
        await commit(node, 5, Committer(told.member_id, told.generation), TopicPartition("orders", 3))
        assert (await beat(node, "new", place.epoch)).assignment is None
        told = await node.groups.join("g", cooperative(first.member_id, [0, 1]))
        assert await assigned(node, told) == [0, 1]
        assert numbers(await beat(node, "new", place.epoch)) == [2, 3]
        with pytest.raises(StaleGeneration):
            await commit(node, 6, member, TopicPartition("orders", 3))

    in_world(scenario)


def test_a_classic_member_joins_a_consumer_group_and_is_told_when_its_partitions_are_free() -> None:
    async def scenario(world: World, node: Broker) -> None:
        place = await beat(node, "new")
        classic = await join(node)
        assert await assigned(node, classic) == []
        node.groups.heartbeat("g", Committer(classic.member_id, classic.generation))
        place = await beat(node, "new", place.epoch)
        await beat(node, "new", place.epoch, owned={0, 1})
        classic = await rejoin(node, classic)
        assert await assigned(node, classic) == [2, 3]
        node.groups.leave("g", classic.member_id)
        assert isinstance(node.groups.get("g"), ConsumerGroup)
        assert numbers(await beat(node, "new", place.epoch + 1, owned={0, 1})) == [0, 1, 2, 3]

    in_world(scenario)


def test_members_that_wait_for_a_classic_generation_are_told_to_join_again() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await join(node, native=False)
        await node.groups.sync("g", Committer(first.member_id, first.generation))
        waiting = asyncio.ensure_future(join(node, native=False))
        await asyncio.sleep(0)
        await beat(node, "new")
        with pytest.raises(RebalanceInProgress):
            await waiting
        again = await join(node, first.member_id)
        assert again.generation > first.generation

    in_world(scenario)


def test_a_member_of_the_consumer_protocol_that_times_out_leaves_a_classic_group_behind() -> None:
    async def scenario(world: World, node: Broker) -> None:
        classic = await join(node)
        await assigned(node, classic)
        await beat(node, "new")
        classic = await rejoin(node, classic)
        await asyncio.sleep(SESSION_S + 0.1)
        assert isinstance(node.groups.get("g"), Group)
        assert await assigned(node, await rejoin(node, classic)) == [0, 1, 2, 3]

    in_world(scenario)


def test_a_group_of_both_protocols_survives_a_crash() -> None:
    async def scenario(world: World, node: Broker) -> None:
        classic = await join(node)
        await assigned(node, classic)
        place = await beat(node, "new")
        classic = await rejoin(node, classic)
        place = await beat(node, "new", place.epoch)
        await world.crash()
        node = await world.start()
        node.groups.heartbeat("g", Committer(classic.member_id, classic.generation))
        assert await assigned(node, classic) == [0, 1]
        assert numbers(await beat(node, "new", place.epoch, owned={2, 3})) == [2, 3]

    in_world(scenario)


def test_a_group_that_does_not_consist_of_consumers_stays_classic() -> None:
    async def scenario(world: World, node: Broker) -> None:
        connect = Join((("v1", b"?"),), kind="connect", session_timeout_ms=10_000)
        await node.groups.join("g", connect)
        with pytest.raises(OtherGroupType):
            await beat(node, "new")
        assert isinstance(node.groups.get("g"), Group)

    in_world(scenario)
