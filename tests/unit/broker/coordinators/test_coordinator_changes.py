"""Groups and transactions when their partitions of the internal topics change hands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.unit.broker.world import Producer, World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.groups import Committer, Joined
from flymq.broker.coordinators.state_log import OFFSETS, TRANSACTIONS
from flymq.broker.replicas.partition import View
from flymq.broker.safety import wait_safe
from flymq.coordination.entries import Entry, OffsetValue, TransactionKey, TransactionState, encode_entries
from flymq.coordination.group import Group, Join
from flymq.coordination.subscriptions import Subscription, encode_subscription, parse_assignment
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.errors import CoordinatorLoading, NotCoordinator, NotLeader
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch

OTHER = 7
"""Another broker."""
OFFSETS_0, TRANSACTIONS_0 = TopicPartition(OFFSETS, 0), TopicPartition(TRANSACTIONS, 0)
ORDERS = [TopicPartition("orders", number) for number in range(2)]


def in_world(scenario: Callable[[World, Broker], Awaitable[None]], *, internal_partitions: int = 1) -> None:
    """Run a scenario with the topic `orders`; all groups and ids belong to one partition, unless there are more."""

    async def live() -> None:
        world = World(internal_partitions=internal_partitions)
        await world.start()
        await world.create_topic("orders", 2)
        await scenario(world, world.node)
        await world.close()

    run(live())


async def until_served(world: World, group: str = "g") -> None:
    """Wait until this broker has loaded the group's table."""
    while True:
        try:
            world.node.groups.committed(group)
            return
        except CoordinatorLoading:
            await asyncio.sleep(0.01)


# --- groups


def a_join(member_id: str = "", *, session_ms: int = 10_000) -> Join:
    wanted = encode_subscription(Subscription(["orders"]))
    return Join((("range", wanted),), member_id, session_timeout_ms=session_ms, rebalance_timeout_ms=5_000)


def a_broker_join(member_id: str = "", *, session_ms: int = 10_000) -> Join:
    """Of a member that leaves it to the broker to assign partitions."""
    wanted = encode_subscription(Subscription(["orders"]))
    return Join(
        (("range", wanted),),
        member_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=5_000,
        assigned_by_broker=True,
    )


def test_members_that_wait_in_a_join_are_sent_to_the_new_coordinator() -> None:
    async def scenario(world: World, node: Broker) -> None:
        joining = [node.groups.join("g", a_join()) for _ in range(2)]
        await world.elect(OFFSETS_0, OTHER)
        for each in joining:
            with pytest.raises(NotCoordinator):
                await each
        with pytest.raises(NotCoordinator):
            node.groups.join("g", a_join())

    in_world(scenario)


def test_members_that_wait_for_their_assignment_are_sent_to_the_new_coordinator() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first, second = await asyncio.gather(node.groups.join("g", a_join()), node.groups.join("g", a_join()))
        follower = second if first.assigns else first
        waiting = node.groups.sync("g", Committer(follower.member_id, follower.generation))
        await world.elect(OFFSETS_0, OTHER)
        with pytest.raises(NotCoordinator):
            await waiting

    in_world(scenario)


def test_readers_that_wait_for_stable_offsets_are_sent_to_the_new_coordinator() -> None:
    async def scenario(world: World, node: Broker) -> None:
        producer = Producer(world, "pay", timeout_ms=60_000)
        await producer.init()
        await producer.begin()
        assert producer.identity is not None
        _, safe = await node.transactions.commit_offsets(
            "pay", producer.identity, "g", Committer(), {ORDERS[0]: OffsetValue(1)}
        )
        await wait_safe(safe)
        waiting = asyncio.ensure_future(node.groups.until_stable("g", None))
        await asyncio.sleep(0)
        await world.elect(OFFSETS_0, OTHER)
        with pytest.raises(NotCoordinator):
            await waiting

    in_world(scenario)


async def a_stable_group(node: Broker) -> Joined:
    joined = await node.groups.join("g", a_broker_join(session_ms=6_000))
    assert parse_assignment(await node.groups.sync("g", Committer(joined.member_id, joined.generation))) == ORDERS
    errors, safe = node.groups.commit("g", Committer(joined.member_id, joined.generation), {ORDERS[0]: OffsetValue(5)})
    assert not errors
    await wait_safe(safe)
    return joined


def test_a_coordinator_that_leads_again_knows_members_generation_and_offsets() -> None:
    async def scenario(world: World, node: Broker) -> None:
        joined = await a_stable_group(node)
        await world.elect(OFFSETS_0, OTHER)
        await world.elect(OFFSETS_0, world.broker_id)
        with pytest.raises(CoordinatorLoading):
            node.groups.committed("g")
        await until_served(world)
        group = node.groups.get("g")
        assert isinstance(group, Group)
        assert (list(group.members), group.generation) == ([joined.member_id], joined.generation)
        assert node.groups.committed("g")[ORDERS[0]].offset == 5
        node.groups.heartbeat("g", Committer(joined.member_id, joined.generation))

    in_world(scenario)


