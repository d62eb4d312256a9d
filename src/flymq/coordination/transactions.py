"""What is known of each transactional id, and what may become of it.

    EMPTY ──begin──▶ ONGOING ──commit──▶ COMMITTING ──all markers are written──▶ COMMITTED ──begin──▶ ONGOING …
                        └──abort, timeout, a new holder──▶ ABORTING ──▶ ABORTED ──begin──▶ …

Once COMMITTING is in the log, the transaction is committed: whatever crashes, the markers are written afterwards. Until
then it can only be aborted. With every transaction the producer gets a new epoch, and the marker that ends it carries
that epoch already, so a batch or a request that comes late is told apart from those of the next transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from flymq.coordination.entries import (
    EndedValue,
    Entry,
    ProducerIdentity,
    TransactionKey,
    TransactionState,
    TransactionValue,
)
from flymq.model.errors import (
    InvalidTransactionState,
    ProducerFenced,
    TransactionAborted,
    TransactionInProgress,
    UnknownProducer,
)
from flymq.model.names import TopicPartition

EPOCH_MAX = (1 << 15) - 2  # the marker of the last transaction has one more, and 15 bits hold it


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    timeout_ms_max: int = 60 * 60_000
    idle_ms_max: int = 7 * 24 * 60 * 60_000
    """How long a transactional id is remembered that nobody uses."""
    query_idle_ms_max: int = 365 * 24 * 60 * 60_000
    """How long the last batch of a query is remembered."""


# --- checks ---------------------------------------------------------------------------------------------------------


def check_producer(name: str, value: TransactionValue | None, producer: ProducerIdentity) -> TransactionValue:
    """Return what is known of the id, or raise why this producer may not use it."""
    if value is None:
        raise UnknownProducer(f"the transactional id {name!r} is not known", hint="Begin with INIT_PRODUCER.")
    if producer != value.producer:
        if value.ended is not None and value.ended.producer == producer and value.ended.by_broker:
            raise TransactionAborted(
                f"the broker has aborted the transaction of {name!r}: it took too long, or a crash"
            )
        raise ProducerFenced(
            f"{name!r} belongs to producer {value.producer.producer_id} at epoch {value.producer.epoch}, "
            f"not to {producer.producer_id} at {producer.epoch}"
        )
    return value


def check_ongoing(name: str, value: TransactionValue | None, producer: ProducerIdentity) -> TransactionValue:
    """Return the open transaction of this producer, or raise why there is none."""
    value = check_producer(name, value, producer)
    if value.state.is_ending:
        raise TransactionInProgress(f"the transaction of {name!r} is being ended")
    if value.state is not TransactionState.ONGOING:
        raise InvalidTransactionState(f"no transaction of {name!r} is open")
    return value


def find_ended(value: TransactionValue | None, producer: ProducerIdentity, *, commit: bool) -> EndedValue | None:
    """Return the end of this producer's transaction, if it has ended as asked for already: the request is a repeat.

    The answer is then who the producer was to be afterwards. Another one may hold the id by now: that is not its
    business, and to be told that one's identity would make two of them.
    """
    if value is None or value.ended is None or value.ended.producer != producer:
        return None
    is_new = value.producer == producer and not value.state.is_idle
    return None if is_new or value.ended.committed != commit else value.ended


def is_exhausted(value: TransactionValue | None) -> bool:
    """Whether the producer needs a new id, since this one's epochs are used up."""
    return value is not None and value.producer.epoch >= EPOCH_MAX


# --- decisions ------------------------------------------------------------------------------------------------------


def decide_init(
    name: str, value: TransactionValue | None, fresh_producer_id: int, *, timeout_ms: int, now_ms: int
) -> list[Entry]:
    """Give the id to a new holder, under an epoch that fences the one before."""
    if value is None:
        producer, ended = ProducerIdentity(fresh_producer_id, 0), None
    else:
        assert value.state.is_idle, "an open transaction is ended first"
        producer, ended = _succeed(value.producer, fresh_producer_id), value.ended
    return [(TransactionKey(name), TransactionValue(producer, timeout_ms, changed_at_ms=now_ms, ended=ended))]


