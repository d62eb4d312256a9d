"""Transactions between the brokers of a cluster: one coordinates, others lead the partitions and groups."""

# ruff: noqa: RUF012  # msgspec copies an empty list or dict that is a default
from __future__ import annotations

from flymq.model.coordinators import Joining
from flymq.wire.native.messages.fields import (
    I32,
    I64,
    Failure,
    Many,
    Message,
    Part,
    PartitionIndex,
    PartitionRef,
    Request,
)
from flymq.wire.native.messages.transactions import ProducerEpoch


class WriteMarkers(Request):
    """End a transaction in partitions and groups that the receiver leads. The response is sent when it is committed."""

    producer_id: I64
    producer_epoch: ProducerEpoch
    marker_epoch: ProducerEpoch
    coordinator_epoch: I32
    committed: bool
    partitions: Many[PartitionRef] = []
    groups: Many[str] = []


class PartitionEnded(Part):
    """The result of one partition."""

    topic: str
    partition: PartitionIndex
    error: Failure | None = None


class GroupEnded(Part):
    """The result of one group."""

    group: str
    error: Failure | None = None


class WriteMarkersAnswer(Message):
    """One entry per partition and group of the request."""

    partitions: list[PartitionEnded] = []
    groups: list[GroupEnded] = []


class JoinTransaction(Request):
    """Make partitions and groups part of an open transaction, or check that they are, before they are written to."""

    transactional_id: str
    producer_id: I64
    producer_epoch: ProducerEpoch
    joining: Joining
    partitions: Many[PartitionRef] = []
    groups: Many[str] = []


class AbortOwned(Request):
    """Abort the open transaction of a producer, if the receiver coordinates it: as an administrator."""

    producer_id: I64
    producer_epoch: ProducerEpoch


class AbortOwnedAnswer(Message):
    """Whether there was one, and which partitions of `__transactions` the receiver has looked through."""

    found: bool
    looked_through: list[PartitionIndex] = []
