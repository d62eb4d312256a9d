"""Groups whose members are told what to read, on their log: who is dropped, what outlives a crash. In virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.test_groups import in_world, join
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.consumer_groups import Place
from flymq.broker.coordinators.groups import Committer
from flymq.broker.service.caller import Caller
from flymq.coordination.consumer_group import JOINS, LEAVES, Heartbeat
from flymq.coordination.entries import OffsetValue
from flymq.coordination.group import GroupState
from flymq.host.virtual_time import run
from flymq.model.errors import InvalidRequest, MemberEpochFenced, StaleMemberEpoch, UnknownMember
from flymq.model.names import TopicPartition

SESSION_S = 2.0  # as world.py sets it


async def beat(
    node: Broker, member: str, epoch: int = JOINS, *, owned: set[int] | None = None, topic: str = "orders"
) -> Place:
    joins = epoch == JOINS
    names = None if owned is None else frozenset(TopicPartition(topic, number) for number in owned)
    place, durable = node.groups.consumers.heartbeat(
        "g",
        Heartbeat(
            member,
            epoch,
            rebalance_timeout_ms=1_000 if joins else None,
            topics=(topic,) if joins else None,
            owned=frozenset() if joins else names,
        ),
    )
    if durable is not None:
        await durable
    return place


def numbers(place: Place) -> list[int]:
    assert place.assignment is not None
    return sorted(partition.partition for partition in place.assignment)


def test_a_group_may_have_a_session_timeout_and_a_heartbeat_interval_of_its_own() -> None:
    async def scenario(world: World, node: Broker) -> None:
        changes = {"consumer.session.timeout.ms": 20_000, "consumer.heartbeat.interval.ms": 700}
        await node.service.settings.alter_group(Caller("test"), "g", changes)
        await beat(node, "a")
        assert node.service.groups.beat_interval_ms(Caller("test"), "g") == 700
        assert node.service.groups.beat_interval_ms(Caller("test"), "other") == 3_000
        await asyncio.sleep(19)
        assert list(node.groups.get("g").members) == ["a"]
        await asyncio.sleep(2)
        assert list(node.groups.get("g").members) == []

    in_world(scenario)


def test_a_member_that_times_out_is_removed_and_another_gets_its_partitions() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await beat(node, "a")
        assert numbers(first) == [0, 1, 2, 3]
        second = await beat(node, "b")
        assert numbers(second) == []
        for _ in range(5):
            await asyncio.sleep(SESSION_S / 3)
            second = await beat(node, "b", second.epoch)
        assert list(node.groups.get("g").members) == ["b"]
        assert numbers(await beat(node, "b", second.epoch, owned={0, 1, 2, 3})) == [0, 1, 2, 3]
        with pytest.raises(UnknownMember):
            await beat(node, "a", first.epoch)

    in_world(scenario)


def test_a_member_that_keeps_what_it_is_told_to_give_up_is_dropped() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first, second = await beat(node, "a"), await beat(node, "b")
        first = await beat(node, "a", first.epoch)
        assert numbers(first) == [0, 1]
        for _ in range(4):
            await asyncio.sleep(0.4)
            second = await beat(node, "b", second.epoch)
            if "a" in node.groups.get("g").members:
                await beat(node, "a", first.epoch)
        assert list(node.groups.get("g").members) == ["b"]

    in_world(scenario)


def test_what_a_member_has_heard_survives_a_power_cut() -> None:
    async def scenario(world: World, node: Broker) -> None:
        heard = await beat(node, "a")
        await world.crash()
        node = await world.start()
        assert node.groups.get("g").assignments()["a"] == [TopicPartition("orders", number) for number in range(4)]
        assert (await beat(node, "a", heard.epoch)).epoch == heard.epoch

    in_world(scenario)


def test_a_member_without_an_id_is_given_one_and_a_group_needs_a_name() -> None:
    async def scenario(world: World, node: Broker) -> None:
        given = await beat(node, "")
        assert given.member_id in node.groups.get("g").members
        with pytest.raises(InvalidRequest):
            node.groups.consumers.heartbeat("", Heartbeat("a", JOINS))
        with pytest.raises(InvalidRequest):
            await beat(node, "", given.epoch)

    in_world(scenario)


def test_a_refused_heartbeat_leaves_no_group_behind() -> None:
    async def scenario(world: World, node: Broker) -> None:
        for epoch in (1, LEAVES):
            with pytest.raises(UnknownMember):
                await beat(node, "a", epoch)
        assert node.groups.list() == []

    in_world(scenario)


def test_offsets_are_taken_and_told_in_the_epoch_of_the_member() -> None:
    async def scenario(world: World, node: Broker) -> None:
        place = await beat(node, "a")
        offsets = {TopicPartition("orders", 0): OffsetValue(3)}
        node.groups.commit("g", Committer("a", place.epoch), offsets)
        node.groups.check_reader("g", "a", place.epoch)
        with pytest.raises(StaleMemberEpoch):
            node.groups.commit("g", Committer("a", place.epoch - 1), offsets)
        with pytest.raises(StaleMemberEpoch):
            node.groups.check_reader("g", "a", place.epoch - 1)
        with pytest.raises(MemberEpochFenced):
            await beat(node, "a", place.epoch + 1)
        await node.admin.delete("orders")
        assert node.groups.committed("g") == {}
        assert numbers(await beat(node, "a", place.epoch)) == []

    in_world(scenario)


def test_a_group_without_members_takes_those_of_either_protocol() -> None:
    async def scenario(world: World, node: Broker) -> None:
        place = await beat(node, "a")
        await beat(node, "a", LEAVES)
        assert node.groups.get("g").state is GroupState.EMPTY
        joined = await join(node)
        assert joined.generation > place.epoch

    in_world(scenario)


def test_a_hundred_members_come_one_by_one_and_settle_on_a_thousand_partitions() -> None:
    async def live() -> None:
        world = World()
        node = await world.start()
        await node.admin.create("wide", partitions=1000, settings={"persistence": "memory"})
        names = [f"m{number}" for number in range(100)]
        places = await asyncio.gather(*(beat(node, name, topic="wide") for name in names))
        for _ in range(3):
            assignments = node.groups.get("g").assignments()
            owned = [{partition.partition for partition in assignments[name]} for name in names]
            beats = zip(names, places, owned, strict=True)
            places = await asyncio.gather(
                *(beat(node, name, place.epoch, owned=has, topic="wide") for name, place, has in beats)
            )
        assert node.groups.get("g").state is GroupState.STABLE
        assert {len(held) for held in node.groups.get("g").assignments().values()} == {10}
        await world.close()

    run(live())
