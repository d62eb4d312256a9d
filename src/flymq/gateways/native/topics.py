"""Topics and the brokers that hold them."""

from __future__ import annotations

from flymq.broker.replicas.replicas import Topic
from flymq.gateways.native.connection import NativeConnection
from flymq.model.errors import FlyMQError
from flymq.wire.native.messages import topics as wire
from flymq.wire.native.messages.fields import Failure
from flymq.wire.native.messages.session import Done


async def create_topic(connection: NativeConnection, request: wire.CreateTopic) -> wire.CreateTopicAnswer:
    topic = await connection.broker.admin.create(
        request.topic,
        partitions=request.partitions,
        replication_factor=request.replication_factor,
        settings=request.settings,
        validate_only=request.validate_only,
    )
    if topic is None:
        return wire.CreateTopicAnswer(topic=request.topic)
    return wire.CreateTopicAnswer(
        topic=topic.name,
        topic_id=topic.topic_id.bytes,
        partitions=len(topic.partitions),
        replication_factor=topic.entry.replication_factor,
    )


async def delete_topic(connection: NativeConnection, request: wire.DeleteTopic) -> Done:
    await connection.broker.admin.delete(request.topic)
    return Done()


def list_topics(connection: NativeConnection, request: wire.ListTopics) -> wire.ListTopicsAnswer:
    return wire.ListTopicsAnswer(
        topics=[
            wire.TopicSummary(topic.name, len(topic.partitions), topic.entry.replication_factor, topic.is_internal)
            for topic in connection.broker.topics
            if request.internal or not topic.is_internal
        ]
    )


def describe_topic(connection: NativeConnection, request: wire.DescribeTopic) -> wire.DescribeTopicAnswer:
    topic = connection.broker.topics.get(request.topic)
    return wire.DescribeTopicAnswer(
        topic=topic.name,
        topic_id=topic.topic_id.bytes,
        internal=topic.is_internal,
        replication_factor=topic.entry.replication_factor,
        settings=dict(topic.config.to_mapping()),
        overrides=sorted(topic.entry.settings),
        partitions=[
            wire.PartitionDescription(
                partition.name.partition,
                state.leader,
                partition.leader_epoch,
                state.replicas,
                state.isr,
                partition.log.start_offset,
                partition.high_watermark,
                partition.log.size,
            )
            for partition, state in zip(topic.partitions, topic.states, strict=True)
        ],
    )


async def alter_topic(connection: NativeConnection, request: wire.AlterTopic) -> Done:
    await connection.broker.admin.alter(request.topic, request.settings, validate_only=request.validate_only)
    return Done()


async def add_partitions(connection: NativeConnection, request: wire.AddPartitions) -> Done:
    await connection.broker.admin.add_partitions(request.topic, request.partitions)
    return Done()


async def metadata(connection: NativeConnection, request: wire.Metadata) -> wire.MetadataAnswer:
    broker = connection.broker
    names = [topic.name for topic in broker.topics] if request.topics is None else request.topics
    topics = []
    for name in names:
        try:
            found = await broker.admin.get_or_create(name) if request.auto_create else broker.topics.get(name)
            topics.append(_topic_metadata(found))
        except FlyMQError as error:
            topics.append(wire.TopicMetadata(name, error=Failure.of(error)))
    host, port = broker.advertised
    dialled_host, dialled_port = connection.local_address
    address = wire.BrokerAddress(broker.broker_id, host or dialled_host, port or dialled_port)
    return wire.MetadataAnswer(
        cluster_id=broker.cluster_id, brokers=[address], topics=topics, controller=broker.broker_id
    )


def _topic_metadata(topic: Topic) -> wire.TopicMetadata:
    return wire.TopicMetadata(
        topic.name,
        topic.topic_id.bytes,
        topic.is_internal,
        None,
        [
            wire.PartitionMetadata(number, state.leader, state.leader_epoch, state.replicas, state.isr)
            for number, state in enumerate(topic.states)
        ],
        topic.config.max_message_bytes,
    )
