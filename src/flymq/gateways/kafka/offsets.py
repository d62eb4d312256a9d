"""Offsets of a log: by position or timestamp, by leader epoch; deletion of records; producer states."""

from __future__ import annotations

from flymq.broker.service.records import EARLIEST, LATEST, MAX_TIMESTAMP, TimedOffset
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.internal_topics import own_name
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError, UnsupportedVersion
from flymq.model.names import TopicPartition
from flymq.wire.kafka.messages import delete_records as deletion
from flymq.wire.kafka.messages import describe_producers as producers
from flymq.wire.kafka.messages import list_offsets as listing
from flymq.wire.kafka.messages import offset_for_leader_epoch as epochs

EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The positions that a client can ask for, and since which version."""
_NOWHERE = TimedOffset(-1, -1, -1)


async def list_offsets(
    connection: KafkaConnection, request: listing.ListOffsetsRequest, version: int
) -> listing.ListOffsetsResponse:
    isolation = Isolation(request.isolation_level == Isolation.READ_COMMITTED)
    topics = []
    for topic in request.topics:
        found = []
        for part in topic.partitions:
            try:
                timed = await _find(connection, topic.name, part, isolation, version) or _NOWHERE
                found.append(
                    listing.ListOffsetsPartitionResponse(
                        part.partition_index, ErrorCode.NONE, timed.timestamp, timed.offset, timed.leader_epoch
                    )
                )
            except FlyMQError as error:
                connection.service.accounts.failed(connection.caller, error)
                found.append(listing.ListOffsetsPartitionResponse(part.partition_index, code_of(error)))
        topics.append(listing.ListOffsetsTopicResponse(topic.name, found))
    return listing.ListOffsetsResponse(topics=topics)


async def _find(
    connection: KafkaConnection, topic: str, part: listing.ListOffsetsPartition, isolation: Isolation, version: int
) -> TimedOffset | None:
    name = TopicPartition(own_name(topic), part.partition_index)
    if part.timestamp < 0 and version < _FIRST_VERSIONS.get(part.timestamp, version + 1):
        raise UnsupportedVersion(f"ListOffsets {version} has no position {part.timestamp}")
    if part.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        connection.service.records.check_readable(connection.caller, name, part.current_leader_epoch)
        return None  # there is no tiered storage
    return await connection.service.records.find_offset(
        connection.caller,
        name,
        EARLIEST if part.timestamp == EARLIEST_LOCAL else part.timestamp,
        isolation,
        leader_epoch=part.current_leader_epoch,
    )


def offset_for_leader_epoch(
    connection: KafkaConnection, request: epochs.OffsetForLeaderEpochRequest, _version: int
) -> epochs.OffsetForLeaderEpochResponse:
    """The end offset of a leader epoch, by which a client detects that records it has read were truncated."""
    topics = []
    for topic in request.topics:
        found = []
        for part in topic.partitions:
            name = TopicPartition(own_name(topic.topic), part.partition)
            try:
                end = connection.service.records.end_of_epoch(
                    connection.caller, name, part.leader_epoch, leader_epoch=part.current_leader_epoch
                )
                found.append(epochs.EpochEndOffset(ErrorCode.NONE, part.partition, *(end or (-1, -1))))
            except FlyMQError as error:
                connection.service.accounts.failed(connection.caller, error)
                found.append(epochs.EpochEndOffset(code_of(error), part.partition))
        topics.append(epochs.OffsetForLeaderTopicResult(topic.topic, found))
    return epochs.OffsetForLeaderEpochResponse(topics=topics)


async def delete_records(
    connection: KafkaConnection, request: deletion.DeleteRecordsRequest, _version: int
) -> deletion.DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        found = []
        for part in topic.partitions:
            name = TopicPartition(topic.name, part.partition_index)
            try:
                start_offset = await connection.service.records.delete(connection.caller, name, part.offset)
                found.append(deletion.DeleteRecordsPartitionResult(part.partition_index, start_offset))
            except FlyMQError as error:
                connection.service.accounts.failed(connection.caller, error)
                found.append(deletion.DeleteRecordsPartitionResult(part.partition_index, -1, code_of(error)))
        topics.append(deletion.DeleteRecordsTopicResult(topic.name, found))
    return deletion.DeleteRecordsResponse(topics=topics)


def describe_producers(
    connection: KafkaConnection, request: producers.DescribeProducersRequest, _version: int
) -> producers.DescribeProducersResponse:
    """The producer states of a partition."""
    topics = []
    for topic in request.topics:
        found = []
        for number in topic.partition_indexes:
            try:
                known = connection.service.records.producers(
                    connection.caller, TopicPartition(own_name(topic.name), number)
                )
                active = [producers.ProducerState(*producer) for producer in known]
                found.append(producers.PartitionResponse(number, active_producers=active))
            except FlyMQError as error:
                connection.service.accounts.failed(connection.caller, error)
                found.append(producers.PartitionResponse(number, code_of(error), error.message))
        topics.append(producers.TopicResponse(topic.name, found))
    return producers.DescribeProducersResponse(topics=topics)
