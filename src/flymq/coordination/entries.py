"""What the internal topics hold: entries, each a key and its latest value. No value: the key is gone.

The state of a coordinator is a table of these entries and nothing else, so keeping the last record of each key, as
compaction does, keeps the state. Keys and values are MessagePack arrays; a key begins with the name of its kind. A
field is only ever added at the end of a value, with a default, so that what an older broker wrote can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import msgspec

from flymq.model.errors import InvalidBatch
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.record.header import Buffer, split_batches
from flymq.record.reading import parse_rows

NO_GENERATION = -1


class _Key(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    pass


class _Value(msgspec.Struct, frozen=True, array_like=True):
    pass


# --- __offsets ------------------------------------------------------------------------------------------------------


class GroupKey(_Key, frozen=True, tag="group"):
    group: str


class MemberValue(_Value, frozen=True):
    """One member of a generation."""

    member_id: str
    protocols: tuple[tuple[str, bytes], ...]
    """Names of assignors, best first, each with what the member wants in that one's own bytes."""
    instance: str = ""
    client_id: str = ""
    host: str = ""
    session_timeout_ms: int = 30_000
    rebalance_timeout_ms: int = 60_000
    assigned_by_broker: bool = False
    """When it leads, it leaves it to the broker to assign partitions, and to notice new ones."""
    assignment: bytes = b""

    def metadata(self, protocol: str) -> bytes:
        return dict(self.protocols)[protocol]


class GroupValue(_Value, frozen=True):
    """A group in one generation."""

    generation: int = 0
    kind: str = "consumer"
    protocol: str = ""
    leader: str = ""
    members: tuple[MemberValue, ...] = ()
    is_assigned: bool = True
    """Whether every member has its assignment; until then the leader is working on it."""
    partition_counts: tuple[tuple[str, int], ...] = ()
    """Number of partitions of each topic when the broker assigned them."""
    changed_at_ms: int = 0


class ConsumerGroupKey(_Key, frozen=True, tag="consumer_group"):
    """A group to whose members the broker assigns partitions one by one (KIP-848)."""

    group: str


class ConsumerGroupValue(_Value, frozen=True):
    epoch: int = 0
    """Goes up whenever the target assignments change."""
    assignor: str = ""
    changed_at_ms: int = 0


class ConsumerMemberKey(_Key, frozen=True, tag="consumer_member"):
    group: str
    member_id: str


class ConsumerMemberValue(_Value, frozen=True):
    """What a member wants, what it is to have, and what it has."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression: the member also wants every topic whose whole name matches."""
    assignor: str = ""
    """The assignor it asks for; empty: any."""
    instance: str = ""
    client_id: str = ""
    host: str = ""
    rack: str = ""
    rebalance_timeout_ms: int = 60_000
    epoch: int = 0
    """The last epoch of the group whose decision it has begun to follow; -2: a static member that is away."""
    previous_epoch: int = 0
    """The one before: a member whose answer was lost still speaks of it."""
    target: tuple[TopicPartition, ...] = ()
    """What it is to have."""
    assigned: tuple[TopicPartition, ...] = ()
    """What it may read."""
    revoking: tuple[TopicPartition, ...] = ()
    """What it was told to give up and has not yet."""


class OffsetKey(_Key, frozen=True, tag="offset"):
    group: str
    topic: str
    partition: int


class OffsetValue(_Value, frozen=True):
    """The next offset to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_at_ms: int = 0


class PendingKey(_Key, frozen=True, tag="pending"):
    """An offset that counts once its producer's transaction commits."""

    group: str
    producer_id: int
    topic: str
    partition: int


class PendingValue(_Value, frozen=True):
    epoch: int
    offset: OffsetValue


# --- __transactions -------------------------------------------------------------------------------------------------


class TransactionState(Enum):
    EMPTY = "empty"
    """No transaction was begun yet by this holder of the id."""
    ONGOING = "ongoing"
    COMMITTING = "committing"
    """It will be committed, whatever happens; the markers are being written."""
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"

    @property
    def is_ending(self) -> bool:
        return self in (TransactionState.COMMITTING, TransactionState.ABORTING)

    @property
    def is_idle(self) -> bool:
        return self is not TransactionState.ONGOING and not self.is_ending


class ProducerIdentity(NamedTuple):
    """Who writes a batch: an id that is given out once, and how often it has been renewed."""

    producer_id: int
    epoch: int


