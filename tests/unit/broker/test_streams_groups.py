"""Streams groups on their log: tasks move, members time out, crashes are survived. In virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.test_consumer_groups import SESSION_S
from tests.unit.broker.test_consumer_groups import beat as consumer_beat
from tests.unit.broker.test_groups import commit, in_world, join, offsets
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.groups import Committer
from flymq.broker.coordinators.streams_groups import StreamsPlace
from flymq.coordination.consumer_group import JOINS, LEAVES
from flymq.coordination.entries import InternalTopicValue, SubtopologyValue, TaskId, TasksValue, TopologyValue
from flymq.coordination.group import GroupState
from flymq.coordination.streams_group import NO_TASKS, StreamsHeartbeat
from flymq.coordination.streams_topology import Status
from flymq.model.errors import (
    InvalidRequest,
    MemberEpochFenced,
    OtherGroupType,
    StaleMemberEpoch,
    UnknownMember,
)
from flymq.model.names import TopicPartition

PLAIN = TopologyValue(1, (SubtopologyValue("0", ("orders",)),))
COUNTING = TopologyValue(1, (SubtopologyValue("0", ("orders",), changelogs=(InternalTopicValue("state"),)),))


async def beat(
    node: Broker, member: str, epoch: int = JOINS, owned: set[int] | None = None, topology: TopologyValue = PLAIN
) -> StreamsPlace:
    joins = epoch == JOINS
    tasks = None if owned is None else TasksValue(tuple(TaskId("0", number) for number in sorted(owned)))
    place, durable = node.groups.streams.heartbeat(
        "g",
        StreamsHeartbeat(
            member,
            epoch,
            rebalance_timeout_ms=1_000 if joins else None,
            topology=topology if joins else None,
            process_id=member if joins else None,
            endpoint=(member, 80) if joins else None,
            owned=NO_TASKS if joins else tasks,
        ),
    )
    if durable is not None:
        await durable
    return place


def numbers(place: StreamsPlace) -> list[int]:
    assert place.tasks is not None
    return [task.partition for task in place.tasks.active]


def test_tasks_move_to_a_second_member_when_the_first_has_given_them_up() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await beat(node, "a")
        assert numbers(first) == [0, 1, 2, 3]
        second = await beat(node, "b")
        assert numbers(second) == []
        told = await beat(node, "a", first.epoch)
        assert numbers(told) == [0, 1]
        assert (await beat(node, "b", second.epoch)).tasks is None
        assert node.groups.get("g").state is GroupState.RECONCILING
        done = await beat(node, "a", told.epoch, {0, 1})
        second = await beat(node, "b", second.epoch)
        assert (numbers(second), second.epoch) == ([2, 3], done.epoch)
        assert node.groups.get("g").state is GroupState.STABLE
        assert node.groups.get("g").assignments()["b"] == [TopicPartition("orders", 2), TopicPartition("orders", 3)]
        assert second.endpoints is not None
        assert {each.address[0]: len(each.active) for each in second.endpoints} == {"a": 2, "b": 2}

    in_world(scenario)


def test_a_member_that_times_out_or_leaves_hands_its_tasks_over() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await beat(node, "a")
        second = await beat(node, "b")
        for _ in range(5):
            await asyncio.sleep(SESSION_S / 3)
            second = await beat(node, "b", second.epoch)
        assert numbers(await beat(node, "b", second.epoch - 1, set())) == [0, 1, 2, 3]
        with pytest.raises(UnknownMember):
            await beat(node, "a", first.epoch)
        await beat(node, "b", LEAVES)
        assert node.groups.get("g").state is GroupState.EMPTY

    in_world(scenario)


def test_members_wait_until_the_internal_topics_are_there() -> None:
    async def scenario(world: World, node: Broker) -> None:
        place = await beat(node, "a", topology=COUNTING)
        assert [status for status, _ in place.statuses] == [Status.MISSING_INTERNAL_TOPICS]
        assert [(topic.name, topic.partitions) for topic in place.missing] == [("state", 4)]
        assert node.groups.get("g").state is GroupState.NOT_READY
        await world.create_topic("state", 4)
        place = await beat(node, "a", place.epoch, set())
        assert (numbers(place), list(place.statuses), place.missing) == ([0, 1, 2, 3], [], ())
        await node.admin.delete("orders")
        place = await beat(node, "a", place.epoch)
        assert numbers(place) == []
        assert [status for status, _ in place.statuses] == [Status.MISSING_SOURCE_TOPICS]

    in_world(scenario)


def test_a_group_survives_a_power_cut() -> None:
    async def scenario(world: World, node: Broker) -> None:
        place = await beat(node, "a")
        await commit(node, 5, Committer("a", place.epoch))
        await world.crash()
        node = await world.start()
        assert (await beat(node, "a", place.epoch)).epoch == place.epoch
        assert node.groups.get("g").state is GroupState.STABLE
        assert offsets(node) == {TopicPartition("orders", 0): 5}

    in_world(scenario)


def test_a_member_commits_with_an_older_epoch_only_for_tasks_it_has_held_since() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await beat(node, "a")
        await beat(node, "b")
        await beat(node, "a", first.epoch)
        second = await beat(node, "a", first.epoch, {0, 1})
        assert second.epoch > first.epoch
        await commit(node, 6, Committer("a", first.epoch))
        with pytest.raises(StaleMemberEpoch):
            await commit(node, 6, Committer("a", first.epoch), TopicPartition("orders", 2))
        with pytest.raises(MemberEpochFenced):
            await beat(node, "a", second.epoch + 1)

    in_world(scenario)


def test_a_running_group_keeps_its_topology_and_its_protocol() -> None:
    async def scenario(world: World, node: Broker) -> None:
        place = await beat(node, "a")
        with pytest.raises(InvalidRequest):
            await beat(node, "b", topology=COUNTING)
        stale = await beat(node, "b", topology=TopologyValue(0))
        assert [status for status, _ in stale.statuses] == [Status.STALE_TOPOLOGY]
        with pytest.raises(OtherGroupType):
            await join(node)
        with pytest.raises(OtherGroupType):
            await consumer_beat(node, "c")
        for member in "ab":
            await beat(node, member, LEAVES)
        again = await beat(node, "a", topology=COUNTING)
        assert again.epoch > place.epoch
        await beat(node, "a", LEAVES)
        assert (await join(node)).generation > again.epoch

    in_world(scenario)


def test_a_member_that_fails_can_stop_all_others() -> None:
    async def scenario(world: World, node: Broker) -> None:
        places = {name: await beat(node, name) for name in "ab"}
        node.groups.streams.heartbeat("g", StreamsHeartbeat("a", LEAVES, shuts_down=True))
        told = await beat(node, "b", places["b"].epoch)
        assert [status for status, _ in told.statuses] == [Status.SHUTDOWN_APPLICATION]
        await beat(node, "b", LEAVES)
        assert list((await beat(node, "b")).statuses) == []

    in_world(scenario)
