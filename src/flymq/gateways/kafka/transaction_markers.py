"""WriteTxnMarkers: end a transaction in one partition.

Kafka's brokers send it to each other. Here only its other use is served: the abort of a transaction by an administrator
(`kafka-transactions abort`, Java's `Admin.abortTransaction`).
"""

from __future__ import annotations

from flymq.broker.service.transactions import ProducerIdentity
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


async def write_txn_markers(
    connection: KafkaConnection, request: WriteTxnMarkersRequest, _version: int
) -> WriteTxnMarkersResponse:
    results = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            partitions = [
                WritableTxnMarkerPartitionResult(
                    number, await _abort(connection, marker, TopicPartition(topic.name, number))
                )
                for number in topic.partition_indexes
            ]
            topics.append(WritableTxnMarkerTopicResult(topic.name, partitions))
        results.append(WritableTxnMarkerResult(marker.producer_id, topics))
    return WriteTxnMarkersResponse(markers=results)


async def _abort(connection: KafkaConnection, marker: WritableTxnMarker, name: TopicPartition) -> ErrorCode:
    if marker.transaction_result:  # only the coordinator knows that all of it was written
        return ErrorCode.INVALID_REQUEST
    producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
    try:
        await connection.service.transactions.abort_in_partition(
            connection.caller, name, producer, coordinator_epoch=marker.coordinator_epoch
        )
    except FlyMQError as error:
        connection.service.accounts.failed(connection.caller, error)
        return code_of(error)
    return ErrorCode.NONE
