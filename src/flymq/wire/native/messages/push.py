"""Deliveries without asking, as far as the reader's credit goes."""

from __future__ import annotations

from flymq.model.delivery import Isolation
from flymq.wire.native.messages.fields import U32, Message, Offset, Part, PartitionIndex
from flymq.wire.native.messages.records import FetchedPartition


class PushPartition(Part):
    """From where a partition is pushed."""

    topic: str
    partition: PartitionIndex
    offset: Offset


class StartPush(Message):
    """Push batches of these partitions as they come. The reader numbers its subscriptions."""

    subscription: U32
    partitions: list[PushPartition]
    credit_bytes: U32
    max_bytes: U32 = 1 << 20
    isolation: Isolation = Isolation.READ_COMMITTED


class Credit(Message):
    """Allow so many bytes more. Has no answer."""

    subscription: U32
    credit_bytes: U32


class StopPush(Message):
    """No delivery of this subscription follows the answer."""

    subscription: U32


class Deliver(Message, kw_only=True):
    """Pushed batches. `id` is 0: nothing asked for it. A partition with an error is pushed no more.

    Keyword-only, so that the inherited `id` comes first and `partitions` stays last, as `fetch_frames` needs it.
    """

    subscription: U32
    partitions: list[FetchedPartition]
