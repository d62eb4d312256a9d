"""Writes changes of partitions to the metadata store: many in a txn, several txns at once.

Every change compares the state that it was decided on, and the registrations of the brokers that it relies on. What met
a concurrent change is left out, without keeping the others from theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flymq.cluster.catalog import encode_state, partition_key
from flymq.cluster.plan import Roster, StateChange
from flymq.metadata.store import TXN_OPS_MAX, Compare, Get, MetadataStore, Put, has_value

_TXNS_AT_ONCE = 4


@dataclass(slots=True)
class Written:
    """Which changes were made, and the revision of the store after the last txn."""

    revision: int = 0
    changes: list[StateChange] = field(default_factory=list)


async def write_changes(
    store: MetadataStore, changes: Sequence[StateChange], roster: Roster, only_if: Sequence[Compare] = ()
) -> Written:
    """Make these changes, as far as they are still right. `roster`: the brokers that they were decided for."""
    blocks = _blocks(changes, TXN_OPS_MAX - len(only_if))
    written = Written()

    async def work() -> None:
        for block in blocks:  # shared: each takes the next one
            await _write(store, block, roster, only_if, written)

    done = await asyncio.gather(*(work() for _ in range(_TXNS_AT_ONCE)), return_exceptions=True)
    for error in done:
        if error is not None:
            raise error
    return written


async def _write(
    store: MetadataStore, changes: Sequence[StateChange], roster: Roster, only_if: Sequence[Compare], written: Written
) -> None:
    while changes:
        conditions = [[*only_if, *_conditions(each, roster)] for each in changes]
        compares = list({each: None for some in conditions for each in some})
        puts = [Put(_key(each), encode_state(each.after)) for each in changes]
        result = await store.txn(compares, puts)
        written.revision = max(written.revision, result.revision)
        if result.succeeded:
            written.changes += changes
            break
        found = await store.txn(success=[Get(compare.key) for compare in compares])
        held = {compare for compare, each in zip(compares, found.found, strict=True) if compare.holds(each)}
        changes = [each for each, some in zip(changes, conditions, strict=True) if held.issuperset(some)]


def _conditions(change: StateChange, roster: Roster) -> list[Compare]:
    unchanged = has_value(_key(change), encode_state(change.before))
    return [unchanged, *(roster.is_registered(each) for each in sorted(change.relies_on) if each in roster.epochs)]


def _key(change: StateChange) -> str:
    return partition_key(change.topic_id, change.partition)


def _blocks(changes: Sequence[StateChange], size: int) -> Iterator[list[StateChange]]:
    """Yield as many changes as fit into a txn, which compares the brokers that they rely on, too."""
    block: list[StateChange] = []
    relied_on: set[int] = set()
    for change in changes:
        if 1 + len(block) + len(relied_on | change.relies_on) > size:
            yield block
            block, relied_on = [], set()
        block.append(change)
        relied_on |= change.relies_on
    if block:
        yield block
