"""Attempts: the writes of the tasks of one Spark batch, each in its own transaction, to be committed together.

An attempt is a transaction whose id is `<query>:<batch>:<anything>`. Ids with the same prefix before the first colon
are in one partition of `__transactions`, so all attempts of a batch end with one append: atomically.

    query at batch 4 ──commit attempts of batch 5──▶ query at batch 5, listed attempts COMMITTING, all others ABORTING
                     ──commit attempts of batch 4 or older──▶ no effect: repeated writes are aborted
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from flymq.coordination.entries import (
    Entry,
    ProducerIdentity,
    QueryKey,
    QueryValue,
    TransactionKey,
    TransactionState,
    TransactionValue,
)
from flymq.coordination.transactions import check_ongoing, decide_end
from flymq.model.errors import InvalidRequest


class Attempt(NamedTuple):
    """Which batch of which query an attempt belongs to."""

    query: str
    batch: int


def parse_attempt(transactional_id: str) -> Attempt | None:
    """Parse the id of an attempt; None for any other transactional id."""
    query, _, rest = transactional_id.partition(":")
    batch, separator, _ = rest.partition(":")
    if not separator or not batch.isascii() or not batch.isdigit():
        return None
    return Attempt(query, int(batch))


def home_of(transactional_id: str) -> str:
    """Return the key whose hash determines the partition of this id."""
    return transactional_id.partition(":")[0]


def decide_commit_attempts(
    attempt: Attempt,
    listed: Mapping[str, ProducerIdentity],
    *,
    last_batch: int | None,
    known: Iterable[tuple[str, TransactionValue]],
    now_ms: int,
) -> list[Entry]:
    """End all attempts of a batch and of earlier ones: commit the `listed` ones, unless the batch was committed.

    Their producers write nothing afterwards, so their epochs stay the same.
    """
    for name in listed:
        if parse_attempt(name) != attempt:
            raise InvalidRequest(f"{name!r} is not an attempt of batch {attempt.batch} of the query {attempt.query!r}")
    transactions = dict(known)
    entries: list[Entry] = []
    is_repeat = last_batch is not None and attempt.batch <= last_batch
    if not is_repeat:
        entries.append((QueryKey(attempt.query), QueryValue(attempt.batch, now_ms)))
        for name, producer in listed.items():
            value = check_ongoing(name, transactions.get(name), producer)
            entries += decide_end(name, value, commit=True, now_ms=now_ms, keeps_epoch=True)
    for name, value in transactions.items():
        found = parse_attempt(name)
        assert found is not None
        is_dropped = found.batch <= attempt.batch and (is_repeat or name not in listed)
        if is_dropped and value.state is TransactionState.ONGOING:
            entries += decide_end(name, value, commit=False, now_ms=now_ms, by_broker=True, keeps_epoch=True)
    return entries


def decide_delete(name: str, value: TransactionValue, *, last_batch: int | None) -> list[Entry]:
    """Delete an attempt that ended with its batch; nothing to write for any other transaction."""
    attempt = parse_attempt(name)
    is_done_for = attempt is not None and last_batch is not None and attempt.batch <= last_batch
    is_done_for = is_done_for and value.successor == value.producer
    return [(TransactionKey(name), None)] if is_done_for else []
