"""Transactions between brokers."""

from __future__ import annotations

from collections.abc import Iterable

from flymq.broker.service.peer_transactions import Ending, ProducerIdentity
from flymq.gateways.native.connection import NativeConnection
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.wire.native.messages import peer_transactions as wire
from flymq.wire.native.messages.fields import Failure, PartitionRef
from flymq.wire.native.messages.session import Done


async def write_markers(connection: NativeConnection, request: wire.WriteMarkers) -> wire.WriteMarkersAnswer:
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    ending = Ending(producer, request.marker_epoch, request.committed, request.coordinator_epoch)
    partitions = _names(request.partitions)
    outcomes = await connection.service.peer_transactions.write_markers(
        connection.caller, ending, partitions, request.groups
    )
    return wire.WriteMarkersAnswer(
        partitions=[wire.PartitionEnded(*name, _failure(outcomes[name])) for name in partitions],
        groups=[wire.GroupEnded(group, _failure(outcomes[group])) for group in request.groups],
    )


async def join_transaction(connection: NativeConnection, request: wire.JoinTransaction) -> Done:
    await connection.service.peer_transactions.join(
        connection.caller,
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        request.joining,
        _names(request.partitions),
        request.groups,
    )
    return Done()


async def abort_owned(connection: NativeConnection, request: wire.AbortOwned) -> wire.AbortOwnedAnswer:
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    found, looked_through = await connection.service.peer_transactions.abort_owned(connection.caller, producer)
    return wire.AbortOwnedAnswer(found=found, looked_through=sorted(looked_through))


def _names(partitions: Iterable[PartitionRef]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in partitions]


def _failure(error: FlyMQError | None) -> Failure | None:
    return None if error is None else Failure.of(error)
