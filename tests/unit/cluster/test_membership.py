"""A broker registers, tells the others what it cannot do, and hands over before it stops."""

from __future__ import annotations

import asyncio

from tests.unit.cluster.test_controller import TOPIC, World, all_in_sync, in_world

from flymq.cluster.catalog import NO_LEADER, PartitionState


async def three(world: World) -> None:
    for broker_id in (1, 2, 3):
        await world.start(broker_id)


def test_a_broker_whose_session_has_ended_registers_again() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        membership = world.nodes[2].membership
        epoch, session = membership.epoch, membership._session
        assert epoch is not None and session is not None and membership.is_valid
        await session.close()
        assert not membership.is_valid
        await world.settle()
        assert membership.is_valid and membership.epoch is not None and membership.epoch > epoch
        assert world.nodes[1].image.members.live == {1, 2, 3}

    in_world(scenario)


def test_partitions_whose_log_has_failed_are_led_elsewhere_and_the_others_stay() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.create(all_in_sync(1), all_in_sync(1), PartitionState(1, 0, [1], [1]))
        membership = world.nodes[1].membership
        membership.set_failed([(TOPIC, 1), (TOPIC, 2)])
        await world.settle()
        assert world.states == (
            all_in_sync(1),
            PartitionState(2, 1, [1, 2, 3], [2, 3]),
            PartitionState(NO_LEADER, 1, [1], [1]),
        )
        assert world.nodes[1].image.members.live == {1, 2, 3}
        membership.set_failed([])
        await world.settle()
        assert world.states[2] == PartitionState(1, 2, [1], [1])

    in_world(scenario)


def test_what_has_failed_is_still_known_after_registering_again() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.create(all_in_sync(1))
        membership = world.nodes[1].membership
        membership.set_failed([(TOPIC, 0)])
        await world.settle()
        assert membership._session is not None
        await membership._session.close()
        await world.settle()
        member = world.nodes[2].image.members.find(1)
        assert member is not None and member.is_live and member.has_failed(TOPIC, 0)

    in_world(scenario)


def test_draining_returns_when_the_others_lead_all_that_they_can() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.create(*[all_in_sync(1)] * 200, PartitionState(1, 0, [1], [1]))
        assert await world.nodes[1].membership.drain(timeout_s=5)
        assert [number for number, state in enumerate(world.states) if state.leader == 1] == [200]
        assert world.nodes[1].membership.is_valid, "it serves what nobody else can lead"

    in_world(scenario)


def test_draining_is_given_up_after_a_while_without_a_controller() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.create(all_in_sync(2))
        world.nodes[1].life.pause()
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        assert not await world.nodes[2].membership.drain(timeout_s=3)
        assert loop.time() - before_s < 3.1
        world.nodes[1].life.resume()

    in_world(scenario)
