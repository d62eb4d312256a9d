"""Transactions whose coordinator, partitions and groups are on different brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.broker.coordinators.nodes import OFFSETS_0, ONE, ORDERS, TRANSACTIONS_0, TWO, Nodes, a_batch, in_nodes

from flymq.broker.coordinators.groups import Committer
from flymq.broker.safety import wait_safe
from flymq.cluster.catalog import PartitionState
from flymq.coordination.entries import OffsetValue, ProducerIdentity, TransactionState
from flymq.coordination.transactions import Ending
from flymq.model.coordinators import Joining
from flymq.model.delivery import Acks
from flymq.model.errors import (
    CoordinatorEpochFenced,
    CoordinatorUnavailable,
    InvalidTransactionState,
    NotCoordinator,
    NotLeader,
    ProducerFenced,
)
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.session import Done

FOLLOWER = 9


def asked(nodes: Nodes, what: str) -> int:
    return sum(name == what for _, name in nodes.requests)


async def an_open_transaction(nodes: Nodes) -> ProducerIdentity:
    """Of the producer `pay`, with a record in both partitions."""
    producer = await nodes.init()
    await wait_safe(nodes.two.transactions.begin("pay", producer))
    await nodes.one.produce("pay", ORDERS[0], a_batch(producer))
    await nodes.two.produce("pay", ORDERS[1], a_batch(producer))
    return producer


def open_in(nodes: Nodes, producer: ProducerIdentity) -> list[int | None]:
    partitions = (nodes.one.partition(ORDERS[0]), nodes.two.partition(ORDERS[1]))
    return [partition.open_epoch(producer.producer_id) for partition in partitions]


def test_a_broker_that_does_not_coordinate_a_transaction_or_group_says_so() -> None:
    async def scenario(nodes: Nodes) -> None:
        with pytest.raises(NotCoordinator):
            await nodes.one.transactions.init("pay", 60_000)
        with pytest.raises(NotCoordinator):
            nodes.two.groups.commit("g", Committer(), {ORDERS[0]: OffsetValue(1)})

    in_nodes(scenario)


def test_a_transaction_is_committed_in_partitions_of_several_brokers() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        assert open_in(nodes, producer) == [producer.epoch] * 2
        assert nodes.two.transactions.get("pay").partitions == (ORDERS[0], ORDERS[1])
        successor = await nodes.two.transactions.end("pay", producer, commit=True)
        assert successor.epoch == producer.epoch + 1
        assert open_in(nodes, producer) == [None, None]
        assert nodes.one.partition(ORDERS[0]).last_stable_offset == 2

    in_nodes(scenario)


def test_the_coordinator_is_asked_once_for_a_partition_and_transaction() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        await asyncio.gather(
            *(nodes.one.produce("pay", ORDERS[0], a_batch(producer, sequence)) for sequence in (1, 2, 3))
        )
        assert asked(nodes, "JoinTransaction") == 1

    in_nodes(scenario)


def test_batches_that_arrive_while_the_coordinator_is_asked_stay_in_order() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await nodes.init()
        await wait_safe(nodes.two.transactions.begin("pay", producer))
        delays_s = iter((3, 2, 1, 0))

        async def hold_back(_: Message) -> None:
            await asyncio.sleep(next(delays_s))

        nodes.before_answer = hold_back
        sent = [nodes.one.produce("pay", ORDERS[0], a_batch(producer, sequence)) for sequence in range(4)]
        written = await asyncio.gather(*sent)
        assert [each.base_offset for each in written] == [0, 1, 2, 3]

    in_nodes(scenario)


def test_batches_of_others_do_not_wait_for_a_coordinator_that_is_away() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await nodes.init()
        await wait_safe(nodes.two.transactions.begin("pay", producer))
        other = await an_open_transaction_of(nodes, "other")
        nodes.cut_off.add(TWO)
        waiting = asyncio.ensure_future(nodes.one.produce("pay", ORDERS[0], a_batch(producer)))
        await nodes.one.produce("other", ORDERS[0], a_batch(other, 1))
        assert not waiting.done()
        with pytest.raises(CoordinatorUnavailable):
            await waiting

    in_nodes(scenario)


async def an_open_transaction_of(nodes: Nodes, name: str) -> ProducerIdentity:
    producer = await nodes.init(name)
    await wait_safe(nodes.two.transactions.begin(name, producer))
    await nodes.one.produce(name, ORDERS[0], a_batch(producer))
    return producer


def test_a_short_absence_of_the_coordinator_is_only_a_pause() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await nodes.init()
        await wait_safe(nodes.two.transactions.begin("pay", producer))
        nodes.cut_off.add(TWO)
        waiting = asyncio.ensure_future(nodes.one.produce("pay", ORDERS[0], a_batch(producer)))
        await asyncio.sleep(2)
        nodes.cut_off.clear()
        assert (await waiting).base_offset == 0

    in_nodes(scenario)


def test_a_batch_without_a_transaction_is_refused_by_the_coordinator() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await nodes.init()
        with pytest.raises(InvalidTransactionState):
            await nodes.one.produce("pay", ORDERS[0], a_batch(producer))
        assert nodes.one.partition(ORDERS[0]).log.end_offset == 0

    in_nodes(scenario)


def test_a_partition_that_a_kafka_client_has_not_announced_is_refused() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await nodes.init()
        await wait_safe(nodes.two.transactions.begin_with("pay", producer, partitions=[ORDERS[1]], keeps_epoch=True))
        with pytest.raises(InvalidTransactionState):
            await nodes.one.produce("pay", ORDERS[0], a_batch(producer), Joining.ANNOUNCED)
        await wait_safe(nodes.two.transactions.begin_with("pay", producer, partitions=[ORDERS[0]], keeps_epoch=True))
        await nodes.one.produce("pay", ORDERS[0], a_batch(producer), Joining.ANNOUNCED)

    in_nodes(scenario)


def test_the_first_batch_of_a_newer_kafka_client_begins_the_transaction() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await nodes.init()
        await nodes.one.produce("pay", ORDERS[0], a_batch(producer), Joining.BEGINS)
        assert nodes.two.transactions.get("pay").state is TransactionState.ONGOING

    in_nodes(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_a_late_batch_does_not_open_an_ended_transaction_again(commit: bool) -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        await nodes.two.transactions.end("pay", producer, commit=commit)
        with pytest.raises(ProducerFenced):
            await nodes.one.produce("pay", ORDERS[0], a_batch(producer, 1))
        assert open_in(nodes, producer) == [None, None]

    in_nodes(scenario)


@pytest.mark.parametrize("keeps_epoch", [False, True])
def test_an_end_that_overtakes_the_answer_of_the_coordinator_is_not_followed_by_the_batch(keeps_epoch: bool) -> None:
    async def scenario(nodes: Nodes) -> None:
        coordinator, producer = nodes.two.transactions, await nodes.init()
        begun = coordinator.begin_with("pay", producer, partitions=[ORDERS[0]], keeps_epoch=keeps_epoch)
        await wait_safe(begun)
        released = asyncio.Event()

        async def hold_back(answer: Message) -> None:
            if isinstance(answer, Done):
                await released.wait()

        nodes.before_answer = hold_back
        sending = asyncio.ensure_future(nodes.one.produce("pay", ORDERS[0], a_batch(producer), Joining.ANNOUNCED))
        await asyncio.sleep(1)
        await coordinator.end("pay", producer, commit=False, keeps_epoch=keeps_epoch)
        released.set()
        with pytest.raises((InvalidTransactionState, ProducerFenced)):
            await sending
        assert open_in(nodes, producer)[0] is None
        assert asked(nodes, "JoinTransaction") == 2

    in_nodes(scenario)


def test_a_new_leader_of_the_partition_asks_the_coordinator_itself() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await nodes.init()
        await wait_safe(nodes.two.transactions.begin("pay", producer))
        released = asyncio.Event()

        async def hold_back(_: Message) -> None:
            await released.wait()

        nodes.before_answer = hold_back
        sending = asyncio.ensure_future(nodes.one.produce("pay", ORDERS[0], a_batch(producer)))
        await asyncio.sleep(1)
        await nodes.elect(ORDERS[0], TWO)
        released.set()
        with pytest.raises(NotLeader):
            await sending

    in_nodes(scenario)


def test_a_leader_that_was_replaced_meanwhile_asks_the_coordinator_again() -> None:
    """The other leader may have been told of the end."""

    async def scenario(nodes: Nodes) -> None:
        coordinator, producer = nodes.two.transactions, await nodes.init()
        await wait_safe(coordinator.begin_with("pay", producer, partitions=[ORDERS[0]], keeps_epoch=True))
        released = asyncio.Event()

        async def hold_back(_: Message) -> None:
            await released.wait()

        nodes.before_answer = hold_back
        sending = asyncio.ensure_future(nodes.one.produce("pay", ORDERS[0], a_batch(producer), Joining.ANNOUNCED))
        await asyncio.sleep(1)
        await nodes.elect(ORDERS[0], TWO)
        await coordinator.end("pay", producer, commit=False, keeps_epoch=True)
        await nodes.elect(ORDERS[0], ONE)
        released.set()
        with pytest.raises(InvalidTransactionState):
            await sending
        assert open_in(nodes, producer)[0] is None

    in_nodes(scenario)


# --- nothing that a failover could lose


def follow_transactions(nodes: Nodes) -> Callable[[], None]:
    """Let another broker be in sync with the coordinator; returns how it copies what there is."""
    partition = nodes.two.partition(TRANSACTIONS_0)
    replicas, epoch = [TWO, FOLLOWER], partition.leader_epoch
    partition.lead(epoch, PartitionState(TWO, epoch, replicas, replicas))

    def copy() -> None:
        assert partition.replication is not None
        end_offset = partition.log.end_offset
        partition.replication.fetched(FOLLOWER, 1, end_offset, end_offset, 0.0)

    copy()
    return copy


def test_a_batch_is_appended_when_no_failover_can_lose_that_its_partition_is_part_of_the_transaction() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await nodes.init()
        await wait_safe(nodes.two.transactions.begin("pay", producer))
        copy = follow_transactions(nodes)
        sending = [
            asyncio.ensure_future(nodes.one.produce("pay", ORDERS[0], a_batch(producer))),
            asyncio.ensure_future(nodes.two.produce("pay", ORDERS[1], a_batch(producer))),
        ]
        await asyncio.sleep(1)
        assert open_in(nodes, producer) == [None, None]
        copy()
        await asyncio.gather(*sending)
        assert open_in(nodes, producer) == [producer.epoch] * 2

    in_nodes(scenario)


def test_no_marker_is_written_before_the_outcome_is_committed_and_no_answer_before_its_completion() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        copy = follow_transactions(nodes)
        ending = asyncio.ensure_future(nodes.two.transactions.end("pay", producer, commit=True))
        await asyncio.sleep(5)
        assert open_in(nodes, producer) == [producer.epoch] * 2
        copy()
        await asyncio.sleep(1)
        assert open_in(nodes, producer) == [None, None]
        assert not ending.done()  # another coordinator would not know the identity that the producer gets
        copy()
        await ending

    in_nodes(scenario)


def test_a_coordinator_that_is_replaced_before_its_decision_is_committed_writes_no_marker() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        follow_transactions(nodes)
        ending = asyncio.ensure_future(nodes.two.transactions.end("pay", producer, commit=True))
        await asyncio.sleep(1)
        await nodes.elect(TRANSACTIONS_0, FOLLOWER)
        with pytest.raises(NotCoordinator):
            await ending
        await asyncio.sleep(60)
        assert open_in(nodes, producer) == [producer.epoch] * 2

    in_nodes(scenario)


def test_a_batch_that_was_verified_by_nobody_is_fenced_by_the_marker() -> None:
    """A partition of the transaction has a marker even if nothing was written to it."""

    async def scenario(nodes: Nodes) -> None:
        producer = await nodes.init()
        await wait_safe(nodes.two.transactions.begin_with("pay", producer, partitions=[ORDERS[0]]))
        await nodes.two.transactions.end("pay", producer, commit=False)
        with pytest.raises(ProducerFenced):
            nodes.one.partition(ORDERS[0]).append_in_transaction(a_batch(producer), Acks.ALL)

    in_nodes(scenario)


def test_markers_follow_a_partition_to_its_next_leader() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        nodes.cut_off.add(ONE)
        ending = asyncio.ensure_future(nodes.two.transactions.end("pay", producer, commit=True))
        await asyncio.sleep(5)
        assert not ending.done()
        assert nodes.two.transactions.get("pay").state is TransactionState.COMMITTING
        await nodes.elect(ORDERS[0], TWO)
        await ending
        known = nodes.two.partition(ORDERS[0]).log.producers.get(producer.producer_id)
        assert known is not None and known.epoch == producer.epoch + 1

    in_nodes(scenario)


def test_a_partition_without_a_leader_gets_its_marker_when_it_has_one() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        await nodes.elect(ORDERS[0], -1)
        ending = asyncio.ensure_future(nodes.two.transactions.end("pay", producer, commit=True))
        await asyncio.sleep(5)
        assert not ending.done()
        await nodes.elect(ORDERS[0], ONE)
        await ending
        assert open_in(nodes, producer) == [None, None]

    in_nodes(scenario)


def test_a_marker_of_a_coordinator_that_was_replaced_is_refused() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        await nodes.two.transactions.end("pay", producer, commit=True)
        known = nodes.one.partition(ORDERS[0]).log.producers.get(producer.producer_id)
        assert known is not None
        end_offset = nodes.one.partition(ORDERS[0]).log.end_offset
        late = Ending(producer, producer.epoch + 1, False, known.coordinator_epoch - 1)
        outcomes = await nodes.one.transactions.markers.end_here(late, [ORDERS[0]], [])
        assert isinstance(outcomes[ORDERS[0]], CoordinatorEpochFenced)
        assert nodes.one.partition(ORDERS[0]).log.end_offset == end_offset

    in_nodes(scenario)


def test_a_marker_for_a_partition_that_another_broker_leads_is_refused() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        ending = Ending(producer, producer.epoch + 1, True, 9)
        outcomes = await nodes.one.transactions.markers.end_here(ending, [ORDERS[1]], [])
        assert isinstance(outcomes[ORDERS[1]], NotLeader)

    in_nodes(scenario)


def test_offsets_are_committed_with_a_transaction_that_another_broker_coordinates() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        offsets = {ORDERS[0]: OffsetValue(5)}
        errors, safe = await nodes.one.transactions.commit_offsets("pay", producer, "g", Committer(), offsets)
        await wait_safe(safe)
        assert not errors and not nodes.one.groups.committed("g")
        assert nodes.two.transactions.get("pay").groups == ("g",)
        await nodes.two.transactions.end("pay", producer, commit=True)
        assert nodes.one.groups.committed("g")[ORDERS[0]].offset == 5
        assert nodes.one.groups.is_stable("g", None)

    in_nodes(scenario)


def test_late_offsets_are_refused_after_the_end_of_their_transaction() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        await nodes.two.transactions.end("pay", producer, commit=True)
        with pytest.raises(ProducerFenced):
            await nodes.one.transactions.commit_offsets("pay", producer, "g", Committer(), {ORDERS[0]: OffsetValue(5)})
        assert nodes.one.groups.is_stable("g", None)

    in_nodes(scenario)


def test_offsets_are_sent_to_the_coordinator_of_the_group() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        with pytest.raises(NotCoordinator):
            await nodes.two.transactions.commit_offsets("pay", producer, "g", Committer(), {ORDERS[0]: OffsetValue(5)})
        assert nodes.two.transactions.get("pay").groups == ()

    in_nodes(scenario)


def test_an_administrator_aborts_a_transaction_that_another_broker_coordinates() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        assert await nodes.one.transactions.abort_owned(producer)
        assert open_in(nodes, producer) == [None, None]
        assert not await nodes.one.transactions.abort_owned(producer)

    in_nodes(scenario)


def test_an_unknown_transaction_is_not_called_hanging_while_a_coordinator_is_away() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        await nodes.elect(TRANSACTIONS_0, -1)
        with pytest.raises(CoordinatorUnavailable):
            await nodes.one.transactions.abort_owned(producer)

    in_nodes(scenario)


def test_a_broker_of_a_cluster_that_starts_does_not_abort_transactions_it_does_not_know() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        for node in (nodes.one, nodes.two):
            await node.transactions.abort_interrupted(was_clean=False)
        assert open_in(nodes, producer) == [producer.epoch] * 2
        assert nodes.two.transactions.get("pay").state is TransactionState.ONGOING

    in_nodes(scenario)


def test_the_end_of_a_transaction_follows_a_group_to_its_next_coordinator() -> None:
    async def scenario(nodes: Nodes) -> None:
        producer = await an_open_transaction(nodes)
        await nodes.one.transactions.commit_offsets("pay", producer, "g", Committer(), {ORDERS[1]: OffsetValue(5)})
        await nodes.elect(OFFSETS_0, -1)
        ending = asyncio.ensure_future(nodes.two.transactions.end("pay", producer, commit=True))
        await asyncio.sleep(5)
        assert not ending.done()
        await nodes.elect(OFFSETS_0, ONE)
        await ending
        assert nodes.one.groups.committed("g")[ORDERS[1]].offset == 5

    in_nodes(scenario)
