"""Topics and cluster metadata."""

from __future__ import annotations

from flymq.broker.service.cluster_state import PartitionProblem
from flymq.broker.service.topics import Topic
from flymq.gateways.native.connection import NativeConnection
from flymq.host.time_slices import TimeSlice
from flymq.model.errors import FlyMQError
from flymq.wire.native.messages import topics as wire
from flymq.wire.native.messages.fields import Failure
from flymq.wire.native.messages.session import Done


async def create_topic(connection: NativeConnection, request: wire.CreateTopic) -> wire.CreateTopicAnswer:
    topic = await connection.service.topics.create(
        connection.caller,
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
        replication_factor=topic.replication_factor,
    )


async def delete_topic(connection: NativeConnection, request: wire.DeleteTopic) -> Done:
    await connection.service.topics.delete(connection.caller, request.topic)
    return Done()


def list_topics(connection: NativeConnection, request: wire.ListTopics) -> wire.ListTopicsAnswer:
    return wire.ListTopicsAnswer(
        topics=[
            wire.TopicSummary(topic.name, len(topic.partitions), topic.replication_factor, topic.is_internal)
            for topic in connection.service.topics.all(connection.caller, internal=request.internal)
        ]
    )


async def describe_topic(connection: NativeConnection, request: wire.DescribeTopic) -> wire.DescribeTopicAnswer:
    topics = connection.service.topics
    topic = topics.get(connection.caller, request.topic)
    return wire.DescribeTopicAnswer(
        topic=topic.name,
        topic_id=topic.topic_id.bytes,
        internal=topic.is_internal,
        replication_factor=topic.replication_factor,
        settings=dict(topic.settings),
        overrides=sorted(topic.own_settings),
        partitions=[
            wire.PartitionDescription(
                info.number,
                info.state.leader,
                info.state.leader_epoch,
                info.state.replicas,
                info.state.isr,
                info.start_offset,
                info.high_watermark,
                info.size,
                info.problem,
                info.state.elr,
                info.state.adding,
                info.state.removing,
            )
            for info in await topics.describe_partitions(connection.caller, topic)
        ],
    )


async def alter_topic(connection: NativeConnection, request: wire.AlterTopic) -> Done:
    await connection.service.topics.alter(
        connection.caller, request.topic, request.settings, validate_only=request.validate_only
    )
    return Done()


async def add_partitions(connection: NativeConnection, request: wire.AddPartitions) -> Done:
    await connection.service.topics.add_partitions(connection.caller, request.topic, request.partitions)
    return Done()


async def place_replicas(connection: NativeConnection, request: wire.PlaceReplicas) -> Done:
    topics = connection.service.topics
    await topics.place(connection.caller, request.topic, request.replication_factor, request.brokers)
    return Done()


async def metadata(connection: NativeConnection, request: wire.Metadata) -> wire.MetadataAnswer:
    service, caller = connection.service, connection.caller
    names = [topic.name for topic in service.topics.all(caller)] if request.topics is None else request.topics
    topics, slice_ = [], TimeSlice()
    for name in names:
        await slice_.yield_if_over()
        try:
            if request.auto_create:
                found = await service.topics.get_or_create(caller, name)
            else:
                found = service.topics.get(caller, name)
            topics.append(_topic_metadata(found))
        except FlyMQError as error:
            topics.append(wire.TopicMetadata(name, error=Failure.of(error)))
    return wire.MetadataAnswer(
        cluster_id=service.cluster.cluster_id,
        brokers=[
            wire.BrokerAddress(broker.broker_id, broker.host, broker.port, broker.rack)
            for broker in service.cluster.usable_brokers(connection.local_address)
        ],
        topics=topics,
        controller=service.cluster.controller_id,
    )


def _topic_metadata(topic: Topic) -> wire.TopicMetadata:
    return wire.TopicMetadata(
        topic.name,
        topic.topic_id.bytes,
        topic.is_internal,
        None,
        [
            wire.PartitionMetadata(number, state.leader, state.leader_epoch, state.replicas, state.isr)
            for number, state in enumerate(topic.partitions)
        ],
        topic.config.max_message_bytes,
    )


async def describe_cluster(connection: NativeConnection, _request: wire.DescribeCluster) -> wire.DescribeClusterAnswer:
    service = connection.service
    found = await service.cluster_states.describe(connection.caller, connection.local_address)
    counts = found.counts
    return wire.DescribeClusterAnswer(
        cluster_id=service.cluster.cluster_id,
        controller=service.cluster.controller_id,
        brokers=[
            wire.BrokerState(
                broker.broker_id, broker.host, broker.port, broker.rack, broker.is_live, broker.is_draining
            )
            for broker in found.brokers
        ],
        topics=counts.topics,
        partitions=counts.partitions,
        offline=counts.offline,
        under_replicated=counts.under_replicated,
        under_min_isr=counts.under_min_isr,
        problems=[_problem(problem) for problem in found.problems],
    )


def _problem(problem: PartitionProblem) -> wire.PartitionProblem:
    state = problem.state
    followers = (broker for broker in state.replicas if broker != state.leader)
    return wire.PartitionProblem(
        *problem.name,
        state.leader,
        state.replicas,
        state.isr,
        state.elr,
        problem.min_isr,
        [
            wire.ReplicaLag(broker)
            if (lag := problem.lags.get(broker)) is None
            else wire.ReplicaLag(broker, lag.records, lag.behind_ms)
            for broker in followers
        ],
    )
