"""The entries of internal topics: each is a key and its latest value. No value: the key is deleted.

The state of a coordinator is a table of these entries and nothing else, so compaction, which keeps the last record of
each key, keeps the state. Keys and values are MessagePack arrays; a key starts with the name of its kind. Fields are
only added at the end of a value, with a default, so that entries of older brokers can be read.
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
    """Names of assignors in order of preference, each with the subscription as that assignor encodes it."""
    instance: str = ""
    client_id: str = ""
    host: str = ""
    session_timeout_ms: int = 30_000
    rebalance_timeout_ms: int = 60_000
    assigned_by_broker: bool = False
    """If it is the group leader, the broker computes the assignment and watches for new partitions."""
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
    """Whether the assignment is known; until then the group waits for its leader to compute it."""
    partition_counts: tuple[tuple[str, int], ...] = ()
    """Number of partitions of each topic when the broker computed the assignment."""
    changed_at_ms: int = 0


class ConsumerGroupKey(_Key, frozen=True, tag="consumer_group"):
    """A group of the consumer protocol (KIP-848)."""

    group: str


class ConsumerGroupValue(_Value, frozen=True):
    epoch: int = 0
    """Incremented whenever the target assignment changes."""
    assignor: str = ""
    changed_at_ms: int = 0


class ConsumerMemberKey(_Key, frozen=True, tag="consumer_member"):
    group: str
    member_id: str


class ConsumerMemberValue(_Value, frozen=True):
    """The subscription of a member, its target assignment and its current one."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression: the member also subscribes to every topic whose whole name matches."""
    assignor: str = ""
    """The assignor it requests; empty: any."""
    instance: str = ""
    client_id: str = ""
    host: str = ""
    rack: str = ""
    rebalance_timeout_ms: int = 60_000
    epoch: int = 0
    """The group epoch that it has reached; -2: a static member that is away."""
    previous_epoch: int = 0
    """The epoch before: a member that has missed a response still sends it."""
    target: tuple[TopicPartition, ...] = ()
    """Its target assignment."""
    assigned: tuple[TopicPartition, ...] = ()
    """The partitions it may read."""
    revoking: tuple[TopicPartition, ...] = ()
    """The partitions it has to revoke and has not confirmed yet."""
    since: tuple[tuple[TopicPartition, int], ...] = ()
    """The epoch in which each of these partitions was assigned to it."""
    classic: MemberValue | None = None
    """What it has joined with, if it uses the classic protocol; its assignment is not in here."""


class TaskId(NamedTuple):
    """A task of Kafka Streams: it processes one partition of the topics of one subtopology."""

    subtopology: str
    partition: int


class TasksValue(_Value, frozen=True):
    """Tasks of a member by what it does with them."""

    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    """Tasks whose state it keeps up to date, to take them over."""
    warmup: tuple[TaskId, ...] = ()


class InternalTopicValue(_Value, frozen=True):
    """A topic that a streams group needs, and that is created for it."""

    name: str
    partitions: int = 0
    """0: as many as the topics that are read with it."""
    replication_factor: int = 0
    settings: tuple[tuple[str, str], ...] = ()


class SubtopologyValue(_Value, frozen=True):
    """A part of a topology: its tasks read these topics, each task one partition of each."""

    name: str
    sources: tuple[str, ...] = ()
    changelogs: tuple[InternalTopicValue, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopicValue, ...] = ()
    copartitioned: tuple[tuple[str, ...], ...] = ()
    """Topics that must have the same number of partitions."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics its tasks read."""
        return (*self.sources, *(topic.name for topic in self.repartition_sources))


class TopologyValue(_Value, frozen=True):
    epoch: int = 0
    subtopologies: tuple[SubtopologyValue, ...] = ()


class StreamsGroupKey(_Key, frozen=True, tag="streams_group"):
    """A group of Kafka Streams (KIP-1071)."""

    group: str


class StreamsGroupValue(_Value, frozen=True):
    epoch: int = 0
    """Incremented whenever the target assignment changes."""
    topology: TopologyValue | None = None
    tasks: tuple[tuple[str, int], ...] = ()
    """Number of tasks of each subtopology when they were assigned; empty if a topic is missing."""
    standbys: int = 0
    changed_at_ms: int = 0


class StreamsMemberKey(_Key, frozen=True, tag="streams_member"):
    group: str
    member_id: str


