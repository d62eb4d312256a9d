"""The states of a transactional id.

    EMPTY ──begin──▶ ONGOING ──commit──▶ COMMITTING ──all markers are written──▶ COMMITTED ──begin──▶ ONGOING …
                        └──abort, timeout, new producer──▶ ABORTING ──▶ ABORTED ──begin──▶ …

Once COMMITTING is in the log, the transaction is committed: after a crash, the markers are still written. Until then it
can only be aborted. With every transaction the producer gets a new epoch, which the end marker of the last one already
carries, so a late batch or request cannot be confused with those of the next transaction.

Kafka clients without KIP-890 keep their epoch (`keeps_epoch`). What protects them: a partition or group must have been
added before it is written to (`Joining.ANNOUNCED`), a request on an older connection is late (request_order.py), and
what the broker has aborted stays refused until the producer has aborted it, too (`is_unacknowledged`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
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
from flymq.model.coordinators import Joining as Joining
from flymq.model.errors import (
    InvalidTransactionState,
    ProducerFenced,
    TransactionAborted,
    TransactionInProgress,
    UnknownProducer,
    WrongProducerId,
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


def check_identity(name: str, value: TransactionValue | None, producer: ProducerIdentity) -> TransactionValue:
    """Return the state of the id, or raise an error if it belongs to another producer or epoch."""
    if value is None:
        raise UnknownProducer(f"unknown transactional id {name!r}", hint="Send INIT_PRODUCER first.")
    if producer != value.producer:
        if value.ended == EndedValue(producer, value.producer, committed=False, by_broker=True):
            raise _aborted_by_broker(name)
        wrong = ProducerFenced if producer.producer_id == value.producer.producer_id else WrongProducerId
        raise wrong(
            f"{name!r} belongs to producer {value.producer.producer_id} at epoch {value.producer.epoch}, "
            f"not to producer {producer.producer_id} at epoch {producer.epoch}"
        )
    return value


def check_producer(name: str, value: TransactionValue | None, producer: ProducerIdentity) -> TransactionValue:
    """Return the state of the id, or raise an error if this producer must not use it, or must abort first."""
    value = check_identity(name, value, producer)
    if is_unacknowledged(value):
        raise _aborted_by_broker(name)
    return value


def is_unacknowledged(value: TransactionValue) -> bool:
    """Whether the broker has aborted a transaction whose producer keeps its epoch, and does not know of it yet.

    With its epoch it could go on, and the second half of its transaction would be committed without the first.
    """
    if value.ended is None or not value.state.is_idle:
        return False
    return value.ended == EndedValue(value.producer, value.producer, committed=False, by_broker=True)


def _aborted_by_broker(name: str) -> TransactionAborted:
    return TransactionAborted(
        f"the broker has aborted the transaction of {name!r}: it timed out, or the broker crashed"
    )


def check_ongoing(name: str, value: TransactionValue | None, producer: ProducerIdentity) -> TransactionValue:
    """Return the open transaction of this producer, or raise an error if there is none."""
    value = check_producer(name, value, producer)
    if value.state.is_ending:
        raise TransactionInProgress(f"the transaction of {name!r} is being ended")
    if value.state is not TransactionState.ONGOING:
        raise InvalidTransactionState(f"no transaction of {name!r} is open")
    return value


def check_renewal(name: str, value: TransactionValue | None, producer: ProducerIdentity) -> ProducerIdentity | None:
    """Raise an error unless this producer may get a new epoch; return the one it has got already if this is a retry.

    It may if the broker has aborted its transaction: no other producer has taken the id over.
    """
    if value is None:
        return None
    if value.state is TransactionState.EMPTY and value.predecessor == producer:
        return value.producer
    with suppress(TransactionAborted):
        check_identity(name, value, producer)
    return None


def check_announced(
    name: str, value: TransactionValue, *, partitions: Iterable[TopicPartition] = (), groups: Iterable[str] = ()
) -> None:
    """Raise an error unless these are part of the open transaction: a late write might belong to an earlier one."""
    missing = [str(partition) for partition in partitions if partition not in value.partitions]
    missing += [f"the group {group}" for group in groups if group not in value.groups]
    if missing:
        raise InvalidTransactionState(
            f"{', '.join(missing)} was not added to the transaction of {name!r}",
            hint="Send AddPartitionsToTxn or AddOffsetsToTxn first.",
        )


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
    if value is None or value.ended is None or value.ended.producer != producer or is_unacknowledged(value):
        return None
    is_new = value.producer == producer and not value.state.is_idle
    return None if is_new or value.ended.committed != commit else value.ended


def is_exhausted(value: TransactionValue | None) -> bool:
    """Whether a new producer id is needed, since the epochs of this one are exhausted."""
    return value is not None and value.producer.epoch >= EPOCH_MAX


# --- decisions ------------------------------------------------------------------------------------------------------


def decide_init(
    name: str,
    value: TransactionValue | None,
    fresh_producer_id: int,
    *,
    timeout_ms: int,
    predecessor: ProducerIdentity | None = None,
    now_ms: int,
) -> list[Entry]:
    """Give the id to a new producer, with an epoch that fences the previous one.

    `predecessor`: its identity so far, if it is not a new one but wants a new epoch.
    """
    if value is None:
        producer, ended = ProducerIdentity(fresh_producer_id, 0), None
    else:
        assert value.state.is_idle, "an open transaction must be ended first"
        producer, ended = _succeed(value.producer, fresh_producer_id), value.ended
    renewed = TransactionValue(producer, timeout_ms, changed_at_ms=now_ms, ended=ended, predecessor=predecessor)
    return [(TransactionKey(name), renewed)]


def decide_replace(name: str, value: TransactionValue, fresh_producer_id: int, *, now_ms: int) -> list[Entry]:
    """Give the id another producer id, because entries of it were lost: partitions know later epochs of its producer.

    With an epoch that was in use before, new batches would pass for repetitions of old ones.
    """
    assert value.state.is_idle, "an open transaction must be ended first"
    producer = ProducerIdentity(fresh_producer_id, 0)
    return [(TransactionKey(name), TransactionValue(producer, value.timeout_ms, changed_at_ms=now_ms))]


def decide_begin(name: str, value: TransactionValue, *, keeps_epoch: bool = False, now_ms: int) -> list[Entry]:
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
        keeps_epoch=keeps_epoch,
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

    `keeps_epoch` is for producers without an epoch per transaction: Kafka clients without KIP-890. With a new epoch,
    an abort makes sense even if no transaction is open: writes that would begin one may still be on their way.
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
    return decide_end(
        name,
        left_open,
        fresh_producer_id,
        commit=False,
        keeps_epoch=value.keeps_epoch,
        by_broker=True,
        now_ms=now_ms,
    )


def decide_acknowledge(name: str, value: TransactionValue, *, now_ms: int) -> list[Entry]:
    """The producer has aborted what the broker had aborted: it may begin its next transaction."""
    if not is_unacknowledged(value):
        return []
    assert value.ended is not None
    known = replace(value, ended=replace(value.ended, by_broker=False), changed_at_ms=now_ms)
    return [(TransactionKey(name), known)]


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
        keeps_epoch=value.keeps_epoch,  # a power failure may lose the beginning of its next transaction
    )
    return [(TransactionKey(name), completed)]


@dataclass(frozen=True, slots=True)
class Ending:
    """What the partitions and groups of a transaction are told when it ends."""

    producer: ProducerIdentity
    marker_epoch: int
    """The producer epoch of the markers."""
    committed: bool
    coordinator_epoch: int


def ending_of(value: TransactionValue, coordinator_epoch: int) -> Ending:
    """Return the decided end of a transaction. Its markers have one epoch more, so that they fence its late batches."""
    assert value.state.is_ending and value.successor is not None
    producer = value.producer
    marker_epoch = producer.epoch if value.successor == producer else producer.epoch + 1
    return Ending(producer, marker_epoch, value.state is TransactionState.COMMITTING, coordinator_epoch)


def needs_marker(ending: Ending, *, known_epoch: int | None, open_epoch: int | None, fences: bool) -> bool:
    """Whether a partition still needs the marker, by the epoch of the transaction this producer has open there.

    After a crash markers are written only where they are missing: a transaction that is open with another epoch is a
    later one, whose entry may have been lost.

    `fences`: also where nothing was written, if the marker has a later epoch than the partition knows. A late batch is
    refused by it then, also where a broker leads that has not heard of the coordinator that ended the transaction.
    """
    if open_epoch is not None:
        return open_epoch == ending.producer.epoch
    is_later = known_epoch is None or known_epoch < ending.marker_epoch
    return fences and is_later and ending.marker_epoch > ending.producer.epoch


def _succeed(producer: ProducerIdentity, fresh_producer_id: int) -> ProducerIdentity:
    if producer.epoch < EPOCH_MAX:
        return ProducerIdentity(producer.producer_id, producer.epoch + 1)
    assert fresh_producer_id >= 0, "an exhausted producer needs a new id"
    return ProducerIdentity(fresh_producer_id, 0)
