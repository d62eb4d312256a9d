"""Elections and reassignments as Kafka's clients ask for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.unit.broker.world import World
from tests.unit.gateways.test_partial_failures import kafka_connection

from flymq.broker.broker import Broker
from flymq.cluster.catalog import PartitionState
from flymq.gateways.kafka import reassignments
from flymq.gateways.kafka.errors import ErrorCode
from flymq.host.virtual_time import run
from flymq.wire.kafka.apis import Api
from flymq.wire.kafka.codec import encode_response
from flymq.wire.kafka.messages import alter_partition_reassignments as change
from flymq.wire.kafka.messages import elect_leaders as election
from flymq.wire.kafka.messages import list_partition_reassignments as listing


def in_world(scenario: Callable[[World, Broker], Awaitable[None]]) -> None:
    async def live() -> None:
        world = World(quick_disk=True)
        node = await world.start()
        await node.admin.create("orders", partitions=2)
        await scenario(world, node)
        await world.close()

    run(live())


async def elect(node: Broker, wanted: dict[str, list[int]] | None, kind: int = 0) -> dict[tuple[str, int], int]:
    topics = None if wanted is None else [election.TopicPartitions(*each) for each in wanted.items()]
    request = election.ElectLeadersRequest(kind, topics)
    answer = await reassignments.elect_leaders(kafka_connection(node), request, 2)
    encode_response(Api.ELECT_LEADERS, 2, 1, answer)
    return {
        (topic.topic, part.partition_id): part.error_code
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }


async def alter(node: Broker, replicas: list[int] | None, *, may_change: bool = True) -> int:
    topic = change.ReassignableTopic("orders", [change.ReassignablePartition(0, replicas)])
    request = change.AlterPartitionReassignmentsRequest(1000, may_change, [topic])
    answer = await reassignments.alter_partition_reassignments(kafka_connection(node), request, 1)
    encode_response(Api.ALTER_PARTITION_REASSIGNMENTS, 1, 1, answer)
    return answer.responses[0].partitions[0].error_code


def test_leaders_that_need_no_election_are_named_if_they_were_asked_for() -> None:
    async def scenario(world: World, node: Broker) -> None:
        assert await elect(node, {"orders": [0, 5], "none": [0]}) == {
            ("orders", 0): ErrorCode.ELECTION_NOT_NEEDED,
            ("orders", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await elect(node, None) == {}
        assert await elect(node, {"orders": [1]}, kind=1) == {("orders", 1): ErrorCode.ELECTION_NOT_NEEDED}

    in_world(scenario)


def test_replicas_stay_on_the_only_broker() -> None:
    async def scenario(world: World, node: Broker) -> None:
        here = node.service.cluster.broker_id
        assert await alter(node, [here]) == ErrorCode.NONE
        assert await alter(node, [here, here + 1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await alter(node, [here, here + 1], may_change=False) == ErrorCode.INVALID_REPLICATION_FACTOR
        assert await alter(node, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    in_world(scenario)


def test_reassignments_that_are_under_way_are_listed() -> None:
    async def scenario(world: World, node: Broker) -> None:
        here = node.service.cluster.broker_id
        topic = node.image.get("orders")
        state = PartitionState(here, 0, [8, here], [here], [], [8], [here])
        written = await world.catalog.change_state(topic.topic_id, 1, topic.partitions[1], state)
        await node.image.until(written.revision)
        for topics in (None, [listing.ListPartitionReassignmentsTopics("orders", [0, 1])]):
            request = listing.ListPartitionReassignmentsRequest(1000, topics)
            answer = reassignments.list_partition_reassignments(kafka_connection(node), request, 0)
            encode_response(Api.LIST_PARTITION_REASSIGNMENTS, 0, 1, answer)
            ((part,),) = [each.partitions for each in answer.topics]
            assert part == listing.OngoingPartitionReassignment(1, [8, here], [8], [here])

    in_world(scenario)
