"""What a partition remembers of its producers: enough to refuse a duplicate or a gap in the sequence numbers, and to
know which transactions are open.

All of it follows from the batch headers in the log, so it is replayed after a crash (replay.py), from the last snapshot
(snapshot.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flymq.model.errors import OutOfOrderSequence, ProducerFenced
from flymq.record.header import NO_SEQUENCE, BatchHeader

WINDOW_BATCHES = 5  # as many batches as an idempotent Kafka producer keeps in flight
DERIVED_ID_FIRST = 1 << 62
"""Ids from here on are derived from what a request names itself by (broker/producer_ids.py): each writes one batch."""
DERIVED_MAX = 10_000
"""How many of those a partition remembers: there is one for every such request, not one for every client."""
_SEQUENCE_SPAN = 1 << 31


class AppendedBatch(msgspec.Struct, array_like=True):
    """A batch that is in the log, as the window remembers it."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Producer(msgspec.Struct, array_like=True):
    """One producer id in one partition."""

    producer_id: int
    epoch: int
    window: list[AppendedBatch]
    open_since: int | None = None
    """First offset of the open transaction."""
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    is_new_epoch: bool = False
    """The epoch began after an earlier one: its first batch has the sequence 0."""
    takes_any_sequence: bool = False
    """Its transaction was aborted, and the epoch stays: it may have counted batches that never arrived here."""

    @property
    def last_sequence(self) -> int:
        return self.window[-1].last_sequence if self.window else NO_SEQUENCE


class EndedTransaction(NamedTuple):
    """A transaction whose marker was appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    committed: bool


class Producers:
    """The producers of one partition."""

    def __init__(self, producers: Sequence[Producer] = ()) -> None:
        self._producers = {each.producer_id: each for each in producers}
        self._derived = dict.fromkeys(id_ for id_ in self._producers if id_ >= DERIVED_ID_FIRST)  # the oldest first
        # Producer id → first offset of its open transaction.
        self._open = {each.producer_id: each.open_since for each in producers if each.open_since is not None}

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def all(self) -> list[Producer]:
        return list(self._producers.values())

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction begins: readers of committed records stop here."""
        return min(self._open.values()) if self._open else None

    def find_duplicate(self, header: BatchHeader) -> AppendedBatch | None:
        """Return the batch in the log that this one repeats, or raise when it does not follow the last one."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            raise ProducerFenced(
                f"producer {header.producer_id} is at epoch {producer.epoch}, the batch has {header.producer_epoch}"
            )
        if header.base_sequence == NO_SEQUENCE:
            return None
        if header.producer_epoch > producer.epoch:
            expected = 0
        else:
            for batch in producer.window:
                if batch.base_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                    return batch
            if producer.takes_any_sequence:
                return None  # some Kafka clients do not count back when batches of an aborted transaction are refused
            if not producer.window and not producer.is_new_epoch:
                return None  # only markers are left: its batches were deleted
            expected = (producer.last_sequence + 1) % _SEQUENCE_SPAN
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id}: sequence {expected} is next, the batch has {header.base_sequence}"
            )
        return None

    def apply(self, header: BatchHeader) -> None:
        """Apply a batch of records that is in the log."""
        producer = self._enter(header)
        producer.takes_any_sequence = False
        if header.base_sequence != NO_SEQUENCE:
            producer.window.append(
                AppendedBatch(
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
            )
            del producer.window[:-WINDOW_BATCHES]
        if header.is_transactional and producer.open_since is None:
            producer.open_since = self._open[header.producer_id] = header.base_offset

    def apply_marker(self, header: BatchHeader, *, committed: bool, coordinator_epoch: int) -> EndedTransaction | None:
        """Apply a marker that is in the log; return the transaction it ends."""
        producer = self._enter(header)
        producer.coordinator_epoch = coordinator_epoch
        if not committed and producer.open_since is not None:
            producer.takes_any_sequence = bool(producer.window)  # none is left of another epoch
        first_offset = self._open.pop(header.producer_id, None)
        producer.open_since = None
        if first_offset is None:
            return None
        return EndedTransaction(header.producer_id, first_offset, header.last_offset, committed)

    def expire(self, older_than_ms: int) -> None:
        """Forget producers that have been idle since, unless they have an open transaction."""
        for producer in self.all():
            if producer.last_timestamp < older_than_ms and producer.open_since is None:
                self._forget(producer.producer_id)

    def _enter(self, header: BatchHeader) -> Producer:
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = Producer(header.producer_id, header.producer_epoch, [])
            if header.producer_id >= DERIVED_ID_FIRST:
                self._remember_derived(header.producer_id)
        elif header.producer_epoch > producer.epoch:
            producer.epoch, producer.is_new_epoch = header.producer_epoch, True
            producer.takes_any_sequence = False
            producer.window.clear()
        producer.last_timestamp = max(producer.last_timestamp, header.max_timestamp)
        return producer

    def _remember_derived(self, producer_id: int) -> None:
        self._derived[producer_id] = None
        if len(self._derived) > DERIVED_MAX:
            self._forget(next(iter(self._derived)))

    def _forget(self, producer_id: int) -> None:
        del self._producers[producer_id]
        self._derived.pop(producer_id, None)
