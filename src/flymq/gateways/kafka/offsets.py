"""Offsets of a log: by position or time, by leader epoch, and where it begins."""

from __future__ import annotations

from flymq.broker.replicas.partition import Partition
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.partitions import find_partition
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError, InvalidRequest
from flymq.storage.log import TimedOffset
from flymq.wire.kafka.messages import delete_records as deletion
from flymq.wire.kafka.messages import describe_producers as producers
from flymq.wire.kafka.messages import list_offsets as listing
from flymq.wire.kafka.messages import offset_for_leader_epoch as epochs

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
_NO_TIME = -1


def list_offsets(
    connection: KafkaConnection, request: listing.ListOffsetsRequest, _version: int
) -> listing.ListOffsetsResponse:
    isolation = Isolation(request.isolation_level == Isolation.READ_COMMITTED)
    topics = []
    for topic in request.topics:
        found = []
        for part in topic.partitions:
            try:
                partition = find_partition(
                    connection.broker.topics, topic.name, part.partition_index, part.current_leader_epoch
                )
                timed = _find(partition, part.timestamp, isolation) or TimedOffset(-1, _NO_TIME, -1)
                found.append(
                    listing.ListOffsetsPartitionResponse(
                        part.partition_index, ErrorCode.NONE, timed.timestamp, timed.offset, timed.leader_epoch
                    )
                )
            except FlyMQError as error:
                found.append(listing.ListOffsetsPartitionResponse(part.partition_index, code_of(error)))
        topics.append(listing.ListOffsetsTopicResponse(topic.name, found))
    return listing.ListOffsetsResponse(topics=topics)


def _find(partition: Partition, at: int, isolation: Isolation) -> TimedOffset | None:
    log = partition.log
    if at in (EARLIEST, EARLIEST_LOCAL):
        return TimedOffset(log.start_offset, _NO_TIME, log.epochs.epoch_of(log.start_offset))
    if at == LATEST:
        return TimedOffset(partition.end_for(isolation), _NO_TIME, partition.leader_epoch)
    if at == MAX_TIMESTAMP:
        return partition.find_latest_time()
    if at == LATEST_TIERED:
        return None  # nothing is ever moved away
    if at < 0:
        raise InvalidRequest(f"{at} is neither a time nor a position")
    return partition.find_time(at, isolation)


def offset_for_leader_epoch(
    connection: KafkaConnection, request: epochs.OffsetForLeaderEpochRequest, _version: int
) -> epochs.OffsetForLeaderEpochResponse:
    """Where the records of a leader end, so that a client finds out what it has read that is no more."""
    topics = []
    for topic in request.topics:
        found = []
        for part in topic.partitions:
            try:
                partition = find_partition(
                    connection.broker.topics, topic.topic, part.partition, part.current_leader_epoch
                )
                end = partition.log.epochs.end_of(part.leader_epoch, partition.log.end_offset)
                found.append(epochs.EpochEndOffset(ErrorCode.NONE, part.partition, *(end or (-1, -1))))
            except FlyMQError as error:
                found.append(epochs.EpochEndOffset(code_of(error), part.partition))
        topics.append(epochs.OffsetForLeaderTopicResult(topic.topic, found))
    return epochs.OffsetForLeaderEpochResponse(topics=topics)


def delete_records(
    connection: KafkaConnection, request: deletion.DeleteRecordsRequest, _version: int
) -> deletion.DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        found = []
        for part in topic.partitions:
            try:
                partition = find_partition(connection.broker.topics, topic.name, part.partition_index)
                start_offset = partition.delete_before(part.offset)
                found.append(deletion.DeleteRecordsPartitionResult(part.partition_index, start_offset))
            except FlyMQError as error:
                found.append(deletion.DeleteRecordsPartitionResult(part.partition_index, -1, code_of(error)))
        topics.append(deletion.DeleteRecordsTopicResult(topic.name, found))
    return deletion.DeleteRecordsResponse(topics=topics)


def describe_producers(
    connection: KafkaConnection, request: producers.DescribeProducersRequest, _version: int
) -> producers.DescribeProducersResponse:
    """What a partition remembers of those who wrote to it."""
    topics = []
    for topic in request.topics:
        found = []
        for number in topic.partition_indexes:
            try:
                partition = find_partition(connection.broker.topics, topic.name, number)
                found.append(producers.PartitionResponse(number, active_producers=_active(partition)))
            except FlyMQError as error:
                found.append(producers.PartitionResponse(number, code_of(error), error.message))
        topics.append(producers.TopicResponse(topic.name, found))
    return producers.DescribeProducersResponse(topics=topics)


def _active(partition: Partition) -> list[producers.ProducerState]:
    return [
        producers.ProducerState(
            producer.producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.last_timestamp,
            producer.coordinator_epoch,
            -1 if producer.open_since is None else producer.open_since,
        )
        for producer in partition.log.producers.all()
    ]
