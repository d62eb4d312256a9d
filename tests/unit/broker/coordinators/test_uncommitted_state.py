"""What a coordinator has not committed yet is not acknowledged and not shown: another broker may lead without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.groups import Committer
from flymq.broker.coordinators.state_log import OFFSETS, TRANSACTIONS
from flymq.broker.replicas.partition import Partition
from flymq.broker.safety import outcome_of
from flymq.broker.service.caller import Caller
from flymq.broker.service.groups import NewOffset
from flymq.cluster.catalog import PartitionState
from flymq.coordination.group import Join
from flymq.coordination.subscriptions import Subscription, encode_subscription
from flymq.host.virtual_time import run
from flymq.model.errors import CoordinatorLoading, CoordinatorUnavailable, FlyMQError, NotCoordinator
from flymq.model.names import TopicPartition

CALLER = Caller("test")
FOLLOWER, FOLLOWER_EPOCH = 7, 1
ORDERS = TopicPartition("orders", 0)


def in_world(scenario: Callable[[World, Broker], Awaitable[None]], topic: str = OFFSETS) -> None:
    """Run a scenario on a broker that leads the internal topic; another broker is in sync, and copies when told."""

    async def live() -> None:
        world = World(internal_partitions=1, quick_disk=True)
        await world.start()
        await world.create_topic("orders", 2)
        await lead_with_a_follower(world, topic)
        await scenario(world, world.node)
        await world.close()

    run(live())


async def lead_with_a_follower(world: World, topic: str) -> None:
    partition = world.partition(topic)
    replicas = [world.broker_id, FOLLOWER]
    epoch = partition.leader_epoch + 1
    partition.lead(epoch, PartitionState(world.broker_id, epoch, replicas, replicas))
    for watcher in world.node.replicas.role_watchers:
        watcher(partition)
    while True:
        try:
            world.node.groups.check_loaded()
            world.node.transactions.known()
            return
        except CoordinatorLoading:
            await asyncio.sleep(0.01)


def copy(partition: Partition) -> None:
    """The follower has everything."""
    assert partition.replication is not None
    end_offset = partition.log.end_offset
    partition.replication.fetched(FOLLOWER, FOLLOWER_EPOCH, end_offset, end_offset, 0.0)


def commit(node: Broker, offset: int) -> asyncio.Future[FlyMQError | None]:
    errors, safe = node.service.groups.commit(CALLER, "g", Committer(), {ORDERS: NewOffset(offset)})
    assert not errors and safe is not None
    return outcome_of(safe)


async def turns() -> None:
    """Let everything happen that does not wait for the follower."""
    await asyncio.sleep(1)


def test_a_commit_is_acknowledged_and_shown_when_the_replicas_have_it() -> None:
    async def scenario(world: World, node: Broker) -> None:
        committing = commit(node, 5)
        offsets, shown = node.service.groups.committed(CALLER, "g")
        assert offsets[ORDERS].offset == 5 and shown is not None
        await turns()
        assert not committing.done() and not shown.done()
        copy(world.partition(OFFSETS))
        await shown
        assert await committing is None

    in_world(scenario)


def test_a_commit_that_another_coordinator_may_not_have_is_neither_acknowledged_nor_shown() -> None:
    async def scenario(world: World, node: Broker) -> None:
        committing = commit(node, 5)
        _, shown = node.service.groups.committed(CALLER, "g")
        assert shown is not None
        await world.elect(TopicPartition(OFFSETS, 0), FOLLOWER)
        assert isinstance(await committing, NotCoordinator)
        with pytest.raises(NotCoordinator):
            await shown

    in_world(scenario)


def test_offsets_that_are_committed_are_shown_at_once() -> None:
    async def scenario(world: World, node: Broker) -> None:
        committing = commit(node, 5)
        copy(world.partition(OFFSETS))
        assert await committing is None
        offsets, shown = node.service.groups.committed(CALLER, "g")
        assert offsets[ORDERS].offset == 5 and shown is None

    in_world(scenario)


def a_join(member_id: str = "") -> Join:
    wanted = encode_subscription(Subscription(["orders"]))
    return Join((("range", wanted),), member_id, session_timeout_ms=10_000, rebalance_timeout_ms=5_000)


def test_members_learn_an_assignment_that_no_other_coordinator_can_change() -> None:
    """Also the member that asks after the group leader has sent it."""

    async def scenario(world: World, node: Broker) -> None:
        joining = [node.groups.join("g", a_join()) for _ in range(2)]
        await asyncio.sleep(4)
        assert not any(each.done() for each in joining)
        copy(world.partition(OFFSETS))
        first, second = [await each for each in joining]
        leader, other = (first, second) if first.assigns else (second, first)
        assignments = {leader.member_id: b"a", other.member_id: b"b"}
        syncs = [node.groups.sync("g", Committer(leader.member_id, leader.generation), assignments)]
        syncs.append(node.groups.sync("g", Committer(other.member_id, other.generation)))
        await turns()
        assert not any(each.done() for each in syncs)
        copy(world.partition(OFFSETS))
        assert [await each for each in syncs] == [b"a", b"b"]

    in_world(scenario)


def test_too_few_replicas_in_sync_refuse_a_commit_and_change_nothing() -> None:
    async def scenario(world: World, node: Broker) -> None:
        partition = world.partition(OFFSETS)
        assert partition.replication is not None
        await node.admin.alter(OFFSETS, {"min.insync.replicas": 2})
        alone = [world.broker_id]
        state = PartitionState(world.broker_id, partition.leader_epoch, [world.broker_id, FOLLOWER], alone)
        partition.replication.changed(state, 0.0)
        with pytest.raises(CoordinatorUnavailable):
            node.service.groups.commit(CALLER, "g", Committer(), {ORDERS: NewOffset(5)})
        assert not node.groups.committed("g")

    in_world(scenario)


def test_groups_are_not_listed_while_some_are_being_loaded() -> None:
    async def scenario(world: World, node: Broker) -> None:
        partition = world.partition(OFFSETS)
        partition.follow(partition.leader_epoch + 1)
        for watcher in node.replicas.role_watchers:
            watcher(partition)
        assert node.service.groups.all(CALLER) == []
        partition.lead(partition.leader_epoch + 1)
        for watcher in node.replicas.role_watchers:
            watcher(partition)
        with pytest.raises(CoordinatorLoading):
            node.service.groups.all(CALLER)

    in_world(scenario)


def test_a_transaction_that_has_begun_is_known_to_the_next_coordinator() -> None:
    async def scenario(world: World, node: Broker) -> None:
        initialising = asyncio.ensure_future(node.transactions.init("pay", 60_000))
        await turns()
        assert not initialising.done()
        copy(world.partition(TRANSACTIONS))
        begun = node.transactions.begin("pay", await initialising)
        assert begun is not None
        await turns()
        assert not begun.done()
        copy(world.partition(TRANSACTIONS))
        await begun

    in_world(scenario, TRANSACTIONS)
