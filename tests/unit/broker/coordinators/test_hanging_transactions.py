"""A transaction that an administrator sees in a partition is aborted whole, or as a hanging one. In virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.broker.world import Producer, World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.hanging_transactions import abort_in_partition
from flymq.broker.coordinators.state_log import TRANSACTIONS
from flymq.coordination.entries import ProducerIdentity
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks, Isolation
from flymq.model.errors import (
    CoordinatorEpochFenced,
    CoordinatorUnavailable,
    InvalidRequest,
    ProducerFenced,
    TransactionAborted,
)
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.record.partitioning import partition_for_key

PARTS = [TopicPartition("t", number) for number in range(2)]
HANGING = ProducerIdentity(77, 3)

Abort = Callable[..., Awaitable[None]]


def in_world(scenario: Callable[[World, Broker, Abort], Awaitable[None]]) -> None:
    async def live() -> None:
        world = World()
        node = await world.start()
        await world.create_topic("t", len(PARTS))

        async def abort(producer: ProducerIdentity, *, coordinator_epoch: int = 0) -> None:
            await abort_in_partition(
                node.transactions,
                node.replicas.get(PARTS[0]),
                producer,
                coordinator_epoch=coordinator_epoch,
                clock=node.clock,
            )

        await scenario(world, node, abort)
        await world.close()

    run(live())


def write_hanging(node: Broker) -> None:
    """Write a batch of a transaction that no coordinator knows."""
    batch = encode_batch(
        [(None, b"x")],
        producer_id=HANGING.producer_id,
        producer_epoch=HANGING.epoch,
        base_sequence=0,
        transactional=True,
    )
    node.replicas.get(PARTS[0]).append_in_transaction(batch, Acks.LEADER)


def test_a_hanging_transaction_is_aborted_and_no_longer_blocks_readers() -> None:
    async def scenario(world: World, node: Broker, abort: Abort) -> None:
        write_hanging(node)
        partition = node.replicas.get(PARTS[0])
        assert partition.last_stable_offset == 0
        await abort(HANGING)
        assert partition.last_stable_offset == partition.high_watermark == 2
        assert world.read(*PARTS[0]) == []
        await abort(HANGING)
        assert partition.high_watermark == 2, "nothing is open any more, so nothing is written"

    in_world(scenario)


def test_a_transaction_with_a_coordinator_is_aborted_in_all_its_partitions_and_its_producer_is_told() -> None:
    async def scenario(world: World, node: Broker, abort: Abort) -> None:
        producer = Producer(world, "pay")
        await producer.init()
        await producer.begin()
        for name in PARTS:
            await producer.write(name, [b"x"], Acks.ALL)
        assert producer.identity is not None
        await abort(producer.identity)
        for name in PARTS:
            assert node.replicas.get(name).last_stable_offset == 2
            assert world.read(*name, Isolation.READ_COMMITTED) == []
        with pytest.raises(TransactionAborted):
            await producer.write(PARTS[1], [b"y"], Acks.ALL)

    in_world(scenario)


def test_a_transaction_whose_coordinator_is_elsewhere_or_still_loads_is_not_taken_for_a_hanging_one() -> None:
    async def scenario(world: World, node: Broker, abort: Abort) -> None:
        producer = Producer(world, "pay")
        await producer.init()
        await producer.begin()
        await producer.write(PARTS[0], [b"x"], Acks.ALL)
        assert producer.identity is not None
        home = TopicPartition(TRANSACTIONS, partition_for_key(b"pay", len(node.image.get(TRANSACTIONS).partitions)))
        await world.elect(home, 7)  # another broker
        with pytest.raises(CoordinatorUnavailable):
            await abort(producer.identity)
        await world.elect(home, world.broker_id)
        with pytest.raises(CoordinatorUnavailable):
            await abort(producer.identity)
        assert node.replicas.get(PARTS[0]).high_watermark == 1, "no marker: the coordinator may still commit"

    in_world(scenario)


def test_an_abort_with_other_epochs_or_of_an_unknown_producer_changes_nothing() -> None:
    async def scenario(world: World, node: Broker, abort: Abort) -> None:
        write_hanging(node)
        await abort(ProducerIdentity(78, 3))
        with pytest.raises(ProducerFenced):
            await abort(HANGING._replace(epoch=2))
        with pytest.raises(InvalidRequest):
            await abort(HANGING._replace(epoch=9))
        assert node.replicas.get(PARTS[0]).high_watermark == 1
        await abort(HANGING, coordinator_epoch=5)
        with pytest.raises(CoordinatorEpochFenced):
            await abort(HANGING, coordinator_epoch=4)
        assert node.replicas.get(PARTS[0]).high_watermark == 2

    in_world(scenario)
