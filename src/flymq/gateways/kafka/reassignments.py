"""Leaders and replicas of partitions: elections on request, reassignments."""

from __future__ import annotations

from collections.abc import Sequence

from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.internal_topics import kafka_name, own_name
from flymq.model.errors import ElectionNotNeeded, FlyMQError, InvalidReplicationFactor
from flymq.model.names import TopicPartition
from flymq.wire.kafka.messages import alter_partition_reassignments as change
from flymq.wire.kafka.messages import elect_leaders as election
from flymq.wire.kafka.messages import list_partition_reassignments as listing

_PREFERRED, _UNCLEAN = 0, 1


async def elect_leaders(
    connection: KafkaConnection, request: election.ElectLeadersRequest, _version: int
) -> election.ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return election.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    topics, caller = connection.service.topics, connection.caller
    if request.topic_partitions is None:
        wanted = [
            TopicPartition(each.name, number) for each in topics.all(caller) for number in range(len(each.partitions))
        ]
    else:
        wanted = [
            TopicPartition(own_name(each.topic), number)
            for each in request.topic_partitions
            for number in each.partitions
        ]
    outcomes = await topics.elect(caller, wanted, unclean=request.election_type == _UNCLEAN)
    results: dict[str, list[election.PartitionResult]] = {}
    for name, error in outcomes.items():
        if request.topic_partitions is None and isinstance(error, ElectionNotNeeded):
            continue  # of all partitions, only those that needed one are listed
        result = election.PartitionResult(name.partition, code_of(error), _message(error))
        results.setdefault(kafka_name(name.topic), []).append(result)
    return election.ElectLeadersResponse(
        replica_election_results=[election.ReplicaElectionResult(topic, found) for topic, found in results.items()]
    )


async def alter_partition_reassignments(
    connection: KafkaConnection, request: change.AlterPartitionReassignmentsRequest, _version: int
) -> change.AlterPartitionReassignmentsResponse:
    wanted: dict[TopicPartition, Sequence[int] | None] = {}
    refused: dict[TopicPartition, FlyMQError | None] = {}
    for topic in request.topics:
        for part in topic.partitions:
            name = TopicPartition(own_name(topic.name), part.partition_index)
            if not request.allow_replication_factor_change and (error := _other_count(connection, name, part.replicas)):
                refused[name] = error
            else:
                wanted[name] = part.replicas
    outcomes = {**await connection.service.topics.reassign(connection.caller, wanted), **refused}
    results: dict[str, list[change.ReassignablePartitionResponse]] = {}
    for name, error in outcomes.items():
        result = change.ReassignablePartitionResponse(name.partition, code_of(error), _message(error))
        results.setdefault(kafka_name(name.topic), []).append(result)
    return change.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[change.ReassignableTopicResponse(topic, found) for topic, found in results.items()],
    )


def _other_count(
    connection: KafkaConnection, name: TopicPartition, replicas: Sequence[int] | None
) -> FlyMQError | None:
    """Return the error if the partition has another number of replicas."""
    topic = connection.service.topics.find(connection.caller, name.topic)
    if replicas is None or topic is None or not 0 <= name.partition < len(topic.partitions):
        return None  # a cancellation, or refused later
    now = len(topic.partitions[name.partition].target)
    if now == len(replicas):
        return None
    return InvalidReplicationFactor(f"{name} has {now} replicas; the number was not to be changed to {len(replicas)}")


def list_partition_reassignments(
    connection: KafkaConnection, request: listing.ListPartitionReassignmentsRequest, _version: int
) -> listing.ListPartitionReassignmentsResponse:
    asked = None
    if request.topics is not None:
        asked = {(own_name(each.name), number) for each in request.topics for number in each.partition_indexes}
    results: dict[str, list[listing.OngoingPartitionReassignment]] = {}
    for name, state in connection.service.topics.reassignments(connection.caller).items():
        if asked is None or name in asked:
            ongoing = listing.OngoingPartitionReassignment(name.partition, state.replicas, state.adding, state.removing)
            results.setdefault(kafka_name(name.topic), []).append(ongoing)
    return listing.ListPartitionReassignmentsResponse(
        topics=[listing.OngoingTopicReassignment(topic, found) for topic, found in results.items()]
    )


def _message(error: FlyMQError | None) -> str | None:
    return None if error is None else error.message
