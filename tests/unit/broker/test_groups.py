"""Groups on their log: who waits, who is dropped, what outlives a crash. In virtual time, on a simulated disk."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.groups import Committer, Joined
from flymq.broker.replicas.maintenance import Maintenance
from flymq.coordination.entries import OffsetValue, ProducerIdentity
from flymq.coordination.group import GroupState, Join
from flymq.coordination.subscriptions import (
    Subscription,
    encode_assignment,
    encode_subscription,
    parse_assignment,
)
from flymq.host.tasks import InlineThreads, run_steps_here
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.errors import (
    GroupFull,
    GroupNotEmpty,
    InvalidRequest,
    InvalidSessionTimeout,
    MemberFenced,
    MemberIdRequired,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMember,
)
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch

DAY_S = 24 * 60 * 60
ORDERS = TopicPartition("orders", 0)
OUTSIDE = Committer()


def a_join(member_id: str = "", instance: str = "", *, session_s: float = 10, native: bool = True) -> Join:
    wanted = encode_subscription(Subscription(["orders"]))
    return Join(
        (("range", wanted),),
        member_id,
        instance,
        session_timeout_ms=int(session_s * 1000),
        rebalance_timeout_ms=5_000,
        assigned_by_broker=native,
    )


def in_world(scenario: Any, **options: Any) -> None:
    """Run a scenario with a broker that has the topic `orders`."""

    async def live() -> None:
        world = World(**options)
        node = await world.start()
        await world.create_topic("orders", 4)
        await scenario(world, node)
        await world.close()

    run(live())


async def join(node: Broker, member_id: str = "", instance: str = "", **options: Any) -> Joined:
    return await node.groups.join("g", a_join(member_id, instance, **options))


async def assigned(node: Broker, joined: Joined) -> list[int]:
    raw = await node.groups.sync("g", Committer(joined.member_id, joined.generation))
    return [partition.partition for partition in parse_assignment(raw)]


async def commit(node: Broker, offset: int, committer: Committer = OUTSIDE, partition: TopicPartition = ORDERS) -> None:
    value = OffsetValue(offset, committed_at_ms=node.clock.now_ms())
    errors, durable = node.groups.commit("g", committer, {partition: value})
    assert not errors
    if durable is not None:
        await durable


def offsets(node: Broker) -> dict[TopicPartition, int]:
    return {partition: value.offset for partition, value in node.groups.committed("g").items()}


def test_a_member_whose_connection_breaks_before_it_knew_its_id_leaves_no_member() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await join(node)
        ghost = node.groups.join("g", a_join())
        await asyncio.sleep(0)
        ghost.cancel()
        await asyncio.sleep(0)
        assert list(node.groups.get("g").members) == [first.member_id]
        again = await join(node, first.member_id)
        assert await assigned(node, again) == [0, 1, 2, 3]

    in_world(scenario)


class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def rebalancing(self) -> None:
        self.heard.append("rebalancing")

    def removed(self) -> None:
        self.heard.append("removed")


def test_who_listens_for_a_member_hears_of_a_rebalance_though_another_listener_of_it_has_stopped() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = await join(node)
        old, new = Listener(), Listener()  # of two connections
        node.groups.listen("g", first.member_id, old)
        node.groups.listen("g", first.member_id, new)
        node.groups.stop_listening("g", old)
        second = asyncio.ensure_future(join(node))
        await asyncio.sleep(0)
        assert (old.heard, new.heard) == ([], ["rebalancing"])
        await asyncio.sleep(30)  # it has not joined again
        assert new.heard == ["rebalancing", "removed"]
        await second

    in_world(scenario)


def test_a_member_that_knows_its_id_may_come_back_after_its_connection_broke() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first, second = await asyncio.gather(join(node), join(node))
        waiting = node.groups.join("g", a_join(second.member_id, native=False))
        other = asyncio.ensure_future(join(node, session_s=20))  # a third one, so that they have to wait
        await asyncio.sleep(0)
        waiting.cancel()
        again = asyncio.gather(join(node, first.member_id), join(node, second.member_id))
        await asyncio.gather(again, other)
        assert len(node.groups.get("g").members) == 3

    in_world(scenario)


def test_a_member_that_heartbeats_stays_and_one_that_does_not_is_dropped() -> None:
    async def scenario(world: World, node: Broker) -> None:
        living, silent = await asyncio.gather(join(node), join(node))
        for _ in range(3):
            await asyncio.sleep(3)
            node.groups.heartbeat("g", Committer(living.member_id, living.generation))
        await asyncio.sleep(3)
        with pytest.raises(RebalanceInProgress):
            node.groups.heartbeat("g", Committer(living.member_id, living.generation))
        assert list(node.groups.get("g").members) == [living.member_id]
        with pytest.raises(UnknownMember):
            node.groups.heartbeat("g", Committer(silent.member_id, silent.generation))
        again = await join(node, living.member_id)
        assert await assigned(node, again) == [0, 1, 2, 3]

    in_world(scenario)


def test_a_hundred_members_settle_on_a_thousand_partitions_in_one_generation() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await node.admin.create("wide", partitions=1000, settings={"persistence": "memory"})
        wanted = encode_subscription(Subscription(["wide"]))
        request = Join((("sticky", wanted),), rebalance_timeout_ms=5_000, assigned_by_broker=True)

        async def member(number: int) -> tuple[int, int]:
            await asyncio.sleep(number * 0.02)  # they start within two seconds
            joined = await node.groups.join("g", request)
            raw = await node.groups.sync("g", Committer(joined.member_id, joined.generation))
            return joined.generation, len(parse_assignment(raw))

        assert set(await asyncio.gather(*map(member, range(100)))) == {(1, 10)}
        assert node.clock.monotonic_s() < 4

    in_world(scenario)


def test_a_generation_is_on_the_disk_before_anybody_hears_of_it() -> None:
    async def scenario(world: World, node: Broker) -> None:
        heard = await join(node)
        await world.crash()
        node = await world.start()
        group = node.groups.get("g")
        assert (group.generation, group.state) == (heard.generation, GroupState.STABLE)
        node.groups.heartbeat("g", Committer(heard.member_id, heard.generation))
        newer = asyncio.ensure_future(join(node))
        await asyncio.sleep(0)
        await asyncio.gather(newer, join(node, heard.member_id))
        assert newer.result().generation == heard.generation + 1

    in_world(scenario)


def test_a_committed_offset_survives_a_power_cut() -> None:
    async def scenario(world: World, node: Broker) -> None:
        for offset in (3, 7):
            await commit(node, offset)
            await world.crash()
            node = await world.start()
            assert offsets(node) == {ORDERS: offset}

    in_world(scenario)


def test_a_static_member_that_returns_fences_the_one_that_waits_under_its_instance_id() -> None:
    async def scenario(world: World, node: Broker) -> None:
        old, _ = await asyncio.gather(join(node, instance="one"), join(node))
        waiting = node.groups.join("g", a_join(old.member_id, "one", native=False))
        other = asyncio.ensure_future(join(node))
        await asyncio.sleep(0)
        new = node.groups.join("g", a_join("", "one"))
        with pytest.raises(MemberFenced):
            await waiting
        with pytest.raises(MemberFenced):
            node.groups.heartbeat("g", Committer(old.member_id, old.generation))
        new.cancel()
        other.cancel()
        await asyncio.gather(new, other, return_exceptions=True)

    in_world(scenario)


def test_a_member_that_needs_an_id_gets_it_and_comes_back() -> None:
    async def scenario(world: World, node: Broker) -> None:
        with pytest.raises(MemberIdRequired) as told:
            node.groups.join("g", a_join(native=False), needs_id=True)
        joined = await node.groups.join("g", a_join(told.value.member_id, native=False), needs_id=True)
        assert joined.assigns
        assert [member.member_id for member in joined.members] == [told.value.member_id]

    in_world(scenario)


def test_a_member_that_waits_for_its_assignment_is_told_when_the_group_rebalances() -> None:
    async def scenario(world: World, node: Broker) -> None:
        leader, other = await asyncio.gather(join(node, native=False), join(node, native=False))
        assert leader.assigns and not other.assigns
        waiting = node.groups.sync("g", Committer(other.member_id, other.generation))
        node.groups.leave("g", leader.member_id)
        with pytest.raises(RebalanceInProgress):
            await waiting

    in_world(scenario)


def test_limits_are_kept() -> None:
    async def scenario(world: World, node: Broker) -> None:
        with pytest.raises(InvalidSessionTimeout):
            await join(node, session_s=0.5)
        assert node.groups.list() == []
        group = node.groups._log.table("g").get_or_add("g")
        group.limits = type(group.limits)(members_max=1)
        await join(node)
        with pytest.raises(GroupFull):
            await join(node)
        errors, _ = node.groups.commit("h", OUTSIDE, {ORDERS: OffsetValue(1, metadata="x" * 5_000)})
        assert isinstance(errors[ORDERS], OffsetMetadataTooLarge)

    in_world(scenario)


def test_a_static_leader_that_returns_to_a_settled_group_is_not_asked_to_assign() -> None:
    async def scenario(world: World, node: Broker) -> None:
        leader = await join(node, instance="one", native=False)
        assignments = {leader.member_id: encode_assignment([ORDERS])}
        await node.groups.sync("g", Committer(leader.member_id, leader.generation), assignments)
        again = await join(node, instance="one", native=False)
        assert (again.generation, again.assigns, again.leader) == (leader.generation, False, "")
        assert await assigned(node, again) == [0]

    in_world(scenario)


@pytest.mark.parametrize("native_leads", [True, False])
def test_members_of_two_protocols_can_be_in_one_group(native_leads: bool) -> None:
    async def scenario(world: World, node: Broker) -> None:
        leader = asyncio.ensure_future(join(node, native=native_leads))
        await asyncio.sleep(0)
        other = await join(node, native=not native_leads)
        led = await leader
        assignments = None
        if led.assigns:
            names = [member.member_id for member in led.members]
            assignments = {name: encode_assignment([TopicPartition("orders", at)]) for at, name in enumerate(names)}
        await node.groups.sync("g", Committer(led.member_id, led.generation), assignments)
        mine, theirs = await assigned(node, led), await assigned(node, other)
        assert sorted(mine + theirs) == ([0, 1, 2, 3] if native_leads else [0, 1])

    in_world(scenario)


def test_compaction_of_the_log_changes_nothing() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await node.admin.alter("__offsets", {"segment.bytes": 1024, "min.cleanable.dirty.ratio": 0.01})
        joined = await join(node)
        committer = Committer(joined.member_id, joined.generation)
        for offset in range(100):
            await commit(node, offset, committer, TopicPartition("orders", offset % 4))
        partitions = node.replicas.of(node.image.get("__offsets")).values()
        before = sum(partition.log.size for partition in partitions)
        maintenance = Maintenance(node.replicas, node.flusher, InlineThreads(), node.clock)
        for partition in partitions:
            await maintenance.checkpoint(partition)
            await maintenance.compact(partition)
        after = sum(partition.log.size for partition in partitions)
        assert after < before / 4
        await world.crash()
        node = await world.start()
        assert offsets(node) == {TopicPartition("orders", number): 96 + number for number in range(4)}
        node.groups.heartbeat("g", committer)

    in_world(scenario)


# --- offsets that nobody uses ---------------------------------------------------------------------------------------


def test_offsets_are_deleted_a_week_after_the_last_member_has_gone() -> None:
    async def scenario(world: World, node: Broker) -> None:
        joined = await join(node)
        await commit(node, 5, Committer(joined.member_id, joined.generation))
        node.groups.leave("g", joined.member_id)
        await asyncio.sleep(6 * DAY_S)
        node.groups.expire(node.clock.now_ms())
        assert offsets(node) == {ORDERS: 5}
        await asyncio.sleep(2 * DAY_S)
        node.groups.expire(node.clock.now_ms())
        assert node.groups.list() == []
        await world.restart()
        assert world.node is not None and world.node.groups.list() == []

    in_world(scenario)


def test_offsets_of_topics_that_members_read_are_kept_and_others_deleted() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("once", 1)
        joined = await join(node, session_s=1700)
        committer = Committer(joined.member_id, joined.generation)
        await commit(node, 5, committer)
        await commit(node, 5, committer, TopicPartition("once", 0))
        for _ in range(8 * 24 * 3):
            await asyncio.sleep(20 * 60)
            node.groups.heartbeat("g", committer)
        node.groups.expire(node.clock.now_ms())
        assert offsets(node) == {ORDERS: 5}

    in_world(scenario)


def test_offsets_of_a_topic_whose_deletion_was_cut_short_are_deleted_at_the_next_start() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await commit(node, 5)
        node.replicas.topic_watchers.clear()  # the power goes right after the topic is gone
        await node.admin.delete("orders")
        await world.crash()
        node = await world.start()
        await world.create_topic("orders", 4)
        assert offsets(node) == {}

    in_world(scenario)


def test_offsets_are_not_taken_from_under_a_reader() -> None:
    async def scenario(world: World, node: Broker) -> None:
        joined = await join(node)
        await commit(node, 5, Committer(joined.member_id, joined.generation))
        with pytest.raises(GroupNotEmpty):
            node.groups.forget_offsets("g", [ORDERS])
        node.groups.leave("g", joined.member_id)
        node.groups.forget_offsets("g", [ORDERS])
        assert offsets(node) == {}

    in_world(scenario)


# --- lag ------------------------------------------------------------------------------------------------------------


def test_lag_is_told_in_records_and_in_the_age_of_the_first_unread_one() -> None:
    async def scenario(world: World, node: Broker) -> None:
        partition = node.replicas.get(ORDERS)
        for _ in range(3):
            batch = encode_batch([(None, b"x"), (None, b"y")], timestamp_ms=node.clock.now_ms())
            partition.append(batch, Acks.LEADER)
            await asyncio.sleep(10)
        lags = [node.groups.lag(ORDERS, offset) for offset in (-1, 0, 2, 3, 4, 6)]
        assert [lag.records for lag in lags] == [-1, 6, 4, 3, 2, 0]
        assert [lag.ms for lag in lags] == [-1, 30_000, 20_000, 20_000, 10_000, 0]
        run_steps_here(partition.delete_before(4))
        assert (node.groups.lag(ORDERS, 0).records, node.groups.lag(ORDERS, 0).ms) == (2, 10_000)
        assert node.groups.lag(TopicPartition("gone", 0), 3).records == -1

    in_world(scenario)


def test_a_negative_offset_cannot_be_committed() -> None:
    async def scenario(_world: World, node: Broker) -> None:
        await commit(node, 3)
        errors, _ = node.groups.commit("g", OUTSIDE, {ORDERS: OffsetValue(-1)})
        assert isinstance(errors[ORDERS], InvalidRequest)
        producer = ProducerIdentity(7, 0)
        errors, _ = node.groups.commit_in_transaction("g", OUTSIDE, producer, {ORDERS: OffsetValue(-1)})
        assert isinstance(errors[ORDERS], InvalidRequest)
        assert offsets(node) == {ORDERS: 3}

    in_world(scenario)
