"""Topics and their settings."""

from __future__ import annotations

from urllib.parse import quote

import msgspec
from starlette.responses import Response

from flymq.broker.replicas.replicas import Topic
from flymq.gateways.rest import shapes
from flymq.gateways.rest.bodies import JSON
from flymq.gateways.rest.operations import Call
from flymq.gateways.rest.paging import take_page
from flymq.model.delivery import Isolation
from flymq.model.errors import InvalidReplicationFactor
from flymq.model.names import TopicPartition

BROKERS = 1
"""How many there are; replication has none to choose from yet."""


async def list_topics(call: Call) -> shapes.TopicPage:
    """List topics."""
    query: shapes.TopicsQuery = call.query
    found = [topic for topic in call.broker.topics if query.internal or not topic.is_internal]
    taken, token = take_page(found, lambda topic: topic.name, query)
    return shapes.TopicPage(
        [
            shapes.TopicSummary(topic.name, len(topic.partitions), topic.entry.replication_factor, topic.is_internal)
            for topic in taken
        ],
        token,
    )


async def create_topic(call: Call) -> Response:
    """Create a topic."""
    body: shapes.NewTopic = call.body
    replication_factor, warnings = _replication_factor(call, body.replication_factor or 0)
    topic = await call.broker.admin.create(
        body.name, partitions=body.partitions or 0, replication_factor=replication_factor, settings=body.config
    )
    assert topic is not None
    description = _describe(topic)
    if warnings:
        description.warnings = warnings
    headers = {"Location": f"/api/v1/topics/{quote(topic.name)}"}
    return Response(msgspec.json.encode(description), 201, headers, JSON)


def _replication_factor(call: Call, wanted: int) -> tuple[int, list[str]]:
    """Return how many replicas the topic gets. In dev mode an example written for a cluster works on one broker too."""
    if wanted <= BROKERS:
        return wanted, []
    if not call.rest.settings.clamps_replication:
        raise InvalidReplicationFactor(
            f"{wanted} replicas on {BROKERS} broker",
            hint="Ask for at most as many as there are brokers. In dev mode, the topic gets as many as there are.",
        )
    warning = f"replication_factor {wanted} was lowered to {BROKERS}, the number of brokers: this is dev mode"
    return BROKERS, [warning]


async def describe_topic(call: Call) -> shapes.TopicDescription:
    """Describe a topic."""
    return _describe(call.broker.topics.get(call.path["topic"]))


async def alter_topic(call: Call) -> shapes.TopicDescription:
    """Add partitions to a topic, change its settings, or both."""
    body: shapes.TopicChanges = call.body
    name, admin = call.path["topic"], call.broker.admin
    if body.config:
        await admin.alter(name, body.config, validate_only=body.partitions is not None)
    if body.partitions is not None:
        await admin.add_partitions(name, body.partitions)
        if body.config:
            await admin.alter(name, body.config)
    return _describe(call.broker.topics.get(name))


async def delete_topic(call: Call) -> None:
    """Delete a topic and its records."""
    await call.broker.admin.delete(call.path["topic"])


async def describe_topic_config(call: Call) -> shapes.TopicConfiguration:
    """Show all settings of a topic, and which of them are its own."""
    return _configuration(call.broker.topics.get(call.path["topic"]))


async def alter_topic_config(call: Call) -> shapes.TopicConfiguration:
    """Change settings of a topic; null takes one back to its default."""
    body: shapes.ConfigChanges = call.body
    await call.broker.admin.alter(call.path["topic"], body.config)
    return _configuration(call.broker.topics.get(call.path["topic"]))


async def list_partitions(call: Call) -> shapes.Partitions:
    """List the partitions of a topic."""
    topic = call.broker.topics.get(call.path["topic"])
    return shapes.Partitions(
        [
            shapes.PartitionDescription(
                number,
                state.leader,
                partition.leader_epoch,
                state.replicas,
                state.isr,
                partition.log.start_offset,
                partition.high_watermark,
                partition.last_stable_offset,
                partition.log.size,
                partition.log.failure is not None,
            )
            for number, (partition, state) in enumerate(zip(topic.partitions, topic.states, strict=True))
        ]
    )


async def show_offsets(call: Call) -> shapes.PartitionOffsets:
    """Show where a partition begins and ends, and where a time is in it."""
    query: shapes.OffsetsQuery = call.query
    partition = call.broker.topics.partition(TopicPartition(call.path["topic"], call.path["partition"]))
    offsets = shapes.PartitionOffsets(
        partition.log.start_offset, partition.high_watermark, partition.last_stable_offset
    )
    if query.timestamp is not None:
        found = partition.find_time(query.timestamp, Isolation.READ_COMMITTED)
        offsets.at_timestamp = None if found is None else found.offset
    return offsets


def _describe(topic: Topic) -> shapes.TopicDescription:
    configuration = _configuration(topic)
    return shapes.TopicDescription(
        topic.name,
        str(topic.topic_id),
        topic.is_internal,
        len(topic.partitions),
        topic.entry.replication_factor,
        configuration.config,
        configuration.overrides,
    )


def _configuration(topic: Topic) -> shapes.TopicConfiguration:
    return shapes.TopicConfiguration(dict(topic.config.to_mapping()), sorted(topic.entry.settings))
