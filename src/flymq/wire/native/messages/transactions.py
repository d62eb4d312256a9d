"""Producer identities and transactions."""

# ruff: noqa: RUF012  # msgspec copies an empty list or dict that is a default
from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from flymq.wire.native.messages.fields import I32, I64, U32, Many, Message, Offset, Request, RequestPart
from flymq.wire.native.messages.groups import NO_GENERATION, OffsetToCommit

ProducerEpoch = Annotated[int, Meta(ge=-1, lt=1 << 15)]


class InitProducer(Request):
    """Get a producer id. With a transactional id: the same producer id every time, and older producers are fenced."""

    transactional_id: str = ""
    transaction_timeout_ms: U32 = 60_000


class InitProducerAnswer(Message):
    """The producer id and epoch to write into batches."""

    producer_id: I64
    producer_epoch: ProducerEpoch


class BeginTxn(Request):
    """Begin a transaction: the producer's following batches belong to it."""

    transactional_id: str
    producer_id: I64
    producer_epoch: ProducerEpoch


class CommitTxn(Request):
    """Commit the transaction: its records become visible atomically."""

    transactional_id: str
    producer_id: I64
    producer_epoch: ProducerEpoch


class AbortTxn(Request):
    """Abort the transaction: its records never become visible."""

    transactional_id: str
    producer_id: I64
    producer_epoch: ProducerEpoch


class EndTxnAnswer(Message):
    """The transaction has ended. The new producer epoch, so that a late batch cannot join the next transaction."""

    producer_id: I64
    producer_epoch: ProducerEpoch


class TxnCommitOffsets(Request):
    """Commit offsets in the transaction: they take effect if it commits."""

    transactional_id: str
    producer_id: I64
    producer_epoch: ProducerEpoch
    group: str
    offsets: Many[OffsetToCommit]
    member: str = ""
    generation: I32 = NO_GENERATION


class AttemptToCommit(RequestPart):
    """What one task of a batch has written in a transaction that is still open."""

    transactional_id: str
    producer_id: I64
    producer_epoch: ProducerEpoch


class CommitAttempts(Request):
    """Commit the listed attempts of a query's batch atomically, and abort its others; once per batch."""

    query: str
    batch: Offset
    attempts: Many[AttemptToCommit] = []