def test_sessions_do_not_run_out_where_the_group_is_not_coordinated() -> None:
    async def scenario(world: World, node: Broker) -> None:
        joined = await a_stable_group(node)
        await world.elect(OFFSETS_0, OTHER)
        end_offset = world.partition(OFFSETS).log.end_offset
        await asyncio.sleep(60)  # ten sessions
        assert world.partition(OFFSETS).log.end_offset == end_offset
        await world.elect(OFFSETS_0, world.broker_id)
        await until_served(world)
        await asyncio.sleep(5)  # a session begins anew with its coordinator
        node.groups.heartbeat("g", Committer(joined.member_id, joined.generation))

    in_world(scenario)


def test_sessions_run_out_again_where_the_group_is_coordinated_again() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await a_stable_group(node)
        await world.elect(OFFSETS_0, OTHER)
        await world.elect(OFFSETS_0, world.broker_id)
        await until_served(world)
        await asyncio.sleep(10)
        group = node.groups.get("g")
        assert isinstance(group, Group) and not group.members

    in_world(scenario)


# --- transactions


async def an_open_transaction(world: World, *, timeout_ms: int = 3_000) -> Producer:
    producer = Producer(world, "pay", timeout_ms=timeout_ms)
    await producer.init()
    await producer.begin()
    for partition in ORDERS:
        await producer.write(partition, [b"x"], Acks.ALL)
    return producer


async def until_state(node: Broker, state: TransactionState) -> None:
    while node.transactions.get("pay").state is not state:  # noqa: ASYNC110  # nobody tells
        await asyncio.sleep(0.0001)


async def orphan(world: World, name: TopicPartition, producer_id: int = 77_777) -> None:
    """Leave a batch of a transaction of which nobody knows."""
    batch = encode_batch(
        [(None, b"orphan")], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )
    await wait_safe(world.node.replicas.get(name).append_in_transaction(batch, Acks.ALL).safe)


def open_at(world: World, name: TopicPartition) -> list[int]:
    """Return the producers that have a transaction open in this partition."""
    found = world.node.replicas.find(name)
    assert found is not None
    return [each.producer_id for each in found.log.producers.all() if each.open_since is not None]


def test_transactions_nobody_knows_are_aborted_after_a_crash_where_everything_is_coordinated() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await orphan(world, ORDERS[0])
        assert open_at(world, ORDERS[0]) == [77_777]
        await world.crash()
        await world.start()
        assert open_at(world, ORDERS[0]) == []
        partition = world.partition("orders")
        assert partition.last_stable_offset == partition.high_watermark == 2
        assert world.read("orders", 0) == []

    in_world(scenario, internal_partitions=2)


def test_transactions_of_another_coordinator_are_left_alone_after_a_crash() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await orphan(world, ORDERS[0])
        await world.elect(TRANSACTIONS_0, OTHER)
        await world.crash()
        await world.start()
        assert open_at(world, ORDERS[0]) == [77_777]
        assert world.partition("orders").log.end_offset == 1

    in_world(scenario, internal_partitions=2)


def test_an_orphan_in_a_partition_that_is_led_elsewhere_is_left_to_its_leader() -> None:
    async def scenario(world: World, node: Broker) -> None:
        for name in ORDERS:
            await orphan(world, name)
        await world.elect(ORDERS[1], OTHER)
        await world.crash()
        await world.start()
        assert (open_at(world, ORDERS[0]), open_at(world, ORDERS[1])) == ([], [77_777])

    in_world(scenario)


def test_a_crash_begins_a_new_epoch_of_what_was_led_here_and_of_nothing_else() -> None:
    async def scenario(world: World, node: Broker) -> None:
        for name in ORDERS:
            await wait_safe(node.replicas.get(name).append(encode_batch([(None, b"x")]), Acks.ALL).safe)
        await world.elect(ORDERS[1], OTHER)
        await world.crash()
        node = await world.start()
        assert [node.image.state(name).leader_epoch for name in ORDERS] == [1, 1]
        assert [node.image.state(name).leader for name in ORDERS] == [world.broker_id, OTHER]

    in_world(scenario)


def test_a_transaction_that_times_out_while_its_coordinator_resigns_is_left_to_the_next_one() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await an_open_transaction(world, timeout_ms=3_000)
        await until_state(node, TransactionState.ABORTING)
        await world.elect(TRANSACTIONS_0, OTHER)
        await asyncio.sleep(10)
        with pytest.raises(NotCoordinator):
            node.transactions.get("pay")

    in_world(scenario)


def test_who_ends_a_transaction_while_its_coordinator_resigns_is_told_so() -> None:
    async def scenario(world: World, node: Broker) -> None:
        producer = await an_open_transaction(world, timeout_ms=60_000)
        assert producer.identity is not None
        await world.write_election(TRANSACTIONS_0, OTHER)
        with pytest.raises((NotCoordinator, NotLeader)):  # it learns of it before the end is on the disk
            async with asyncio.timeout(60):
                await node.transactions.end("pay", producer.identity, commit=False)

    in_world(scenario)