def decide_begin(name: str, value: TransactionValue, *, now_ms: int) -> list[Entry]:
    """Open a transaction. To begin one twice before anything was written is to begin it once."""
    if value.state.is_ending:
        raise TransactionInProgress(f"the last transaction of {name!r} is being ended")
    if value.state is TransactionState.ONGOING:
        if value.partitions or value.groups:
            raise InvalidTransactionState(f"a transaction of {name!r} is open already")
        return []
    begun = TransactionValue(
        value.producer,
        value.timeout_ms,
        TransactionState.ONGOING,
        began_at_ms=now_ms,
        changed_at_ms=now_ms,
        ended=value.ended,
    )
    return [(TransactionKey(name), begun)]


def decide_add(
    name: str,
    value: TransactionValue,
    *,
    partitions: Collection[TopicPartition] = (),
    groups: Collection[str] = (),
    now_ms: int,
) -> list[Entry]:
    """Let an open transaction reach further partitions or groups; nothing to write when it does already."""
    assert value.state is TransactionState.ONGOING
    new_partitions = tuple(partition for partition in partitions if partition not in value.partitions)
    new_groups = tuple(group for group in groups if group not in value.groups)
    if not new_partitions and not new_groups:
        return []
    wider = replace(
        value,
        partitions=value.partitions + new_partitions,
        groups=value.groups + new_groups,
        changed_at_ms=now_ms,
    )
    return [(TransactionKey(name), wider)]


def decide_end(
    name: str,
    value: TransactionValue,
    fresh_producer_id: int = -1,
    *,
    commit: bool,
    keeps_epoch: bool = False,
    by_broker: bool = False,
    now_ms: int,
) -> list[Entry]:
    """Say how a transaction ends. From here on nothing changes that; the markers follow.

    `keeps_epoch` is for producers that do not know of an epoch a transaction: those of Kafka before its version 4.
    """
    successor = value.producer if keeps_epoch else _succeed(value.producer, fresh_producer_id)
    state = TransactionState.COMMITTING if commit else TransactionState.ABORTING
    return [
        (
            TransactionKey(name),
            replace(value, state=state, successor=successor, by_broker=by_broker, changed_at_ms=now_ms),
        )
    ]


def decide_abort_left_open(
    name: str,
    value: TransactionValue,
    fresh_producer_id: int = -1,
    *,
    partitions: Iterable[TopicPartition] = (),
    groups: Iterable[str] = (),
    now_ms: int,
) -> list[Entry]:
    """After a crash: abort what was open, also in partitions and groups of which the log has lost the entry."""
    assert not value.state.is_ending, "how it ends was decided"
    left_open = replace(
        value,
        partitions=tuple(dict.fromkeys((*value.partitions, *partitions))),
        groups=tuple(dict.fromkeys((*value.groups, *groups))),
    )
    return decide_end(name, left_open, fresh_producer_id, commit=False, by_broker=True, now_ms=now_ms)


def decide_complete(name: str, value: TransactionValue, *, now_ms: int) -> list[Entry]:
    """All markers are written: the producer may go on, as its successor."""
    assert value.successor is not None
    committed = value.state is TransactionState.COMMITTING
    completed = TransactionValue(
        value.successor,
        value.timeout_ms,
        TransactionState.COMMITTED if committed else TransactionState.ABORTED,
        changed_at_ms=now_ms,
        ended=EndedValue(value.producer, value.successor, committed, value.by_broker),
    )
    return [(TransactionKey(name), completed)]


def marker_epoch(value: TransactionValue) -> int:
    """Return the epoch of the markers that end this transaction: one more, so that they fence its late batches."""
    assert value.successor is not None
    return value.producer.epoch if value.successor == value.producer else value.producer.epoch + 1


def needs_marker(value: TransactionValue, *, open_epoch: int | None) -> bool:
    """Whether a partition still needs the marker, by the epoch of the transaction this producer has open there.

    After a crash the markers are written again where they are missing, and only there: what is open under another
    epoch belongs to a later transaction, whose beginning the log may have lost.
    """
    return open_epoch == value.producer.epoch


def _succeed(producer: ProducerIdentity, fresh_producer_id: int) -> ProducerIdentity:
    if producer.epoch < EPOCH_MAX:
        return ProducerIdentity(producer.producer_id, producer.epoch + 1)
    assert fresh_producer_id >= 0, "an exhausted producer needs a new id"
    return ProducerIdentity(fresh_producer_id, 0)
