"""A broker that is killed is replaced long before its leases end, and one that was fenced by mistake comes back."""

from __future__ import annotations

import asyncio

from tests.unit.cluster.test_controller import World, all_in_sync, in_world

from flymq.cluster.brokers import CONTROLLER_KEY, Kept
from flymq.cluster.catalog import PartitionState


async def three(world: World) -> None:
    for broker_id in (1, 2, 3):
        await world.start(broker_id)
    assert world.governors == [1]


def test_the_partitions_of_a_killed_broker_are_led_by_others_without_waiting_for_its_lease() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.create(all_in_sync(3))
        epoch = world.kill_9(3)
        world.lose_connections(3, epoch)
        await asyncio.sleep(0.1)
        assert world.states == (PartitionState(1, 1, [1, 2, 3], [1, 2]),)
        assert world.nodes[2].image.members.live == {1, 2}

    in_world(scenario)


def test_a_killed_controller_is_replaced_and_its_partitions_are_led_without_waiting_for_its_leases() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.create(all_in_sync(1))
        epoch = world.kill_9(1)
        world.lose_connections(1, epoch)
        await asyncio.sleep(0.2)
        assert len(world.governors) == 1
        assert world.states == (PartitionState(2, 1, [1, 2, 3], [2, 3]),)

    in_world(scenario)


def test_whoever_died_with_the_controller_is_found_by_the_next_one() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.start(4)
        await world.create(PartitionState(4, 0, [4, 2, 3], [4, 2, 3]))
        epoch = world.kill_9(1)
        world.kill_9(4)  # nobody but the controller had a connection to it
        world.lose_connections(1, epoch)
        await asyncio.sleep(0.2)
        assert world.states == (PartitionState(2, 1, [4, 2, 3], [2, 3]),)

    in_world(scenario)


def test_a_broker_that_still_listens_is_not_fenced() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        epochs = {number: node.membership.epoch for number, node in world.nodes.items()}
        for number, epoch in epochs.items():
            assert epoch is not None
            world.lose_connections(number, epoch)
        await asyncio.sleep(5)
        assert world.governors == [1]
        assert world.nodes[1].image.members.live == {1, 2, 3}
        assert {number: node.membership.epoch for number, node in world.nodes.items()} == epochs

    in_world(scenario)


def test_a_port_that_is_closed_a_moment_after_the_connections_is_noticed() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.create(all_in_sync(3))
        epoch = world.kill_9(3)
        world.refusing.clear()
        world.lose_connections(3, epoch)
        await asyncio.sleep(0.05)
        world.refusing.add(3)
        await asyncio.sleep(0.5)
        assert world.states[0].leader == 1

    in_world(scenario)


def test_a_broker_that_was_restarted_is_not_taken_for_the_one_before() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        old_epoch = world.kill_9(3)
        node = await world.start(3)
        epoch = node.membership.epoch
        world.refusing.add(3)  # it is about to listen again
        probes = world.probes
        world.lose_connections(3, old_epoch)
        await asyncio.sleep(1)
        assert world.probes == probes
        assert node.image.members.live == {1, 2, 3} and node.membership.epoch == epoch

    in_world(scenario)


def test_a_broker_that_was_fenced_by_mistake_registers_again_and_has_lost_nothing() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.create(PartitionState(3, 0, [3], [3]))
        node = world.nodes[3]
        epoch = node.membership.epoch
        assert epoch is not None
        world.refusing.add(3)
        world.lose_connections(3, epoch)
        await asyncio.sleep(0.1)
        world.refusing.clear()
        await world.settle()
        assert node.membership.epoch is not None and node.membership.epoch > epoch and node.membership.is_valid
        member = node.image.members.find(3)
        assert member is not None and member.is_live and member.registration.kept is Kept.EVERYTHING
        assert world.states[0].leader == 3 and world.states[0].leader_epoch == 2

    in_world(scenario)


def test_a_broker_that_stops_is_fenced_when_its_port_is_closed_and_does_not_register_again() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.create(all_in_sync(3))
        membership = world.nodes[3].membership
        assert await membership.drain(timeout_s=5)
        epoch = membership.epoch
        assert epoch is not None
        world.refusing.add(3)
        world.lose_connections(3, epoch)
        await world.settle()
        assert membership.epoch == epoch
        member = world.nodes[1].image.members.find(3)
        assert member is not None and member.epoch == epoch and member.is_fenced

    in_world(scenario)


def test_a_broker_that_nobody_can_connect_to_does_not_register_many_times_a_second() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        membership = world.nodes[3].membership
        world.refusing.add(3)
        epochs: set[int] = set()
        for _ in range(100):  # ten seconds
            if membership.epoch is not None:
                epochs.add(membership.epoch)
                world.lose_connections(3, membership.epoch)
            await asyncio.sleep(0.1)
        assert 5 < len(epochs) < 15

    in_world(scenario)


def test_a_broker_that_was_never_admitted_does_not_become_clean_by_registering_again() -> None:
    async def scenario(world: World) -> None:
        node = await world.start(1, was_clean=False)
        await world.kill(1)
        (await world.start(2)).life.pause()  # the controller is paused: nobody is admitted
        node = await world.start(1, was_clean=False)
        assert node.membership._session is not None
        await node.membership._session.close()
        await world.settle()
        member = node.image.members.find(1)
        assert member is not None and not member.is_admitted and member.registration.kept is Kept.NOTHING
        world.nodes[2].life.resume()
        await world.settle()
        assert node.image.members.live == {1, 2}

    in_world(scenario)


def test_a_controller_that_is_restarted_at_once_takes_its_seat_again() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        old = world.nodes[1].controller.epoch
        world.kill_9(1)
        await world.start(1)
        (governor,) = world.governors
        epoch = world.nodes[governor].controller.epoch
        assert old is not None and epoch is not None and epoch > old
        assert world.nodes[1].image.members.live == {1, 2, 3}

    in_world(scenario)


def test_a_controller_that_was_deposed_by_mistake_competes_again() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        epoch = world.nodes[1].membership.epoch
        assert epoch is not None
        world.refusing.add(1)
        world.lose_connections(1, epoch)
        await asyncio.sleep(0.3)
        world.refusing.clear()
        await world.settle()
        seats = [each for each in (await world.store.range(CONTROLLER_KEY)).key_values if each.key == CONTROLLER_KEY]
        assert len(world.governors) == len(seats) == 1
        assert world.nodes[2].image.members.live == {1, 2, 3}

    in_world(scenario)