def test_the_next_coordinator_sees_a_decided_end_through() -> None:
    async def scenario(world: World, node: Broker) -> None:
        producer = await an_open_transaction(world, timeout_ms=60_000)
        assert producer.identity is not None
        asking = asyncio.ensure_future(node.transactions.end("pay", producer.identity, commit=True))
        await until_state(node, TransactionState.COMMITTING)
        await world.elect(TRANSACTIONS_0, OTHER)
        with pytest.raises((NotCoordinator, NotLeader)):
            await asking
        await world.elect(TRANSACTIONS_0, world.broker_id)
        await asyncio.sleep(5)
        assert node.transactions.get("pay").state is TransactionState.COMMITTED
        for number in range(2):
            assert [record.value for record in world.read("orders", number)] == [b"x"]
            partition = world.partition("orders", number)
            assert partition.end_for(View.COMMITTED) == partition.log.end_offset

    in_world(scenario)


def test_an_end_that_was_held_up_is_not_finished_by_who_coordinated_it_before() -> None:
    """1. an end waits for a marker; 2. another broker ends it, and the producer begins its next transaction;
    3. this broker leads again, and the marker can be written."""

    async def scenario(world: World, node: Broker) -> None:
        producer = await an_open_transaction(world, timeout_ms=60_000)
        await world.elect(ORDERS[1], OTHER)
        assert producer.identity is not None
        asking = asyncio.ensure_future(node.transactions.end("pay", producer.identity, commit=False))
        await asyncio.sleep(0.5)
        held_up = node.transactions.get("pay")
        assert held_up.state is TransactionState.ABORTING and held_up.successor is not None
        epoch = await world.elect(TRANSACTIONS_0, OTHER)
        following = msgspec.structs.replace(
            held_up, state=TransactionState.ONGOING, producer=held_up.successor, partitions=(), successor=None
        )
        copy_entries(world, epoch, [(TransactionKey("pay"), following)])
        await world.elect(TRANSACTIONS_0, world.broker_id)
        await world.elect(ORDERS[1], world.broker_id)
        with pytest.raises((NotCoordinator, NotLeader)):
            await asking
        await asyncio.sleep(10)
        assert node.transactions.get("pay") == following

    in_world(scenario)


def copy_entries(world: World, leader_epoch: int, entries: list[Entry]) -> None:
    """Copy what the leader of this epoch has written to `__transactions`."""
    partition = world.partition(TRANSACTIONS)
    batch = encode_entries(entries, now_ms=world.node.clock.now_ms())
    batch[0:8] = partition.log.end_offset.to_bytes(8, "big")
    batch[12:16] = leader_epoch.to_bytes(4, "big")
    partition.append_as_follower(batch, leader_epoch=leader_epoch)


def test_an_end_that_was_held_up_is_seen_through_by_who_coordinates_it_again() -> None:
    async def scenario(world: World, node: Broker) -> None:
        producer = await an_open_transaction(world, timeout_ms=60_000)
        await world.elect(ORDERS[1], OTHER)
        assert producer.identity is not None
        asking = asyncio.ensure_future(node.transactions.end("pay", producer.identity, commit=False))
        await asyncio.sleep(0.5)
        await world.elect(TRANSACTIONS_0, OTHER)
        await world.elect(TRANSACTIONS_0, world.broker_id)
        await asyncio.sleep(10)
        await world.elect(ORDERS[1], world.broker_id)
        await asyncio.sleep(10)
        await asyncio.gather(asking, return_exceptions=True)
        assert node.transactions.get("pay").state is TransactionState.ABORTED
        assert open_at(world, ORDERS[0]) == open_at(world, ORDERS[1]) == []

    in_world(scenario)


def test_an_open_transaction_times_out_at_the_coordinator_that_leads_again() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await an_open_transaction(world, timeout_ms=3_000)
        await world.elect(TRANSACTIONS_0, OTHER)
        await asyncio.sleep(10)
        assert open_at(world, ORDERS[0]) != [], "nobody aborts it here"
        await world.elect(TRANSACTIONS_0, world.broker_id)
        await asyncio.sleep(10)
        assert open_at(world, ORDERS[0]) == open_at(world, ORDERS[1]) == []

    in_world(scenario)


def test_a_coordinator_that_resigns_while_it_settles_an_end_watches_no_transactions_any_more() -> None:
    async def scenario(world: World, node: Broker) -> None:
        held = await an_open_transaction(world, timeout_ms=60_000)
        other = Producer(world, "ship", timeout_ms=20_000)
        await other.init()
        await other.begin()
        await world.elect(ORDERS[1], OTHER)  # the end of `pay` needs a marker there
        assert held.identity is not None
        asking = asyncio.ensure_future(node.transactions.end("pay", held.identity, commit=False))
        await asyncio.sleep(1)
        await world.elect(TRANSACTIONS_0, world.broker_id)  # loads again, and waits for the end of `pay`
        await asyncio.sleep(1)
        await world.elect(TRANSACTIONS_0, OTHER)
        await asyncio.sleep(60)
        asking.cancel()

    in_world(scenario)
