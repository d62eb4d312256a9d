"""Writing and reading records."""

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
    Message,
    Offset,
    Part,
    PartitionIndex,
)

NO_TIMESTAMP = -1

AT_LATEST = -1
AT_EARLIEST = -2
AT_MAX_TIMESTAMP = -3


class Produce(Message):
    """One record. The broker chooses the partition when none is given: by the key's hash, or in turn."""

    topic: str
    value: Bin | None = None
    key: Bin | None = None
    partition: Annotated[int, Meta(ge=-1, lt=1 << 31)] = ANY_PARTITION
    headers: list[tuple[str, Bin | None]] = []
    timestamp: I64 = NO_TIMESTAMP
    acks: Acks = Acks.LEADER


class ProduceAnswer(Message):
    """Where the record is."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    timestamp: I64 = NO_TIMESTAMP


class PartitionBatches(Part):
    """Ready-made record batches for one partition."""

    topic: str
    partition: PartitionIndex
    batches: Bin


class ProduceBatch(Message):
    """Record batches for several partitions; each partition succeeds or fails on its own."""

    partitions: list[PartitionBatches]
    acks: Acks = Acks.LEADER
    timeout_ms: U32 = 30_000
    transactional_id: str = ""


class PartitionAppended(Part):
    """What became of the batches of one partition."""

    topic: str
    partition: PartitionIndex
    base_offset: I64 = NO_OFFSET
    log_append_time: I64 = NO_TIMESTAMP
    log_start_offset: I64 = NO_OFFSET
    error: Failure | None = None


class ProduceBatchAnswer(Message):
    """One entry for each partition of the request, in its order."""

    partitions: list[PartitionAppended]


class Consume(Message):
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


class FetchPartition(Part):
    """From where to read one partition, and how much at most."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    max_bytes: U32 = 1 << 20
    leader_epoch: I32 = NO_EPOCH


class Fetch(Message):
    """Batches of several partitions. Waits up to `max_wait_ms` until `min_bytes` are there."""

    partitions: list[FetchPartition]
    min_bytes: U32 = 1
    max_wait_ms: U32 = 0
    max_bytes: U32 = 16 << 20
    isolation: Isolation = Isolation.READ_COMMITTED


class FetchedPartition(Part):
    """What was read of one partition.

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
    """The partitions that have something to tell, in the order of the request.

    Keyword-only, so that the inherited `id` comes first and `partitions` stays last, as `fetch_frames` needs it.
    """

    partitions: list[FetchedPartition]


class OffsetQuery(Part):
    """Which offset of one partition is asked for: the first at or after a time, or one of AT_…"""

    topic: str
    partition: PartitionIndex
    at: I64 = AT_LATEST


class ListOffsets(Message):
    """Offsets by position or by time."""

    partitions: list[OffsetQuery]
    isolation: Isolation = Isolation.READ_COMMITTED


class OffsetFound(Part):
    """The offset asked for; -1 when no record is at or after the time."""

    topic: str
    partition: PartitionIndex
    offset: I64 = NO_OFFSET
    timestamp: I64 = NO_TIMESTAMP
    leader_epoch: I32 = NO_EPOCH
    error: Failure | None = None


class ListOffsetsAnswer(Message):
    """One entry for each partition of the request, in its order."""

    partitions: list[OffsetFound]


class DeleteRecordsPartition(Part):
    """Up to where records of one partition go; -1: all that are there."""

    topic: str
    partition: PartitionIndex
    before_offset: Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]


class DeleteRecords(Message):
    """Remove the oldest records."""

    partitions: list[DeleteRecordsPartition]


class RecordsDeleted(Part):
    """Where the log of one partition starts now."""

    topic: str
    partition: PartitionIndex
    log_start_offset: I64 = NO_OFFSET
    error: Failure | None = None


class DeleteRecordsAnswer(Message):
    """One entry for each partition of the request, in its order."""

    partitions: list[RecordsDeleted]
