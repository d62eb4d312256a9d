"""Push delivery, with credit-based flow control."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from flymq.model.delivery import Isolation
from flymq.wire.native.messages.fields import U32, Message, Offset, PartitionIndex, Request, RequestPart
from flymq.wire.native.messages.records import FetchedPartition


class PushPartition(RequestPart):
    """The start offset of a pushed partition."""

    topic: str
    partition: PartitionIndex
    offset: Offset


class StartPush(Request):
    """Push batches of these partitions as they arrive. The reader chooses the subscription ids."""

    subscription: U32
    partitions: Annotated[list[PushPartition], Meta(max_length=5_000)]
    credit_bytes: U32
    max_bytes: U32 = 1 << 20
    isolation: Isolation = Isolation.READ_COMMITTED


class Credit(Request):
    """Grant more credit, in bytes. Has no response."""

    subscription: U32
    credit_bytes: U32


class StopPush(Request):
    """End a subscription: no delivery follows the response."""

    subscription: U32


class Deliver(Message, kw_only=True):
    """Pushed batches. `id` is 0, since there is no request. A partition with an error is no longer pushed.

    Keyword-only, so that the inherited `id` comes first and `partitions` stays last, as `fetch_frames` needs it.
    """

    subscription: U32
    partitions: list[FetchedPartition]
