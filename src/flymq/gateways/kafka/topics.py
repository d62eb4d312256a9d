"""Create, extend and delete topics."""

from __future__ import annotations

from collections import Counter

from flymq.broker.service.topics import Topic
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import code_of
from flymq.gateways.kafka.settings import described, to_flymq, with_kafka_defaults
from flymq.host.time_slices import TimeSlice
from flymq.model.errors import FlyMQError, InvalidPartitions, InvalidReplicationFactor, InvalidRequest
from flymq.wire.kafka.messages import create_partitions as growth
from flymq.wire.kafka.messages import create_topics as creation
from flymq.wire.kafka.messages import delete_topics as deletion

_LEAVE_TO_BROKER = -1


async def create_topics(
    connection: KafkaConnection, request: creation.CreateTopicsRequest, _version: int
) -> creation.CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    results = []
    turn = TimeSlice()
    for wanted in {topic.name: topic for topic in request.topics}.values():
        await turn.yield_if_over()
        try:
            if times[wanted.name] > 1:
                raise InvalidRequest(f"the topic {wanted.name!r} is in the request {times[wanted.name]} times")
            results.append(await _create(connection, wanted, request.validate_only))
        except FlyMQError as error:
            results.append(
                creation.CreatableTopicResult(wanted.name, error_code=code_of(error), error_message=error.message)
            )
    return creation.CreateTopicsResponse(topics=results)


async def _create(
    connection: KafkaConnection, wanted: creation.CreatableTopic, validate_only: bool
) -> creation.CreatableTopicResult:
    partitions, replicas, placed = _sizes(wanted)
    settings = to_flymq({config.name: config.value for config in wanted.configs})
    settings = with_kafka_defaults(settings)
    topic = await connection.service.topics.create(
        connection.caller,
        wanted.name,
        partitions=partitions,
        replication_factor=replicas,
        settings=settings,
        placed=placed,
        validate_only=validate_only,
    )
    if topic is None:
        defaults = connection.service.topics.defaults
        return creation.CreatableTopicResult(
            wanted.name,
            num_partitions=partitions or defaults.partitions,
            replication_factor=replicas or defaults.replication_factor,
            configs=[],
        )
    return creation.CreatableTopicResult(
        topic.name,
        topic.topic_id.bytes,
        num_partitions=len(topic.partitions),
        replication_factor=topic.replication_factor,
        configs=_configs(topic),
    )


def _sizes(wanted: creation.CreatableTopic) -> tuple[int, int, list[list[int]] | None]:
    """Return the requested numbers of partitions and replicas, 0 for the default; and the brokers, if given."""
    if wanted.assignments:
        by_number = {assignment.partition_index: assignment.broker_ids for assignment in wanted.assignments}
        numbers = range(len(wanted.assignments))
        if sorted(by_number) != list(numbers) or wanted.num_partitions != _LEAVE_TO_BROKER:
            raise InvalidRequest("replica assignments list each partition from 0 on once, and need no number of them")
        placed = [by_number[number] for number in numbers]
        return len(placed), len(placed[0]), placed
    if wanted.num_partitions == 0 or wanted.num_partitions < _LEAVE_TO_BROKER:
        raise InvalidPartitions(f"a topic must have at least 1 partition, not {wanted.num_partitions}")
    if wanted.replication_factor == 0 or wanted.replication_factor < _LEAVE_TO_BROKER:
        raise InvalidReplicationFactor(f"a topic must have at least 1 replica, not {wanted.replication_factor}")
    return max(0, wanted.num_partitions), max(0, wanted.replication_factor), None


def _configs(topic: Topic) -> list[creation.CreatableTopicConfigs]:
    return [
        creation.CreatableTopicConfigs(setting.name, setting.value, setting.read_only, setting.source)
        for setting in described(topic)
    ]


async def delete_topics(
    connection: KafkaConnection, request: deletion.DeleteTopicsRequest, _version: int
) -> deletion.DeleteTopicsResponse:
    wanted = request.topics or [deletion.DeleteTopicState(name) for name in request.topic_names]
    results = []
    for each in wanted:
        name, topic_id = each.name, each.topic_id
        try:
            topics, caller = connection.service.topics, connection.caller
            topic = topics.get_by_id(caller, topic_id) if name is None else topics.get(caller, name)
            name, topic_id = topic.name, topic.topic_id.bytes
            await topics.delete(caller, name)
            results.append(deletion.DeletableTopicResult(name, topic_id))
        except FlyMQError as error:
            results.append(deletion.DeletableTopicResult(name, topic_id, code_of(error), error.message))
    return deletion.DeleteTopicsResponse(responses=results)


async def create_partitions(
    connection: KafkaConnection, request: growth.CreatePartitionsRequest, _version: int
) -> growth.CreatePartitionsResponse:
    results = []
    for wanted in request.topics:
        try:
            await _grow(connection, wanted, request.validate_only)
            results.append(growth.CreatePartitionsTopicResult(wanted.name))
        except FlyMQError as error:
            results.append(growth.CreatePartitionsTopicResult(wanted.name, code_of(error), error.message))
    return growth.CreatePartitionsResponse(results=results)


async def _grow(connection: KafkaConnection, wanted: growth.CreatePartitionsTopic, validate_only: bool) -> None:
    topics, caller = connection.service.topics, connection.caller
    topic = topics.get(caller, wanted.name)
    placed = None
    if wanted.assignments is not None:
        if len(wanted.assignments) != wanted.count - len(topic.partitions):
            raise InvalidRequest("replica assignments must list the new partitions, each once")
        placed = [assignment.broker_ids for assignment in wanted.assignments]
    await topics.add_partitions(caller, wanted.name, wanted.count, placed=placed, validate_only=validate_only)