class StreamsMemberValue(_Value, frozen=True):
    """A member of a streams group: one thread of a process, its target assignment and its current one."""

    process_id: str = ""
    client_id: str = ""
    host: str = ""
    rack: str = ""
    rebalance_timeout_ms: int = 60_000
    topology_epoch: int = 0
    endpoint: tuple[str, int] | None = None
    """Host and port at which the process answers queries of its state."""
    tags: tuple[tuple[str, str], ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    target: TasksValue = TasksValue()
    assigned: TasksValue = TasksValue()
    revoking: TasksValue = TasksValue()
    since: tuple[tuple[TaskId, int], ...] = ()
    """The epoch in which each of its active tasks was assigned to it."""


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
    """An offset that takes effect if its producer's transaction commits."""

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
    """The current producer of the transactional id has not begun a transaction yet."""
    ONGOING = "ongoing"
    COMMITTING = "committing"
    """The decision to commit is final; the markers are being written."""
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
    """Producer id and producer epoch. An id is allocated once; a new epoch fences older ones."""

    producer_id: int
    epoch: int


class EndedValue(_Value, frozen=True):
    """How the last transaction of a transactional id ended."""

    producer: ProducerIdentity
    successor: ProducerIdentity
    committed: bool
    by_broker: bool = False
    """The broker aborted it: it timed out, or the broker crashed. False again once its producer knows."""


class TransactionKey(_Key, frozen=True, tag="transaction"):
    transactional_id: str


class TransactionValue(_Value, frozen=True):
    """The state of a transactional id."""

    producer: ProducerIdentity
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    """The partitions of the transaction: it has written there, or may do so."""
    groups: tuple[str, ...] = ()
    """The groups whose offsets it commits."""
    began_at_ms: int = -1
    changed_at_ms: int = 0
    successor: ProducerIdentity | None = None
    """While it ends: the producer id and epoch of the next transaction."""
    by_broker: bool = False
    ended: EndedValue | None = None
    keeps_epoch: bool = False
    """The producer of this transaction cannot learn a new epoch from its end: a Kafka client without KIP-890."""
    predecessor: ProducerIdentity | None = None
    """The identity with which this producer has requested its epoch: a retry of that request gets the same one."""

    def __post_init__(self) -> None:
        if self.state.is_ending:
            if self.successor is None:
                raise ValueError("an ending transaction has no successor")
            if self.successor.producer_id == self.producer.producer_id and self.successor.epoch < self.producer.epoch:
                raise ValueError("the epoch of the successor goes back")


class QueryKey(_Key, frozen=True, tag="query"):
    """A Spark query that writes to topics."""

    query: str


class QueryValue(_Value, frozen=True):
    last_batch: int
    changed_at_ms: int = 0


# --- all kinds ------------------------------------------------------------------------------------------------------

Key: TypeAlias = (
    GroupKey
    | ConsumerGroupKey
    | ConsumerMemberKey
    | StreamsGroupKey
    | StreamsMemberKey
    | OffsetKey
    | PendingKey
    | TransactionKey
    | QueryKey
)
Value: TypeAlias = (
    GroupValue
    | ConsumerGroupValue
    | ConsumerMemberValue
    | StreamsGroupValue
    | StreamsMemberValue
    | OffsetValue
    | PendingValue
    | TransactionValue
    | QueryValue
)
Entry: TypeAlias = tuple[Key, Value | None]

_VALUES: dict[type[Key], msgspec.msgpack.Decoder[Any]] = {
    GroupKey: msgspec.msgpack.Decoder(GroupValue),
    ConsumerGroupKey: msgspec.msgpack.Decoder(ConsumerGroupValue),
    ConsumerMemberKey: msgspec.msgpack.Decoder(ConsumerMemberValue),
    StreamsGroupKey: msgspec.msgpack.Decoder(StreamsGroupValue),
    StreamsMemberKey: msgspec.msgpack.Decoder(StreamsMemberValue),
    OffsetKey: msgspec.msgpack.Decoder(OffsetValue),
    PendingKey: msgspec.msgpack.Decoder(PendingValue),
    TransactionKey: msgspec.msgpack.Decoder(TransactionValue),
    QueryKey: msgspec.msgpack.Decoder(QueryValue),
}
ALL_KINDS: tuple[type[Key], ...] = tuple(_VALUES)
_KEYS = msgspec.msgpack.Decoder(Key)
_ENCODER = msgspec.msgpack.Encoder()


def encode_entries(entries: Iterable[Entry], *, now_ms: int) -> bytearray:
    """Return one batch with these entries, so that they are written atomically."""
    encode = _ENCODER.encode
    rows = [(encode(key), None if value is None else encode(value)) for key, value in entries]
    return encode_batch(rows, timestamp_ms=now_ms)


class Unreadable(NamedTuple):
    """A record of an internal topic that cannot be read as an entry."""

    offset: int
    reason: str
    key: bytes | None = None
    value: bytes | None = None


def read_entries(
    run: Buffer, kinds: tuple[type[Key], ...], belongs: Callable[[Key], bool] = lambda _: True
) -> Iterator[Entry | Unreadable]:
    """Yield the content of consecutive batches, in order: entries of these kinds, and unreadable records.

    `belongs` returns whether a key is in the right partition: in another one it would never be looked up.
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
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Unreadable(offset, str(error), key, value)
