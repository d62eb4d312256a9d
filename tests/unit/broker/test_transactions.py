"""Transactions on their log: what a crash, a full disk or a lost connection may not undo. In virtual time."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from tests.unit.broker.world import Producer, World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.groups import Committer
from flymq.broker.safety import wait_safe
from flymq.coordination import transactions as rules
from flymq.coordination.entries import OffsetValue, ProducerIdentity
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks, Isolation
from flymq.model.errors import (
    InvalidTransactionState,
    InvalidTransactionTimeout,
    ProducerFenced,
    StaleConnection,
    TransactionAborted,
    TransactionInProgress,
    UnknownProducer,
)
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.storage.log import Log

PARTS = [TopicPartition("t", number) for number in range(2)]
DAY_S = 24 * 60 * 60


def in_world(scenario: Any) -> None:
    """Run a scenario with a broker that has the topic `t`, and a producer."""

    async def live() -> None:
        world = World()
        node = await world.start()
        await world.create_topic("t", len(PARTS))
        producer = Producer(world, "pay")
        await producer.init()
        await scenario(world, node, producer)
        await world.close()

    run(live())


def seen(world: World, isolation: Isolation = Isolation.READ_COMMITTED) -> list[bytes]:
    return [record.value or b"" for partition in PARTS for record in world.read(*partition, isolation)]


def is_settled(world: World) -> bool:
    assert world.node is not None
    partitions = [world.node.replicas.get(name) for name in PARTS]
    return all(partition.last_stable_offset == partition.high_watermark for partition in partitions)


async def write(producer: Producer, *values: bytes, acks: Acks = Acks.ALL) -> None:
    for partition in PARTS:
        await producer.write(partition, list(values), acks)


def test_what_was_committed_survives_a_power_cut_however_it_was_written() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        await producer.begin()
        await write(producer, b"x", acks=Acks.LEADER)
        await producer.end(commit=True)
        await world.crash()
        await world.start()
        assert seen(world) == [b"x", b"x"]

    in_world(scenario)


def test_a_commit_goes_on_when_whoever_asked_for_it_is_gone() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        await producer.begin()
        await write(producer, b"x")
        assert producer.identity is not None
        asking = asyncio.ensure_future(node.transactions.end("pay", producer.identity, commit=True))
        while not seen(world) and not asking.done():
            await asyncio.sleep(0.0001)
            state = node.transactions._table("pay").find("pay")
            if state is not None and state.state.is_ending:
                asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert asking.cancelled()
        await asyncio.sleep(1)
        assert seen(world) == [b"x", b"x"]

    in_world(scenario)


def test_two_commits_at_once_are_one() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        await producer.begin()
        await write(producer, b"x")
        identity = producer.identity
        assert identity is not None
        ends = await asyncio.gather(*(node.transactions.end("pay", identity, commit=True) for _ in range(3)))
        assert ends == [ProducerIdentity(identity.producer_id, identity.epoch + 1)] * 3
        assert seen(world) == [b"x", b"x"]

    in_world(scenario)


def test_a_commit_and_an_abort_at_once_end_in_one_way_and_the_other_is_told() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        await producer.begin()
        await write(producer, b"x")
        identity = producer.identity
        assert identity is not None
        aborted, committed = await asyncio.gather(
            node.transactions.end("pay", identity, commit=False),
            node.transactions.end("pay", identity, commit=True),
            return_exceptions=True,
        )
        assert isinstance(aborted, ProducerIdentity)
        assert isinstance(committed, InvalidTransactionState)
        assert seen(world) == []

    in_world(scenario)


def test_an_end_that_the_disk_refuses_is_seen_through_after_a_restart() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        await producer.begin()
        await write(producer, b"x")
        assert producer.identity is not None
        log = node.replicas.get(PARTS[1]).log
        world.disk.fail_next("append", str(getattr(log, "directory", "")), errno.EIO)
        asking = asyncio.ensure_future(node.transactions.end("pay", producer.identity, commit=True))
        await asyncio.sleep(5)
        assert not asking.done()
        assert [record.value for record in world.read(*PARTS[0])] == [b"x"]
        with pytest.raises(TransactionInProgress):
            node.transactions.begin("pay", producer.identity)
        asking.cancel()
        await world.crash()
        await world.start()
        assert seen(world) == [b"x", b"x"]
        assert is_settled(world)

    in_world(scenario)


def test_what_a_producer_nobody_knows_left_open_is_ended_at_the_start() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        batch = encode_batch([(None, b"lost")], producer_id=77, producer_epoch=0, base_sequence=0, transactional=True)
        node.replicas.get(PARTS[0]).append_in_transaction(batch, Acks.LEADER)
        node.groups.commit_in_transaction("g", Committer(), ProducerIdentity(77, 0), {PARTS[0]: OffsetValue(5)})
        assert not is_settled(world)
        node = await world.restart()
        assert is_settled(world)
        assert node.groups.is_stable("g", None)
        assert (seen(world), node.groups.committed("g")) == ([], {})

    in_world(scenario)


def test_a_transaction_open_during_an_orderly_restart_times_out_as_if_there_had_been_none() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        await producer.begin()
        await write(producer, b"x")
        await asyncio.sleep(2)
        await world.restart()
        assert not is_settled(world)
        await asyncio.sleep(1.5)
        assert is_settled(world)
        with pytest.raises(TransactionAborted):
            await producer.end(commit=True)
        assert seen(world) == []

    in_world(scenario)


def test_an_id_whose_epochs_run_out_goes_on_under_another_producer_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "EPOCH_MAX", 2)

    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        identities = []
        for number in range(5):
            await producer.begin()
            await write(producer, b"%d" % number)
            await producer.end(commit=True)
            identities.append(producer.identity)
        assert identities == [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
        await producer.init()
        assert producer.identity == (2, 0)
        assert [record.value for record in world.read(*PARTS[0])] == [b"0", b"1", b"2", b"3", b"4"]

    in_world(scenario)


def test_an_id_whose_last_entries_were_lost_does_not_use_an_epoch_again() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        number = node.transactions._number("pay")
        log = node.replicas.get(TopicPartition("__transactions", number)).log
        assert isinstance(log, Log)
        kept = log.end_offset
        assert producer.identity is not None
        first = producer.identity.producer_id
        for value in (b"0", b"1"):
            await producer.begin()
            await write(producer, value)
            await producer.end(commit=True)
        log.truncate(kept)  # what `flymq repair salvage` leaves of a damaged log
        await world.restart()
        await producer.init()
        assert producer.identity is not None and producer.identity.producer_id != first
        await producer.begin()
        await write(producer, b"2")
        await producer.end(commit=True)
        assert [record.value for record in world.read(*PARTS[0])] == [b"0", b"1", b"2"]

    in_world(scenario)


def test_a_producer_that_keeps_its_epoch_writes_one_transaction_after_the_other() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        identity = producer.identity
        assert identity is not None
        for number, commit in enumerate((True, False, True)):
            node.transactions.begin("pay", identity)
            await write(producer, b"%d" % number)
            assert await node.transactions.end("pay", identity, commit=commit, keeps_epoch=True) == identity
            await world.crash()
            node = await world.start()
        assert seen(world) == [b"0", b"2", b"0", b"2"]

    in_world(scenario)


def test_a_producer_that_renews_itself_must_still_be_the_holder() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        first = producer.identity
        assert first is not None
        node.transactions.begin("pay", first)
        await write(producer, b"x")
        second = await node.transactions.init("pay", 1000, renews=first)
        assert second.epoch > first.epoch
        assert await node.transactions.init("pay", 1000, renews=first) == second, "a retry"
        await node.transactions.init("pay", 1000)
        with pytest.raises(ProducerFenced):
            await node.transactions.init("pay", 1000, renews=first)
        assert (seen(world), is_settled(world)) == ([], True)

    in_world(scenario)


def test_ids_that_nobody_uses_are_forgotten_and_open_ones_are_not() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        patient = Producer(world, "patient", timeout_ms=3_600_000)
        await asyncio.sleep(8 * DAY_S)
        await patient.init()
        await patient.begin()
        node.transactions.expire(node.clock.now_ms())
        with pytest.raises(UnknownProducer):
            await producer.begin()
        await patient.end(commit=True)

    in_world(scenario)


def test_a_timeout_beyond_the_limit_is_refused() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        for timeout_ms in (0, 3_600_001):
            with pytest.raises(InvalidTransactionTimeout):
                await node.transactions.init("pay", timeout_ms)

    in_world(scenario)


def test_an_abort_of_nothing_is_no_failure() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        first = producer.identity
        assert first is not None
        assert await node.transactions.end("pay", first, commit=False, keeps_epoch=True) == first
        with pytest.raises(InvalidTransactionState):
            await node.transactions.end("pay", first, commit=True)
        second = await node.transactions.end("pay", first, commit=False)
        assert second == ProducerIdentity(first.producer_id, first.epoch + 1), "it refuses batches on their way"
        assert await node.transactions.end("pay", first, commit=False) == second

    in_world(scenario)


def test_a_renewal_that_a_crash_interrupts_can_be_repeated() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        first = producer.identity
        assert first is not None
        await producer.begin()
        await write(producer, b"x")
        asking = asyncio.ensure_future(node.transactions.init("pay", 1000, renews=first))
        while node.transactions.get("pay").producer == first:  # noqa: ASYNC110
            await asyncio.sleep(0.0001)
        await world.crash()
        asking.cancel()
        node = await world.start()
        second = await node.transactions.init("pay", 1000, renews=first)
        assert await node.transactions.init("pay", 1000, renews=first) == second
        assert second.epoch > first.epoch
        assert (seen(world), is_settled(world)) == ([], True)

    in_world(scenario)


@pytest.mark.parametrize("crashes", [False, True])
def test_a_producer_that_keeps_its_epoch_aborts_what_the_broker_has_aborted_and_goes_on(crashes: bool) -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        identity = producer.identity
        assert identity is not None
        node.transactions.begin("pay", identity, keeps_epoch=True)
        await write(producer, b"aborted")
        if crashes:
            await world.crash()
            node = await world.start()
        else:
            await asyncio.sleep(10)
        for _ in range(2):  # it is still refused after a restart
            with pytest.raises(TransactionAborted):
                node.transactions.begin_with("pay", identity, partitions=PARTS, keeps_epoch=True)
            with pytest.raises(TransactionAborted):
                await node.transactions.end("pay", identity, commit=True, keeps_epoch=True)
            node = await world.restart()
        assert await node.transactions.end("pay", identity, commit=False, keeps_epoch=True) == identity
        await wait_safe(node.transactions.begin_with("pay", identity, partitions=PARTS, keeps_epoch=True))
        await write(producer, b"next")
        assert await node.transactions.end("pay", identity, commit=True, keeps_epoch=True) == identity
        assert seen(world) == [b"next", b"next"]

    in_world(scenario)


def test_an_abort_that_meets_the_abort_of_the_broker_succeeds() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        identity = producer.identity
        assert identity is not None
        for keeps_epoch in (True, False):
            node.transactions.begin("pay", identity, keeps_epoch=keeps_epoch)
            _, mine = await asyncio.gather(
                node.transactions.abort("pay"),
                node.transactions.end("pay", identity, commit=False, keeps_epoch=keeps_epoch),
            )
            assert mine == ProducerIdentity(identity.producer_id, identity.epoch + (not keeps_epoch))
            node.transactions.begin("pay", mine)
            identity = await node.transactions.end("pay", mine, commit=False)

    in_world(scenario)


def test_a_late_request_of_a_producer_that_keeps_its_epoch_is_told_by_its_connection() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        first = producer.identity
        assert first is not None
        check = node.transactions.check_order
        check("pay", first, 1)
        check("pay", first, 2)
        with pytest.raises(StaleConnection):
            check("pay", first, 1)
        check("pay", first, 1, produces=True)
        check("pay", ProducerIdentity(first.producer_id, first.epoch + 1), 3)  # refused by its epoch, elsewhere
        check("pay", first, 2)
        second = await node.transactions.init("pay", 1000)
        check("pay", second, 1)
        check("pay", second, 2)
        await asyncio.sleep(8 * DAY_S)
        node.transactions.expire(node.clock.now_ms())
        await producer.init()
        assert producer.identity is not None
        check("pay", producer.identity, 1)

    in_world(scenario)


def test_a_transaction_ends_though_its_topic_was_created_again_with_fewer_partitions() -> None:
    async def scenario(world: World, node: Broker, producer: Producer) -> None:
        await producer.begin()
        await write(producer, b"x")
        await node.admin.delete("t")
        await world.create_topic("t", 1)
        await producer.end(commit=False)
        await producer.init()
        assert world.read("t", 0) == []

    in_world(scenario)
