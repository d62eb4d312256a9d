"""What clients of a broker were told, and whether what they read afterwards agrees with it.

Writers say what they are about to write, what was acknowledged and how their transactions ended; readers say what they
have seen and which offsets they committed. No value is ever written twice on purpose, so a value tells which write it
belongs to. `violations` compares all of it with the log as it is read at the end.

The methods are called from many threads; each is one step on a dict or a list, and nothing is removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from flymq.model.names import TopicPartition

Log = Mapping[TopicPartition, Sequence[tuple[int, bytes]]]
"""Offset and value of every record of each partition, in the order in which they were read."""

SIZES = (20, 100, 100, 100, 3_000, 20_000)


class Outcome(Enum):
    """What the writer of a transaction knows about its end."""

    IN_DOUBT = "in doubt"
    """It is open, or its commit was sent and the answer never came."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    """Aborted, or given up before a commit was sent."""


@dataclass
class Transaction:
    """One transaction as its writer saw it."""

    name: str
    values: list[bytes] = field(default_factory=list)
    outcome: Outcome = Outcome.IN_DOUBT


@dataclass
class Write:
    """One record, written once by one writer."""

    writer: str
    number: int
    transaction: Transaction | None
    place: tuple[TopicPartition, int] | None = None
    """Partition and offset from the acknowledgement."""


@dataclass
class History:
    """Everything that was said by and to the clients of one broker."""

    writes: dict[bytes, Write] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    places: dict[tuple[TopicPartition, int], bytes] = field(default_factory=dict)
    """What was first seen at each offset, by whoever saw it."""
    delivered: defaultdict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """What each group has read."""
    commits: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """The highest acknowledged commit of each group."""
    conflicts: list[str] = field(default_factory=list)
    """What was wrong at the moment it was seen."""

    # --- writers

    def begin(self, name: str) -> Transaction:
        transaction = Transaction(name)
        self.transactions.append(transaction)
        return transaction

    def write(self, writer: str, number: int, value: bytes, transaction: Transaction | None = None) -> None:
        """Note what is about to be written. `number` grows with each write of a writer."""
        assert value not in self.writes, "values are unique"
        self.writes[value] = Write(writer, number, transaction)
        if transaction is not None:
            transaction.values.append(value)

    def acknowledge(self, value: bytes, partition: TopicPartition, offset: int) -> None:
        self.writes[value].place = (partition, offset)
        self.see(partition, offset, value)

    # --- readers

    def see(self, partition: TopicPartition, offset: int, value: bytes, group: str = "") -> None:
        """Note what was read at an offset. It must be the same for everybody, for ever."""
        known = self.places.setdefault((partition, offset), value)
        if known != value:
            self.conflicts.append(
                f"offset reused: {_at(partition, offset)} was {_shown(known)} and later {_shown(value)}"
            )
        if value not in self.writes:
            self.conflicts.append(f"wrong bytes: {_at(partition, offset)} is {_shown(value)}, which nobody wrote")
        if group:
            self.delivered[group].add(value)

    def commit(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Note an acknowledged commit."""
        self.commits[group, partition] = max(offset, self.commits.get((group, partition), 0))

    def see_commit(self, group: str, partition: TopicPartition, offset: int, *, at_least: int) -> None:
        """Note what the broker says is committed, after a commit of `at_least` was acknowledged."""
        if offset < at_least:
            self.conflicts.append(f"commit went back: {group} had {_at(partition, at_least)} and now has {offset}")

    # --- the verdict

    @property
    def acknowledged(self) -> int:
        return sum(1 for write in self.writes.values() if write.place is not None)

    def violations(self, committed: Log, everything: Log) -> list[str]:
        """Return what breaks a promise, in words. Logs as readers of committed and of all records see them."""
        for log in (committed, everything):
            for partition, records in log.items():
                for offset, value in records:
                    self.see(partition, offset, value)
        return [
            *dict.fromkeys(self.conflicts),
            *self._lost(everything),
            *_repeated(everything),
            *self._out_of_order(everything),
            *self._broken_transactions(committed),
            *self._hidden(committed, everything),
        ]

    def undelivered(self, group: str, committed: Log) -> list[str]:
        """Return what a group that has read to the end was never given."""
        missing = [
            value for records in committed.values() for _, value in records if value not in self.delivered[group]
        ]
        return [f"not delivered: the group {group} never saw {_shown(value)}" for value in missing]

    def _lost(self, everything: Log) -> Iterator[str]:
        found = {(partition, offset): value for partition, records in everything.items() for offset, value in records}
        for value, write in self.writes.items():
            if write.place is not None and found.get(write.place) != value:
                yield f"lost: {_shown(value)} was acknowledged at {_at(*write.place)}"

    def _out_of_order(self, everything: Log) -> Iterator[str]:
        for partition, records in everything.items():
            last: dict[str, int] = {}
            for offset, value in records:
                write = self.writes.get(value)
                if write is None:
                    continue
                if write.number <= last.get(write.writer, -1):
                    yield f"out of order: {_shown(value)} at {_at(partition, offset)} follows {last[write.writer]}"
                last[write.writer] = write.number

    def _broken_transactions(self, committed: Log) -> Iterator[str]:
        visible = {value for records in committed.values() for _, value in records}
        for transaction in self.transactions:
            there = sum(value in visible for value in transaction.values)
            whole = len(transaction.values)
            if there not in (0, whole):
                yield f"half a transaction: {there} of {whole} records of {transaction.name} are visible"
            elif transaction.outcome is Outcome.COMMITTED and there != whole:
                yield f"lost transaction: {transaction.name} was committed and is not visible"
            elif transaction.outcome is Outcome.ABORTED and there:
                yield f"aborted and visible: {transaction.name}"

    def _hidden(self, committed: Log, everything: Log) -> Iterator[str]:
        """A record outside transactions is visible to everybody."""
        visible = {value for records in committed.values() for _, value in records}
        for records in everything.values():
            for _, value in records:
                write = self.writes.get(value)
                if write is not None and write.transaction is None and value not in visible:
                    yield f"hidden: readers of committed records do not see {_shown(value)}"


def _repeated(everything: Log) -> Iterator[str]:
    places: defaultdict[bytes, list[str]] = defaultdict(list)
    for partition, records in everything.items():
        for offset, value in records:
            places[value].append(_at(partition, offset))
    for value, found in places.items():
        if len(found) > 1:
            yield f"repeated: {_shown(value)} is at {' and '.join(found)}"


def _at(partition: TopicPartition, offset: int) -> str:
    return f"{partition.topic}-{partition.partition}@{offset}"


def _shown(value: bytes) -> str:
    return repr(value[:40])


def make_value(writer: str, number: int, chance: Random) -> bytes:
    """Return a value that no other write has. Half of them are mostly zeros, as never-written sectors are."""
    size = chance.choice(SIZES)
    return f"{writer}/{number}/".encode() + (bytes(size) if chance.random() < 0.5 else chance.randbytes(size))
