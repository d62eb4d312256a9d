"""The metadata quorum, as `kafka-metadata-quorum` shows it: this broker; offsets are revisions of the metadata."""

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
    here = connection.service.cluster.this_broker(connection.local_address)
    node = Node(here.broker_id, [Listener(_LISTENER, here.host, here.port)])
    return DescribeQuorumResponse(topics=topics, nodes=[node] if knows_it else [])


def _metadata(connection: KafkaConnection) -> PartitionDataAnswer:
    broker_id, revision = connection.service.cluster.broker_id, connection.service.topics.revision
    now_ms = connection.shared.clock.now_ms()
    voter = ReplicaState(
        broker_id, log_end_offset=revision, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
    )
    return PartitionDataAnswer(
        0, leader_id=broker_id, leader_epoch=_EPOCH, high_watermark=revision, current_voters=[voter]
    )
