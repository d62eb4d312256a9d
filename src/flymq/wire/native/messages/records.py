"""Producing and fetching records."""

# ruff: noqa: RUF012  # msgspec copies an empty list or dict that is a default
from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from flymq.model.delivery import Acks, Isolation
from flymq.wire.native.messages.fields import (
    ANY_PARTITION,
    EMPTY,
    I32,
    I64,
    NO_EPOCH,
    NO_OFFSET,
    U32,
    Bin,
    Failure,
    Many,
    Message,
    Offset,
    Part,
    PartitionIndex,
    Request,
    RequestPart,
)

NO_TIMESTAMP = -1

AT_LATEST = -1
AT_EARLIEST = -2
AT_MAX_TIMESTAMP = -3


class Produce(Request):
    """One record. If no partition is set, the broker chooses it: by the key's hash, or round-robin."""

    topic: str
    value: Bin | None
    """nil is a tombstone; it must be given, so that a forgotten value does not delete a key."""
    key: Bin | None = None
    partition: Annotated[int, Meta(ge=-1, lt=1 << 31)] = ANY_PARTITION
    headers: Many[tuple[str, Bin | None]] = []
    timestamp: I64 = NO_TIMESTAMP
    acks: Acks = Acks.LEADER


class ProduceAnswer(Message):
    """The position of the record."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    timestamp: I64 = NO_TIMESTAMP


class PartitionBatches(RequestPart):
    """Encoded record batches for one partition."""

    topic: str
    partition: PartitionIndex
    batches: Bin


class ProduceBatch(Request):
    """Record batches for several partitions; each partition succeeds or fails on its own."""

    partitions: Many[PartitionBatches]
    acks: Acks = Acks.LEADER
    timeout_ms: U32 = 30_000
    transactional_id: str = ""


class PartitionAppended(Part):
    """The result of the batches of one partition."""

    topic: str
    partition: PartitionIndex
    base_offset: I64 = NO_OFFSET
    log_append_time: I64 = NO_TIMESTAMP
    log_start_offset: I64 = NO_OFFSET
    error: Failure | None = None


class ProduceBatchAnswer(Message):
    """One entry per partition of the request, in the same order."""

    partitions: list[PartitionAppended]


class Consume(Request):
    """The record at one offset."""

    topic: str
    offset: Offset
    partition: PartitionIndex = 0
    isolation: Isolation = Isolation.READ_COMMITTED


class ConsumeAnswer(Message):
    """One record."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    timestamp: I64 = NO_TIMESTAMP
    value: Bin | None = None
    key: Bin | None = None
    headers: list[tuple[str, Bin | None]] = []


class FetchPartition(RequestPart):
    """The start offset and the maximum size for one partition."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    max_bytes: U32 = 1 << 20
    leader_epoch: I32 = NO_EPOCH


class Fetch(Request):
    """Fetch batches of several partitions. Waits up to `max_wait_ms` until `min_bytes` are available."""

    partitions: Annotated[list[FetchPartition], Meta(max_length=10_000)]
    min_bytes: U32 = 1
    max_wait_ms: U32 = 0
    max_bytes: U32 = 16 << 20
    isolation: Isolation = Isolation.READ_COMMITTED


class FetchedPartition(Part):
    """The batches of one partition.

    `batches` is the last field: its bytes can then be sent straight from the log, see `fetch_frames`.
    """

    topic: str
    partition: PartitionIndex
    error: Failure | None = None
    high_watermark: I64 = NO_OFFSET
    last_stable_offset: I64 = NO_OFFSET
    log_start_offset: I64 = NO_OFFSET
    aborted: list[tuple[I64, I64]] = []
    batches: Bin = EMPTY


class FetchAnswer(Message, kw_only=True):
    """The partitions with data or an error, in the order of the request.

    Keyword-only, so that the inherited `id` comes first and `partitions` stays last, as `fetch_frames` needs it.
    """

    partitions: list[FetchedPartition]


class OffsetQuery(RequestPart):
    """The requested offset of one partition: the first at or after a timestamp, or one of AT_…"""

    topic: str
    partition: PartitionIndex
    at: I64 = AT_LATEST


class ListOffsets(Request):
    """List offsets by position or by timestamp."""

    partitions: Many[OffsetQuery]
    isolation: Isolation = Isolation.READ_COMMITTED


class OffsetFound(Part):
    """The requested offset; -1 if no record is at or after the timestamp."""

    topic: str
    partition: PartitionIndex
    offset: I64 = NO_OFFSET
    timestamp: I64 = NO_TIMESTAMP
    leader_epoch: I32 = NO_EPOCH
    error: Failure | None = None


class ListOffsetsAnswer(Message):
    """One entry per partition of the request, in the same order."""

    partitions: list[OffsetFound]


class DeleteRecordsPartition(RequestPart):
    """The offset before which records of one partition are deleted; -1: all records."""

    topic: str
    partition: PartitionIndex
    before_offset: Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]


class DeleteRecords(Request):
    """Delete the oldest records."""

    partitions: Many[DeleteRecordsPartition]


class RecordsDeleted(Part):
    """The new log start offset of one partition."""

    topic: str
    partition: PartitionIndex
    log_start_offset: I64 = NO_OFFSET
    error: Failure | None = None


class DeleteRecordsAnswer(Message):
    """One entry per partition of the request, in the same order."""

    partitions: list[RecordsDeleted]
