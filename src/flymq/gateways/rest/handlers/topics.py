"""Topics and their settings."""

from __future__ import annotations

from urllib.parse import quote

import msgspec
from starlette.responses import Response

from flymq.broker.service.topics import Topic
from flymq.gateways.rest.http.bodies import JSON
from flymq.gateways.rest.schema import shapes
from flymq.gateways.rest.schema.operations import Call
from flymq.gateways.rest.schema.paging import take_page
from flymq.model.delivery import Isolation
from flymq.model.errors import InvalidReplicationFactor
from flymq.model.names import TopicPartition


async def list_topics(call: Call) -> shapes.TopicPage:
    """List topics."""
    query: shapes.TopicsQuery = call.query
    found = call.service.topics.all(call.caller, internal=query.internal)
    taken, token = take_page(found, lambda topic: topic.name, query)
    return shapes.TopicPage(
        [
            shapes.TopicSummary(topic.name, len(topic.partitions), topic.replication_factor, topic.is_internal)
            for topic in taken
        ],
        token,
    )


async def create_topic(call: Call) -> Response:
    """Create a topic."""
    body: shapes.NewTopic = call.body
    replication_factor, warnings = _replication_factor(call, body.replication_factor or 0)
    topic = await call.service.topics.create(
        call.caller,
        body.name,
        partitions=body.partitions or 0,
        replication_factor=replication_factor,
        settings=body.config,
    )
    assert topic is not None
    description = _describe(topic)
    if warnings:
        description.warnings = warnings
    headers = {"Location": f"/api/v1/topics/{quote(topic.name)}"}
    return Response(msgspec.json.encode(description), 201, headers, JSON)


def _replication_factor(call: Call, wanted: int) -> tuple[int, list[str]]:
    """Return the replication factor. In dev mode, examples for a cluster also work on one broker."""
    brokers = len(call.service.cluster.usable_brokers(("", 0)))
    if wanted <= brokers:
        return wanted, []
    if not call.rest.settings.clamps_replication:
        raise InvalidReplicationFactor(
            f"{wanted} replicas on {brokers} broker{'' if brokers == 1 else 's'}",
            hint="The replication factor cannot exceed the number of brokers. In dev mode, it is lowered.",
        )
    warning = f"replication_factor {wanted} was lowered to {brokers}, the number of brokers (dev mode)"
    return brokers, [warning]


async def describe_topic(call: Call) -> shapes.TopicDescription:
    """Describe a topic."""
    return _describe(call.service.topics.get(call.caller, call.path["topic"]))


async def alter_topic(call: Call) -> shapes.TopicDescription:
    """Add partitions to a topic, change its settings, or both."""
    body: shapes.TopicChanges = call.body
    name, topics, caller = call.path["topic"], call.service.topics, call.caller
    if body.config:
        await topics.alter(caller, name, body.config, validate_only=body.partitions is not None)
    if body.partitions is not None:
        await topics.add_partitions(caller, name, body.partitions)
        if body.config:
            await topics.alter(caller, name, body.config)
    return _describe(topics.get(caller, name))


async def delete_topic(call: Call) -> None:
    """Delete a topic and its records."""
    await call.service.topics.delete(call.caller, call.path["topic"])


async def describe_topic_config(call: Call) -> shapes.TopicConfiguration:
    """Return all settings of a topic, and which of them are overrides."""
    return _configuration(call.service.topics.get(call.caller, call.path["topic"]))


async def alter_topic_config(call: Call) -> shapes.TopicConfiguration:
    """Change settings of a topic; null resets a setting to its default."""
    body: shapes.ConfigChanges = call.body
    await call.service.topics.alter(call.caller, call.path["topic"], body.config)
    return _configuration(call.service.topics.get(call.caller, call.path["topic"]))


async def list_partitions(call: Call) -> shapes.Partitions:
    """List the partitions of a topic."""
    topics = call.service.topics
    topic = topics.get(call.caller, call.path["topic"])
    return shapes.Partitions(
        [
            shapes.PartitionDescription(
                info.number,
                info.state.leader,
                info.state.leader_epoch,
                info.state.replicas,
                info.state.isr,
                info.start_offset,
                info.high_watermark,
                info.last_stable_offset,
                info.size,
                bool(info.problem),
                info.problem,
            )
            for info in await topics.describe_partitions(call.caller, topic)
        ]
    )


async def show_offsets(call: Call) -> shapes.PartitionOffsets:
    """Return the start and end offset of a partition, and the offset of a timestamp."""
    query: shapes.OffsetsQuery = call.query
    name = TopicPartition(call.path["topic"], call.path["partition"])
    info = await call.service.topics.describe_partition(call.caller, name)
    offsets = shapes.PartitionOffsets(info.start_offset, info.high_watermark, info.last_stable_offset)
    if query.timestamp is not None:
        offsets.at_timestamp = await _find_time(call, name, query.timestamp)
    return offsets


async def _find_time(call: Call, name: TopicPartition, timestamp: int) -> int | None:
    service, isolation = call.service, Isolation.READ_COMMITTED
    if service.forwarding.is_elsewhere(name):
        return await service.forwarding.find_offset(call.caller, name, timestamp, isolation)
    found = await service.records.find_offset(call.caller, name, timestamp, isolation)
    return None if found is None else found.offset


def _describe(topic: Topic) -> shapes.TopicDescription:
    configuration = _configuration(topic)
    return shapes.TopicDescription(
        topic.name,
        str(topic.topic_id),
        topic.is_internal,
        len(topic.partitions),
        topic.replication_factor,
        configuration.config,
        configuration.overrides,
    )


def _configuration(topic: Topic) -> shapes.TopicConfiguration:
    return shapes.TopicConfiguration(dict(topic.settings), sorted(topic.own_settings))
