"""The metadata quorum, as `kafka-metadata-quorum` shows it: the brokers, one of which is the controller; offsets are
revisions of the metadata, which is in a store of its own."""

from __future__ import annotations

from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode
from flymq.wire.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataAnswer,
    ReplicaState,
    TopicDataAnswer,
)

METADATA_TOPIC = "__cluster_metadata"
"""The name under which Kafka's tools ask for it. It is no topic here."""
_EPOCH = 1
"""Kafka's tools take 0 and less for "there is no leader"."""
_LISTENER = "CONTROLLER"
_INT32_MAX = (1 << 31) - 1


def describe_quorum(
    connection: KafkaConnection, request: DescribeQuorumRequest, _version: int
) -> DescribeQuorumResponse:
    topics, knows_it = [], False
    for topic in request.topics:
        found = []
        for part in topic.partitions:
            if topic.topic_name == METADATA_TOPIC and part.partition_index == 0:
                found.append(_metadata(connection))
                knows_it = True
            else:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                found.append(PartitionDataAnswer(part.partition_index, error, f"only {METADATA_TOPIC}-0 has a quorum"))
        topics.append(TopicDataAnswer(topic.topic_name, found))
    nodes = [
        Node(broker.broker_id, [Listener(_LISTENER, broker.host, broker.port)])
        for broker in connection.service.cluster.brokers(connection.local_address)
    ]
    return DescribeQuorumResponse(topics=topics, nodes=nodes if knows_it else [])


def _metadata(connection: KafkaConnection) -> PartitionDataAnswer:
    cluster, revision = connection.service.cluster, connection.service.topics.revision
    now_ms = connection.shared.clock.now_ms()
    voters = [
        ReplicaState(
            broker.broker_id, log_end_offset=revision, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
        )
        for broker in cluster.usable_brokers(connection.local_address)
    ]
    seat = cluster.members.controller
    return PartitionDataAnswer(
        0,
        leader_id=cluster.controller_id,
        leader_epoch=_EPOCH if seat is None else min(seat.epoch, _INT32_MAX),
        high_watermark=revision,
        current_voters=voters,
    )
