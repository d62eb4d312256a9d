"""Members of groups that live on the broker, for clients that only poll. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.service.caller import Caller
from flymq.broker.service.groups import WantedMember
from flymq.broker.service.members import Member, NewMember
from flymq.broker.service.records import NewRecord
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.errors import ConsumerNotFound

CALLER = Caller("http")
Scenario = Callable[[World, Broker, Member], Awaitable[None]]


def with_member(scenario: Scenario) -> None:
    """Run a scenario with a broker that has the topic `orders`, and a member that reads it."""

    async def live() -> None:
        world = World()
        node = await world.start()
        await world.create_topic("orders", 1)
        await scenario(world, node, await node.service.members.add(CALLER, NewMember("billing", ["orders"], 30_000)))
        await world.close()

    run(live())


def publish(node: Broker, *values: bytes) -> None:
    for value in values:
        node.service.records.publish(CALLER, "orders", NewRecord(None, value), Acks.LEADER)


async def polled(member: Member) -> list[bytes | None]:
    taken = await member.poll(limit=100, bytes_max=1 << 20, wait_ms=5_000)
    return [record.value for part in taken.parts for record in part.records]


def test_a_member_reads_a_topic_that_was_created_again_from_its_beginning() -> None:
    async def scenario(world: World, node: Broker, member: Member) -> None:
        # One that does not join again holds up the rebalance, so that the topic is back before it ends.
        await node.service.groups.subscribe(CALLER, "billing", WantedMember(["invoices"]))
        publish(node, b"1", b"2", b"3")
        assert await polled(member) == [b"1", b"2", b"3"]
        await node.admin.delete("orders")
        await world.create_topic("orders", 1)
        publish(node, b"4", b"5", b"6", b"7")
        assert await polled(member) == [b"4", b"5", b"6", b"7"]

    with_member(scenario)


def test_a_poll_ends_at_once_when_its_member_leaves() -> None:
    async def scenario(world: World, node: Broker, member: Member) -> None:
        polling = asyncio.ensure_future(polled(member))
        await asyncio.sleep(0)
        began_s = world.machine.host.clock.monotonic_s()
        member.leave()
        with pytest.raises(ConsumerNotFound):
            await polling
        assert world.machine.host.clock.monotonic_s() == pytest.approx(began_s)

    with_member(scenario)
