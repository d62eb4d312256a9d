"""The states of a transactional id.

    EMPTY ──begin──▶ ONGOING ──commit──▶ COMMITTING ──all markers are written──▶ COMMITTED ──begin──▶ ONGOING …
                        └──abort, timeout, new producer──▶ ABORTING ──▶ ABORTED ──begin──▶ …

Once COMMITTING is in the log, the transaction is committed: after a crash, the markers are still written. Until then it
can only be aborted. With every transaction the producer gets a new epoch, which the end marker of the last one already
carries, so a late batch or request cannot be confused with those of the next transaction.
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

EPOCH_MAX = (1 << 15) - 2  # the marker of the last transaction has one more, which must fit into 15 bits

_OUTCOMES = {
    TransactionState.COMMITTING: TransactionState.COMMITTED,
    TransactionState.ABORTING: TransactionState.ABORTED,
}


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    timeout_ms_max: int = 60 * 60_000
    idle_ms_max: int = 7 * 24 * 60 * 60_000
    """How long an unused transactional id is kept."""
    query_idle_ms_max: int = 365 * 24 * 60 * 60_000
    """How long the last batch of an unused query is kept."""


# --- checks ---------------------------------------------------------------------------------------------------------


def check_producer(name: str, value: TransactionValue | None, producer: ProducerIdentity) -> TransactionValue:
    """Return the state of the id, or raise an error if this producer must not use it."""
    if value is None:
        raise UnknownProducer(f"unknown transactional id {name!r}", hint="Send INIT_PRODUCER first.")
    if producer != value.producer:
        if value.ended is not None and value.ended.producer == producer and value.ended.by_broker:
            raise TransactionAborted(
                f"the broker has aborted the transaction of {name!r}: it timed out, or the broker crashed"
            )
        raise ProducerFenced(
            f"{name!r} belongs to producer {value.producer.producer_id} at epoch {value.producer.epoch}, "
            f"not to producer {producer.producer_id} at epoch {producer.epoch}"
        )
    return value


def check_ongoing(name: str, value: TransactionValue | None, producer: ProducerIdentity) -> TransactionValue:
    """Return the open transaction of this producer, or raise an error if there is none."""
    value = check_producer(name, value, producer)
    if value.state.is_ending:
        raise TransactionInProgress(f"the transaction of {name!r} is being ended")
    if value.state is not TransactionState.ONGOING:
        raise InvalidTransactionState(f"no transaction of {name!r} is open")
    return value


def check_successor(name: str, before: TransactionValue, after: TransactionValue) -> None:
    """Assert that a state can follow another: a producer epoch never goes back, and a decided end is final."""
    if after.producer.producer_id == before.producer.producer_id:
        assert after.producer.epoch >= before.producer.epoch, (
            f"{name}: the producer epoch goes back from {before.producer.epoch} to {after.producer.epoch}"
        )
    if before.state.is_ending:
        assert after.state in (before.state, _OUTCOMES[before.state]), (
            f"{name}: the transaction was {before.state.value} and becomes {after.state.value}"
        )


def find_ended(value: TransactionValue | None, producer: ProducerIdentity, *, commit: bool) -> EndedValue | None:
    """Return the end of this producer's transaction, if it has already ended as requested: the request is a retry.

    The response then has the successor of that end. The id may have a new producer by now, whose identity must not be
    returned: two producers would use it.
    """
    if value is None or value.ended is None or value.ended.producer != producer:
        return None
    is_new = value.producer == producer and not value.state.is_idle
    return None if is_new or value.ended.committed != commit else value.ended


def is_exhausted(value: TransactionValue | None) -> bool:
    """Whether a new producer id is needed, since the epochs of this one are exhausted."""
    return value is not None and value.producer.epoch >= EPOCH_MAX


# --- decisions ------------------------------------------------------------------------------------------------------


def decide_init(
    name: str, value: TransactionValue | None, fresh_producer_id: int, *, timeout_ms: int, now_ms: int
) -> list[Entry]:
    """Give the id to a new producer, with an epoch that fences the previous one."""
    if value is None:
        producer, ended = ProducerIdentity(fresh_producer_id, 0), None
    else:
        assert value.state.is_idle, "an open transaction must be ended first"
        producer, ended = _succeed(value.producer, fresh_producer_id), value.ended
    return [(TransactionKey(name), TransactionValue(producer, timeout_ms, changed_at_ms=now_ms, ended=ended))]


def decide_begin(name: str, value: TransactionValue, *, now_ms: int) -> list[Entry]:
    """Begin a transaction. Idempotent until it has written something."""
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
    """Add partitions or groups to an open transaction; nothing to write if they are part of it."""
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
    """Decide how a transaction ends. This is final; the markers are written afterwards.

    `keeps_epoch` is for producers without an epoch per transaction: Kafka clients before version 4.0.
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
    """After a crash: abort an open transaction, also in partitions and groups whose entry was lost."""
    assert not value.state.is_ending, "a decided end is final"
    left_open = replace(
        value,
        partitions=tuple(dict.fromkeys((*value.partitions, *partitions))),
        groups=tuple(dict.fromkeys((*value.groups, *groups))),
    )
    return decide_end(name, left_open, fresh_producer_id, commit=False, by_broker=True, now_ms=now_ms)


def decide_complete(name: str, value: TransactionValue, *, now_ms: int) -> list[Entry]:
    """All markers are written: the producer can begin its next transaction, as its successor."""
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
    """Return the epoch of the markers of this transaction: one more, so that they fence its late batches."""
    assert value.successor is not None
    return value.producer.epoch if value.successor == value.producer else value.producer.epoch + 1


def needs_marker(value: TransactionValue, *, open_epoch: int | None) -> bool:
    """Whether a partition still needs the marker, by the epoch of the transaction this producer has open there.

    After a crash markers are written only where they are missing: a transaction that is open with another epoch is a
    later one, whose entry may have been lost.
    """
    return open_epoch == value.producer.epoch


def _succeed(producer: ProducerIdentity, fresh_producer_id: int) -> ProducerIdentity:
    if producer.epoch < EPOCH_MAX:
        return ProducerIdentity(producer.producer_id, producer.epoch + 1)
    assert fresh_producer_id >= 0, "an exhausted producer needs a new id"
    return ProducerIdentity(fresh_producer_id, 0)
