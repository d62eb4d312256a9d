"""Members of groups that live on the broker: REST consumers, as the service has them. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.state_log import OFFSETS
from flymq.broker.safety import wait_safe
from flymq.broker.service.caller import Caller
from flymq.broker.service.groups import NewOffset
from flymq.broker.service.members import Member, NewMember, Taken
from flymq.coordination.group import Group
from flymq.host.tasks import run_steps_here
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.errors import ConsumerNotFound, NotCoordinator, NotLeader, OffsetOutOfRange
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch

OTHER = 7
"""Another broker."""
CALLER = Caller("rest", "10.0.0.1")
SESSION_MS = 6_000
PARTITIONS = 4


def in_world(scenario: Callable[[World, Broker], Awaitable[None]], **options: Any) -> None:
    async def live() -> None:
        world = World(quick_disk=True, **options)
        node = await world.start()
        await world.create_topic("orders", PARTITIONS)
        await scenario(world, node)
        await world.close()

    run(live())


async def consumer(node: Broker, **wanted: Any) -> Member:
    return await node.service.members.add(CALLER, NewMember("g", ["orders"], SESSION_MS, **wanted))


async def poll(member: Member, *, wait_s: float = 0, limit: int = 100) -> Taken:
    return await member.poll(limit=limit, bytes_max=1 << 20, wait_ms=int(wait_s * 1000))


async def values(member: Member, **options: Any) -> list[bytes | None]:
    taken = await poll(member, **options)
    return [record.value for part in taken.parts for record in part.records]


def produce(world: World, partition: int, *some: bytes) -> None:
    world.partition("orders", partition).append(encode_batch([(None, value) for value in some]), Acks.LEADER)


def numbers(member: Member) -> list[int]:
    """Return the partitions that a member reads."""
    return sorted(name.partition for name in member.positions)


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def settle() -> None:
    await asyncio.sleep(0.05)


# --- join and rebalance


def test_a_lone_consumer_reads_every_partition() -> None:
    async def scenario(world: World, node: Broker) -> None:
        member = await consumer(node)
        assert numbers(member) == [0, 1, 2, 3]
        assert node.service.members.get("g", member.member_id) is member

    in_world(scenario)


def test_a_second_consumer_gets_its_part_at_once_though_the_first_does_not_poll() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await consumer(node)
        began_s = now_s()
        second = await consumer(node)
        await settle()
        assert sorted(numbers(first) + numbers(second)) == [0, 1, 2, 3]
        assert len(numbers(first)) == len(numbers(second)) == 2
        assert first.generation == second.generation
        assert now_s() - began_s < 0.2, "nobody waits for a poll, a heartbeat or a tick"

    in_world(scenario)


def test_a_consumer_that_leaves_gives_its_part_to_the_other_at_once() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first, second = await consumer(node), await consumer(node)
        await settle()
        second.leave()
        await settle()
        assert numbers(first) == [0, 1, 2, 3]
        with pytest.raises(ConsumerNotFound):
            node.service.members.get("g", second.member_id)

    in_world(scenario)


def test_a_long_poll_is_interrupted_by_a_rebalance_and_goes_on_with_its_new_assignment() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await consumer(node)
        polling = asyncio.ensure_future(poll(first, wait_s=5))
        await asyncio.sleep(1.0003)
        second = await consumer(node)
        await settle()
        assert not polling.done() and len(numbers(first)) == 2
        kept = numbers(first)[0]
        produce(world, numbers(second)[0], b"of the other")
        produce(world, kept, b"mine")
        began_s = now_s()
        taken = await polling
        assert [(part.name.partition, part.records[0].value) for part in taken.parts] == [(kept, b"mine")]
        assert now_s() - began_s < 0.01

    in_world(scenario)


def test_an_interrupted_poll_without_records_ends_when_its_time_is_over() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await consumer(node)
        began_s = now_s()
        polling = asyncio.ensure_future(poll(first, wait_s=3))
        await asyncio.sleep(1.0003)
        await consumer(node)
        assert (await polling).parts == []
        assert 3 <= now_s() - began_s < 3.01

    in_world(scenario)


@pytest.mark.parametrize("turns", range(0, 40, 4))
def test_however_close_together_consumers_join_nobody_waits_for_the_end_of_a_poll(turns: int) -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await consumer(node)
        polling = asyncio.ensure_future(poll(first, wait_s=5))
        await asyncio.sleep(0.1)
        began_s = now_s()
        second = asyncio.ensure_future(consumer(node))
        for _ in range(turns):
            await asyncio.sleep(0)
        third = asyncio.ensure_future(consumer(node))
        members = [first, await second, await third]
        await settle()
        assert now_s() - began_s < 0.3
        assert sorted(number for member in members for number in numbers(member)) == [0, 1, 2, 3]
        assert len({member.generation for member in members}) == 1
        polling.cancel()

    in_world(scenario)


def test_a_consumer_without_a_partition_is_woken_when_it_gets_one() -> None:
    async def scenario(world: World, node: Broker) -> None:
        members = [await consumer(node) for _ in range(PARTITIONS + 1)]
        await settle()
        (idle,) = [member for member in members if not member.positions]
        polling = asyncio.ensure_future(values(idle, wait_s=5))
        await asyncio.sleep(0.5)
        for partition in range(PARTITIONS):
            produce(world, partition, b"x")
        next(member for member in members if member is not idle).leave()
        assert await polling == [b"x"]
        assert len(numbers(idle)) == 1

    in_world(scenario)


def test_a_new_partition_of_a_topic_is_read_without_anybody_joining() -> None:
    async def scenario(world: World, node: Broker) -> None:
        member = await consumer(node)
        await node.admin.add_partitions("orders", PARTITIONS + 1)
        await settle()
        produce(world, PARTITIONS, b"new")
        assert await values(member) == [b"new"]

    in_world(scenario)


# --- who is there, and who is not


def test_a_consumer_that_is_silent_for_its_session_timeout_is_removed() -> None:
    async def scenario(world: World, node: Broker) -> None:
        member = await consumer(node)
        await asyncio.sleep(SESSION_MS / 1000 + 1)
        with pytest.raises(ConsumerNotFound):
            node.service.members.get("g", member.member_id)
        assert len(node.service.members) == 0
        group = node.groups.get("g")
        assert isinstance(group, Group) and not group.members
        with pytest.raises(ConsumerNotFound):
            await poll(member)
        with pytest.raises(ConsumerNotFound):
            member.commit({TopicPartition("orders", 0): NewOffset(1)})

    in_world(scenario)


def test_a_consumer_that_asks_now_and_then_stays() -> None:
    async def scenario(world: World, node: Broker) -> None:
        member = await consumer(node)
        for _ in range(10):
            await asyncio.sleep(SESSION_MS / 1000 * 0.9)
            node.service.members.get("g", member.member_id).heartbeat()
        assert numbers(member) == [0, 1, 2, 3]

    in_world(scenario)


def test_a_poll_that_is_longer_than_the_session_keeps_the_consumer_alive() -> None:
    async def scenario(world: World, node: Broker) -> None:
        member = await consumer(node)
        began_s = now_s()
        assert (await poll(member, wait_s=5 * SESSION_MS / 1000)).parts == []
        assert now_s() - began_s == pytest.approx(5 * SESSION_MS / 1000, abs=0.01)
        assert node.service.members.get("g", member.member_id) is member

    in_world(scenario)


def test_a_poll_of_a_consumer_that_is_removed_ends_at_once() -> None:
    async def scenario(world: World, node: Broker) -> None:
        member = await consumer(node)
        polling = asyncio.ensure_future(poll(member, wait_s=5))
        await asyncio.sleep(0.1)
        member.leave()
        began_s = now_s()
        with pytest.raises(ConsumerNotFound):
            await polling
        assert now_s() - began_s < 0.1

    in_world(scenario)


def test_a_static_consumer_that_comes_back_takes_the_place_of_the_old_one() -> None:
    async def scenario(world: World, node: Broker) -> None:
        old = await consumer(node, instance="shelf-1")
        new = await consumer(node, instance="shelf-1")
        assert numbers(new) == [0, 1, 2, 3] and new.member_id != old.member_id
        with pytest.raises(ConsumerNotFound):
            await poll(old)
        assert len(node.service.members) == 1

    in_world(scenario)


def test_consumers_of_a_group_that_another_broker_coordinates_are_gone_from_here() -> None:
    async def scenario(world: World, node: Broker) -> None:
        member = await consumer(node)
        polling = asyncio.ensure_future(poll(member, wait_s=5))
        await asyncio.sleep(0.1)
        await world.elect(TopicPartition(OFFSETS, 0), OTHER)
        with pytest.raises(NotCoordinator):
            await polling
        with pytest.raises(ConsumerNotFound):
            node.service.members.get("g", member.member_id)
        assert len(node.service.members) == 0

    in_world(scenario, internal_partitions=1)


def test_a_coordinator_lost_in_the_middle_of_a_rebalance_takes_its_consumers_along() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await consumer(node)
        joining = asyncio.ensure_future(consumer(node))
        await asyncio.sleep(0)
        await world.elect(TopicPartition(OFFSETS, 0), OTHER)
        await asyncio.gather(joining, return_exceptions=True)
        await settle()
        assert len(node.service.members) == 0

    in_world(scenario, internal_partitions=1)


def test_a_consumer_that_could_not_begin_is_no_member() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.elect(TopicPartition("orders", 3), OTHER)
        with pytest.raises(NotLeader):
            await consumer(node)
        assert len(node.service.members) == 0
        group = node.groups.get("g")
        assert isinstance(group, Group) and not group.members

    in_world(scenario)


def test_what_went_wrong_in_a_rebalance_is_told_by_the_next_poll() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first, second = await consumer(node), await consumer(node)
        await settle()
        moved = TopicPartition("orders", numbers(second)[0])
        await world.elect(moved, OTHER)
        second.leave()
        await settle()
        with pytest.raises(NotLeader):
            await poll(first)
        await world.elect(moved, world.broker_id)
        produce(world, moved.partition, b"x")
        await settle()  # it is the only in-sync replica: visible is what is on its disk
        assert await values(first) == [b"x"]
        assert numbers(first) == [0, 1, 2, 3]

    in_world(scenario)


@pytest.mark.parametrize("turns", range(12))
def test_a_poll_that_is_given_up_in_the_middle_of_a_rebalance_leaves_no_old_assignment(turns: int) -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await consumer(node)
        polling = asyncio.ensure_future(poll(first, wait_s=5))
        await asyncio.sleep(0.1)
        joining = asyncio.ensure_future(consumer(node))
        for _ in range(turns):
            await asyncio.sleep(0)
        polling.cancel()
        await settle()
        assert (await poll(first)).parts == []
        second = await joining
        await settle()
        assert sorted(numbers(first) + numbers(second)) == [0, 1, 2, 3]

    in_world(scenario)


# --- positions


def test_two_polls_at_once_never_give_the_same_record_twice() -> None:
    async def scenario(world: World, node: Broker) -> None:
        member = await consumer(node)
        for partition in range(PARTITIONS):
            produce(world, partition, *(b"%d-%d" % (partition, at) for at in range(25)))
        polls = await asyncio.gather(*(values(member, limit=10) for _ in range(12)))
        given = [value for some in polls for value in some]
        assert len(given) == len(set(given)) == 100

    in_world(scenario)


def test_two_long_polls_at_once_share_what_comes() -> None:
    async def scenario(world: World, node: Broker) -> None:
        member = await consumer(node)
        polls = [asyncio.ensure_future(values(member, wait_s=5)) for _ in range(2)]
        await asyncio.sleep(0.1)
        produce(world, 0, b"a")
        await asyncio.sleep(0.1)
        produce(world, 1, b"b")
        assert sorted(await asyncio.gather(*polls)) == [[b"a"], [b"b"]]

    in_world(scenario)


def test_a_partition_that_moves_is_read_on_from_what_was_committed() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await consumer(node)
        for partition in range(PARTITIONS):
            produce(world, partition, b"old", b"new")
        assert len(await values(first, limit=8)) == 8
        _, safe = first.commit({TopicPartition("orders", at): NewOffset(1) for at in range(PARTITIONS)})
        await wait_safe(safe)
        second = await consumer(node)
        await settle()
        assert await values(second) == [b"new", b"new"]
        assert await values(first) == [], "what it keeps, it reads on from its own position"

    in_world(scenario)


def test_a_committed_offset_that_is_deleted_begins_anew_where_the_consumer_wants() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await consumer(node)
        produce(world, 0, b"a", b"b", b"c")
        _, safe = first.commit({TopicPartition("orders", 0): NewOffset(1)})
        await wait_safe(safe)
        first.leave()
        run_steps_here(world.partition("orders", 0).delete_before(2))
        assert await values(await consumer(node)) == [b"c"]

    in_world(scenario)


def test_the_error_of_one_partition_does_not_swallow_the_records_of_others() -> None:
    async def scenario(world: World, node: Broker) -> None:
        member = await consumer(node)
        produce(world, 0, b"a", b"b")
        produce(world, 1, b"c")
        run_steps_here(world.partition("orders", 0).delete_before(2))
        member.positions[TopicPartition("orders", 0)] = 0  # where there are no records any more
        assert await values(member) == [b"c"]
        with pytest.raises(OffsetOutOfRange):
            await poll(member)
        produce(world, 2, b"d")
        assert await values(member) == [b"d"]

    in_world(scenario)


def test_a_deleted_topic_leaves_the_consumer_with_its_others() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("bills", 1)
        member = await node.service.members.add(CALLER, NewMember("g", ["orders", "bills"], SESSION_MS))
        await node.admin.delete("bills")
        await settle()
        produce(world, 0, b"a")
        assert await values(member) == [b"a"]
        assert {name.topic for name in member.positions} == {"orders"}

    in_world(scenario)


def test_a_limit_leaves_the_rest_for_the_next_poll() -> None:
    async def scenario(world: World, node: Broker) -> None:
        member = await consumer(node)
        produce(world, 0, b"a", b"b", b"c")
        assert await values(member, limit=2) == [b"a", b"b"]
        assert await values(member, limit=2) == [b"c"]

    in_world(scenario)
