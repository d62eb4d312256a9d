"""Which broker coordinates a group or a transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.broker.world import World

from flymq.broker.coordinators.state_log import OFFSETS, TRANSACTIONS
from flymq.broker.service.caller import Caller
from flymq.broker.service.cluster import BrokerInfo
from flymq.coordination.attempts import Attempt
from flymq.host.virtual_time import run
from flymq.model.coordinators import CoordinatorKind
from flymq.model.errors import CoordinatorUnavailable
from flymq.model.names import TopicPartition
from flymq.record.partitioning import partition_for_key

NOBODY = -1
GROUP, TRANSACTION = CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION


def in_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def live() -> None:
        world = World(internal_partitions=2)
        await world.start()
        await scenario(world)
        await world.close()

    run(live())


def find(world: World, kind: CoordinatorKind, key: str) -> BrokerInfo:
    return world.node.service.coordinators.find(Caller("test"), kind, key, ("broker", 9092))


def test_the_coordinator_is_the_leader_of_the_partition_of_the_group_or_id() -> None:
    async def scenario(world: World) -> None:
        here = BrokerInfo(world.broker_id, "broker", 9092)
        assert [find(world, GROUP, "g"), find(world, TRANSACTION, "pay")] == [here, here]

    in_world(scenario)


@pytest.mark.parametrize(("kind", "topic"), [(GROUP, OFFSETS), (TRANSACTION, TRANSACTIONS)])
def test_a_partition_without_a_leader_has_no_coordinator_yet_and_others_have(kind: CoordinatorKind, topic: str) -> None:
    async def scenario(world: World) -> None:
        keys = {partition_for_key(key.encode(), 2): key for key in "abcdef"}
        await world.elect(TopicPartition(topic, 0), NOBODY)
        with pytest.raises(CoordinatorUnavailable, match=f"{topic}-0"):
            find(world, kind, keys[0])
        assert find(world, kind, keys[1]).broker_id == world.broker_id

    in_world(scenario)


def test_a_query_and_its_attempts_have_the_same_coordinator() -> None:
    async def scenario(world: World) -> None:
        query = next(key for key in "abcdef" if partition_for_key(key.encode(), 2) == 0)
        attempt = Attempt(query, 5)
        await world.elect(TopicPartition(TRANSACTIONS, 0), NOBODY)
        for key in (query, f"{query}:{attempt.batch}:task-1", f"{query}:{attempt.batch}:task-2"):
            with pytest.raises(CoordinatorUnavailable):
                find(world, TRANSACTION, key)

    in_world(scenario)
