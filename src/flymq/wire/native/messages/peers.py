"""Between the brokers of a cluster: who asks, and copying partitions. Clients cannot use these operations.

A follower names the partitions that it copies once for each connection, and afterwards only those whose position has
changed; the leader answers with those that have something new. A newer fetch on the same connection completes an
older one that still waits.
"""

# ruff: noqa: RUF012  # msgspec copies an empty list or dict that is a default
from __future__ import annotations

from msgspec import Struct

from flymq.wire.native.messages.fields import (
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
)


class JoinPeer(Request):
    """Prove to be a broker of the cluster, by the secret of its registration. First on every connection."""

    broker: I32
    epoch: I64
    secret: str

    def __repr__(self) -> str:
        return f"JoinPeer(broker={self.broker}, epoch={self.epoch}, secret=...)"


class ReplicaPosition(Struct, array_like=True):
    """How far a follower has come in a partition."""

    topic_id: Bin
    partition: PartitionIndex
    leader_epoch: I32
    offset: Offset
    last_epoch: I32
    durable_offset: Offset


class ReplicaRef(Struct, array_like=True):
    """A partition of a topic with this id. A topic that is created again has another id."""

    topic_id: Bin
    partition: PartitionIndex


class ReplicaFetch(Request):
    """Fetch what is new in the partitions that the follower copies from this leader."""

    positions: Many[ReplicaPosition] = []
    forgotten: Many[ReplicaRef] = []
    max_wait_ms: U32 = 500
    max_bytes: U32 = 8 << 20


class ReplicaNews(Part):
    """News of one partition. `diverging_epoch` ≥ -1 with `diverging_end` ≥ 0: truncate after the end of this epoch."""

    topic_id: Bin
    partition: PartitionIndex
    error: Failure | None = None
    high_watermark: I64 = NO_OFFSET
    start_offset: I64 = NO_OFFSET
    diverging_epoch: I32 = NO_EPOCH
    diverging_end: I64 = NO_OFFSET
    batches: Bin = EMPTY


class ReplicaFetchAnswer(Message, kw_only=True):
    """What is new; empty if nothing was in time."""

    partitions: list[ReplicaNews]


class DescribeLed(Request):
    """Describe those of these partitions that the asked broker leads."""

    partitions: Many[ReplicaRef]


class FollowerLag(Struct, array_like=True):
    """How far a follower is behind its leader."""

    broker: I32
    records: I64
    """-1: it has not fetched since the leader was elected."""
    behind_ms: I64
    """Since when it has not had everything that the leader had; 0 if it has."""


class LedPartition(Part):
    """A partition as its leader sees it."""

    topic_id: Bin
    partition: PartitionIndex
    start_offset: I64 = NO_OFFSET
    high_watermark: I64 = NO_OFFSET
    last_stable_offset: I64 = NO_OFFSET
    size_bytes: I64 = 0
    problem: str = ""
    followers: list[FollowerLag] = []


class DescribeLedAnswer(Message):
    """The partitions that the broker leads."""

    partitions: list[LedPartition]
