"""An operator elects leaders and moves replicas, at any broker."""

from __future__ import annotations

import pytest
from tests.unit.cluster.test_controller import TOPIC, World, all_in_sync, in_world

from flymq.broker.partition_admin import PartitionAdmin
from flymq.cluster.catalog import NO_LEADER, PartitionState
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


async def a_cluster(world: World, *brokers: int) -> PartitionAdmin:
    for broker_id in brokers:
        await world.start(broker_id)
    last = brokers[-1]  # not the controller
    return PartitionAdmin(world.store, world.nodes[last].image, last)


def code(error: FlyMQError | None) -> str | None:
    return None if error is None else error.code


def test_the_preferred_leader_is_elected_on_request() -> None:
    async def scenario(world: World) -> None:
        admin = await a_cluster(world, 1, 2, 3)
        await world.create(all_in_sync(3), all_in_sync(1))
        outcomes = await admin.elect([FIRST, SECOND, TopicPartition("orders", 7)])
        assert {name.partition: code(error) for name, error in outcomes.items()} == {
            0: None,
            1: "ELECTION_NOT_NEEDED",
            7: "PARTITION_NOT_FOUND",
        }
        assert world.nodes[3].image.get("orders").partitions[0] == all_in_sync(1, epoch=1), "known when it returns"

    in_world(scenario)


def test_a_preferred_leader_that_is_not_in_sync_is_not_elected() -> None:
    async def scenario(world: World) -> None:
        admin = await a_cluster(world, 1, 2, 3)
        await world.create(PartitionState(2, 0, [1, 2, 3], [2, 3]))
        assert code((await admin.elect([FIRST]))[FIRST]) == "PREFERRED_LEADER_NOT_AVAILABLE"
        assert world.states[0].leader == 2

    in_world(scenario)


def test_a_replica_out_of_sync_is_elected_on_request_where_nobody_leads(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        admin = await a_cluster(world, 1, 2, 3)
        await world.create(PartitionState(2, 0, [2, 1], [2]), PartitionState(2, 0, [2], [2]), all_in_sync(1))
        await world.kill(2)
        assert world.states[0].leader == NO_LEADER
        outcomes = await admin.elect([FIRST, SECOND, TopicPartition("orders", 2)], unclean=True)
        assert [code(error) for error in outcomes.values()] == [
            None,
            "ELIGIBLE_LEADERS_NOT_AVAILABLE",
            "ELECTION_NOT_NEEDED",
        ]
        assert world.states[0] == PartitionState(1, 2, [2, 1], [1])
        assert "UNCLEAN ELECTION by request" in caplog.text

    in_world(scenario)


def test_a_partition_moves_when_its_new_replicas_are_in_sync() -> None:
    async def scenario(world: World) -> None:
        admin = await a_cluster(world, 1, 2, 3)
        await world.create(PartitionState(1, 0, [1], [1]))
        assert await admin.reassign({FIRST: [3, 2]}) == {FIRST: None}
        assert list(admin.reassignments()) == [FIRST]
        begun = world.states[0]
        assert begun == PartitionState(1, 0, [3, 2, 1], [1], [], [3, 2], [1])
        caught_up = PartitionState(1, 0, [3, 2, 1], [3, 2, 1], [], [3, 2], [1])
        await world.catalog.change_state(TOPIC, 0, begun, caught_up)  # as the leader does
        await world.settle()
        assert world.states[0] == PartitionState(3, 1, [3, 2], [3, 2])
        assert admin.reassignments() == {}

    in_world(scenario)


def test_a_reassignment_is_cancelled() -> None:
    async def scenario(world: World) -> None:
        admin = await a_cluster(world, 1, 2, 3)
        await world.create(PartitionState(1, 0, [1, 2], [1, 2]))
        assert code((await admin.reassign({FIRST: None}))[FIRST]) == "NO_REASSIGNMENT_IN_PROGRESS"
        await admin.reassign({FIRST: [3]})
        assert await admin.reassign({FIRST: None}) == {FIRST: None}
        assert world.states[0] == PartitionState(1, 0, [1, 2], [1, 2])

    in_world(scenario)


@pytest.mark.parametrize("replicas", [[], [1, 1], [9], [-1]])
def test_replicas_that_cannot_be_are_refused(replicas: list[int]) -> None:
    async def scenario(world: World) -> None:
        admin = await a_cluster(world, 1, 2)
        await world.create(PartitionState(1, 0, [1, 2], [1, 2]))
        assert code((await admin.reassign({FIRST: replicas}))[FIRST]) == "INVALID_REPLICA_ASSIGNMENT"
        assert world.states[0] == PartitionState(1, 0, [1, 2], [1, 2])

    in_world(scenario)


def test_a_removed_replica_stays_while_its_replacement_may_have_lost_records() -> None:
    async def scenario(world: World) -> None:
        admin = await a_cluster(world, 1, 2, 3)
        await world.create(PartitionState(1, 0, [1], [1]))
        await admin.reassign({FIRST: [3]})
        world.nodes[1].life.pause()  # the controller
        await world.catalog.change_state(TOPIC, 0, world.states[0], PartitionState(1, 0, [3, 1], [3, 1], [], [3], [1]))
        world.kill_9(3)
        await world.start(3, was_clean=False)
        world.nodes[1].life.resume()
        await world.settle()
        assert world.states[0].isr == [1] and world.states[0].replicas == [3, 1]

    in_world(scenario)
