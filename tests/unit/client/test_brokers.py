"""How a client reaches the brokers of a cluster: bootstrap addresses, advertised ones, and brokers that are gone."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.ports import free_port
from tests.unit.client.fake_brokers import FakeBrokers

from flymq.client.settings import Address
from flymq.model.errors import BrokerUnavailable
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.session import Done, Ping
from flymq.wire.native.messages.topics import Metadata


def _done(broker: int, request: Message) -> Message:
    return Done()


@contextmanager
def _black_hole() -> Iterator[Address]:
    """An address where connections are neither accepted nor refused: the queue of its socket is full."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    address: Address = listening.getsockname()
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(address)
    try:
        yield address
    finally:
        for filler in [*fillers, listening]:
            filler.close()


async def test_dead_addresses_of_the_bootstrap_list_are_passed_over():
    brokers = FakeBrokers(1, _done)
    async with brokers.running():
        dead = [("127.0.0.1", free_port()) for _ in range(2)]
        async with FakeBrokers(1, _done).cluster(*dead, brokers.addresses[0]) as cluster:
            await cluster.ask(Ping(), Done)
            assert (await cluster.connection()).address == brokers.addresses[0]


async def test_a_black_holed_address_delays_the_others_by_a_moment_only():
    brokers = FakeBrokers(1, _done)
    with _black_hole() as hole:
        async with (
            brokers.running(),
            FakeBrokers(1, _done).cluster(
                hole, brokers.addresses[0], connect_timeout_ms=3_600_000, request_timeout_ms=3_600_000
            ) as cluster,
        ):
            await cluster.ask(Ping(), Done)  # would wait for an hour
            assert (await cluster.connection()).address == brokers.addresses[0]


async def test_every_broker_is_reached_at_the_address_that_it_advertises():
    brokers = FakeBrokers(3, _done)
    async with brokers.cluster() as cluster:
        await cluster.refresh("orders")
        for broker in range(3):
            await cluster.ask(Ping(), Done, broker=broker)
    assert brokers.asked_of(Ping) == [0, 1, 2]


async def test_an_address_that_works_is_kept_whatever_the_broker_advertises():
    brokers = FakeBrokers(1, _done)
    brokers.advertised[0] = ("127.0.0.1", free_port())
    async with brokers.cluster() as cluster:
        await cluster.refresh("orders")
        (await cluster.connection(0)).close()
        await cluster.ask(Ping(), Done, broker=0)
    assert brokers.asked_of(Ping) == [0]


async def test_a_broker_that_answers_at_the_address_of_another_is_not_taken_for_it():
    """As behind one address that leads to any of them: a load balancer, or a service of Kubernetes."""
    brokers = FakeBrokers(2, _done)
    async with brokers.cluster() as cluster:
        await cluster.refresh("orders")
        await cluster.ask(Ping(), Done, broker=1)
        (await cluster.connection(1)).close()
        cluster.brokers._reached[1] = brokers.addresses[0]  # where broker 1 has answered before, as the client saw it
        await cluster.ask(Ping(), Done, broker=1)
    assert brokers.asked_of(Ping) == [1, 1]


async def test_an_advertised_address_that_cannot_be_reached_is_named_with_the_setting_to_change(caplog):
    brokers = FakeBrokers(2, _done)
    port = free_port()
    brokers.advertised[1] = ("127.0.0.1", port)
    async with brokers.cluster(request_timeout_ms=500) as cluster:
        await cluster.refresh("orders")
        with caplog.at_level(logging.WARNING, "flymq"), pytest.raises(BrokerUnavailable) as refusal:
            await cluster.ask(Ping(), Done, broker=1)
    assert f"broker 1 advertises 127.0.0.1:{port}, which cannot be reached from here" in refusal.value.message
    assert "listener.advertised_host" in refusal.value.hint
    assert sum("advertises" in line for line in caplog.messages) == 1, "once, however often it is tried"


async def test_all_brokers_that_advertise_one_address_are_told_apart():
    brokers = FakeBrokers(2, _done)
    async with brokers.cluster(request_timeout_ms=100) as cluster:
        brokers.advertised[1] = brokers.addresses[0]
        await cluster.refresh("orders")
        with pytest.raises(BrokerUnavailable, match="broker 0 answers, not broker 1"):
            await cluster.ask(Ping(), Done, broker=1)


async def test_metadata_comes_from_another_broker_when_the_first_is_gone():
    brokers = FakeBrokers(2, _done)
    async with brokers.cluster() as cluster:
        await cluster.refresh("orders")
        brokers.kill(0)
        brokers.leaders = [(1, 1)]
        cluster.invalidate("orders")
        assert await cluster.retry(lambda: cluster.leader_of("orders", 0)) == 1
    assert brokers.asked_of(Metadata) == [0, 1]


async def test_metadata_comes_from_another_broker_when_the_first_is_silent():
    brokers = FakeBrokers(2, _done)
    async with brokers.cluster(request_timeout_ms=3_600_000) as cluster:
        await cluster.refresh("orders")
        brokers.silent.add(0)
        brokers.leaders = [(1, 1)]
        cluster.invalidate("orders")
        assert await cluster.leader_of("orders", 0) == 1  # would wait for an hour
        cluster.invalidate("orders")
        assert await cluster.leader_of("orders", 0) == 1
    assert brokers.asked_of(Metadata) == [0, 0, 1, 1], "the silent one is not asked first again"


async def test_metadata_of_a_broker_that_lags_behind_does_not_bring_back_an_old_leader():
    brokers = FakeBrokers(2, _done)
    brokers.leaders = [(1, 5)]
    async with brokers.cluster() as cluster:
        assert await cluster.leader_of("orders", 0) == 1
        brokers.leaders = [(0, 4)]
        await cluster.refresh("orders")
        assert cluster.leader("orders", 0) == 1
        brokers.topic_id = b"another topic id"  # deleted and created again: its epochs begin anew
        await cluster.refresh("orders")
        assert cluster.leader("orders", 0) == 0


async def test_concurrent_lookups_share_one_request():
    brokers = FakeBrokers(1, _done)
    async with brokers.cluster() as cluster:
        await asyncio.gather(*(cluster.leader_of("orders", 0) for _ in range(10)))
    assert brokers.asked_of(Metadata) == [0]
