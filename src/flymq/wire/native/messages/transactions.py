"""Producer identities and transactions."""

# ruff: noqa: RUF012  # msgspec copies an empty list or dict that is a default
from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from flymq.wire.native.messages.fields import I32, I64, U32, Message, Offset, Part
from flymq.wire.native.messages.groups import NO_GENERATION, OffsetToCommit

ProducerEpoch = Annotated[int, Meta(ge=-1, lt=1 << 15)]


class InitProducer(Message):
    """A producer id for sequence numbers. With a transactional id: the same id again, and older holders are fenced."""

    transactional_id: str = ""
    transaction_timeout_ms: U32 = 60_000


class InitProducerAnswer(Message):
    """The identity to write into batches."""

    producer_id: I64
    producer_epoch: ProducerEpoch


class BeginTxn(Message):
    """From here on, batches of this producer belong to one transaction."""

    transactional_id: str
    producer_id: I64
    producer_epoch: ProducerEpoch


class CommitTxn(Message):
    """Make everything since BEGIN_TXN visible at once."""

    transactional_id: str
    producer_id: I64
    producer_epoch: ProducerEpoch


class AbortTxn(Message):
    """Make nothing since BEGIN_TXN visible, ever."""

    transactional_id: str
    producer_id: I64
    producer_epoch: ProducerEpoch


class EndTxnAnswer(Message):
    """The transaction has ended. The epoch to use from now on, so that a late batch cannot reach the next one."""

    producer_id: I64
    producer_epoch: ProducerEpoch


class TxnCommitOffsets(Message):
    """Commit consumed offsets with the transaction: they count exactly if it commits."""

    transactional_id: str
    producer_id: I64
    producer_epoch: ProducerEpoch
    group: str
    offsets: list[OffsetToCommit]
    member: str = ""
    generation: I32 = NO_GENERATION


class AttemptToCommit(Part):
    """What one task of a batch has written, in a transaction that is still open."""

    transactional_id: str
    producer_id: I64
    producer_epoch: ProducerEpoch


class CommitAttempts(Message):
    """Make the listed attempts of a query's batch visible together, and drop its others; once for each batch."""

    query: str
    batch: Offset
    attempts: list[AttemptToCommit] = []