class EndedValue(_Value, frozen=True):
    """How the last transaction of a transactional id ended."""

    producer: ProducerIdentity
    successor: ProducerIdentity
    committed: bool
    by_broker: bool = False
    """The broker aborted it by itself: it was open for too long, or the broker crashed."""


class TransactionKey(_Key, frozen=True, tag="transaction"):
    transactional_id: str


class TransactionValue(_Value, frozen=True):
    """What is known of a transactional id."""

    producer: ProducerIdentity
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    """Where the transaction has written, or is about to."""
    groups: tuple[str, ...] = ()
    """Whose offsets it is about to commit."""
    began_at_ms: int = -1
    changed_at_ms: int = 0
    successor: ProducerIdentity | None = None
    """While it ends: who the producer is afterwards."""
    by_broker: bool = False
    ended: EndedValue | None = None


class QueryKey(_Key, frozen=True, tag="query"):
    """A Spark query that writes to topics."""

    query: str


class QueryValue(_Value, frozen=True):
    last_batch: int
    changed_at_ms: int = 0


# --- all kinds ------------------------------------------------------------------------------------------------------

Key: TypeAlias = GroupKey | ConsumerGroupKey | ConsumerMemberKey | OffsetKey | PendingKey | TransactionKey | QueryKey
Value: TypeAlias = (
    GroupValue | ConsumerGroupValue | ConsumerMemberValue | OffsetValue | PendingValue | TransactionValue | QueryValue
)
Entry: TypeAlias = tuple[Key, Value | None]

_VALUES: dict[type[Key], msgspec.msgpack.Decoder[Any]] = {
    GroupKey: msgspec.msgpack.Decoder(GroupValue),
    ConsumerGroupKey: msgspec.msgpack.Decoder(ConsumerGroupValue),
    ConsumerMemberKey: msgspec.msgpack.Decoder(ConsumerMemberValue),
    OffsetKey: msgspec.msgpack.Decoder(OffsetValue),
    PendingKey: msgspec.msgpack.Decoder(PendingValue),
    TransactionKey: msgspec.msgpack.Decoder(TransactionValue),
    QueryKey: msgspec.msgpack.Decoder(QueryValue),
}
ALL_KINDS: tuple[type[Key], ...] = tuple(_VALUES)
_KEYS = msgspec.msgpack.Decoder(Key)
_ENCODER = msgspec.msgpack.Encoder()


def encode_entries(entries: Iterable[Entry], *, now_ms: int) -> bytearray:
    """Return one batch with these entries: all of them will be in the log, or none."""
    encode = _ENCODER.encode
    rows = [(encode(key), None if value is None else encode(value)) for key, value in entries]
    return encode_batch(rows, timestamp_ms=now_ms)


class Unreadable(NamedTuple):
    """A record of an internal topic that is no entry of it, whoever wrote it."""

    offset: int
    reason: str
    key: bytes | None = None
    value: bytes | None = None


def read_entries(
    run: Buffer, kinds: tuple[type[Key], ...], belongs: Callable[[Key], bool] = lambda _: True
) -> Iterator[Entry | Unreadable]:
    """Yield what a run of batches holds, in order: entries of these kinds, and whatever else was found there.

    `belongs` tells whether a key is one of this partition: nobody would look for it here otherwise.
    """
    view = memoryview(run)
    for position, header in split_batches(run):
        try:
            rows = parse_rows(view[position : position + header.size])
        except InvalidBatch as error:
            yield Unreadable(header.base_offset, error.message)
            continue
        for offset, _, key, value in rows:
            yield _read_entry(offset, key, value, kinds, belongs)


def _read_entry(
    offset: int, key: bytes | None, value: bytes | None, kinds: tuple[type[Key], ...], belongs: Callable[[Key], bool]
) -> Entry | Unreadable:
    try:
        parsed: Key = _KEYS.decode(key or b"")
        if not isinstance(parsed, kinds):
            return Unreadable(offset, f"entries of the kind {type(parsed).__name__} do not belong here", key, value)
        if not belongs(parsed):
            return Unreadable(offset, "the key belongs to another partition", key, value)
        return parsed, None if value is None else _VALUES[type(parsed)].decode(value)
    except msgspec.MsgspecError as error:
        return Unreadable(offset, str(error), key, value)
