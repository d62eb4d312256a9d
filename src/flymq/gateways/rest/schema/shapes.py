"""The shapes of JSON requests and responses. The OpenAPI schemas are generated from these classes and docstrings."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from flymq.gateways.rest.http.problems import Problem

_INT64_MAX = (1 << 63) - 1
_INT32_MAX = (1 << 31) - 1

Count = Annotated[int, Meta(ge=1, le=_INT32_MAX)]
Number = Annotated[int, Meta(ge=0, le=_INT32_MAX)]
Offset = Annotated[int, Meta(ge=0, le=_INT64_MAX)]
TimeMs = Annotated[int, Meta(ge=0, le=_INT64_MAX, description="Milliseconds since 1970.")]
Limit = Annotated[int, Meta(ge=1, le=1000, description="Maximum number of items in the response.")]
WaitMs = Annotated[int, Meta(ge=0, le=_INT32_MAX, description="Maximum time to wait for the first record.")]
PageToken = Annotated[str, Meta(description="`next_page_token` of the previous page.")]
TopicName = Annotated[
    str, Meta(extra_json_schema={"pattern": r"^[a-zA-Z0-9_-][a-zA-Z0-9._-]*$", "minLength": 1, "maxLength": 249})
]
Config = Annotated[
    dict[str, str | int | float | None],
    Meta(description="Settings by name, such as `retention.ms`; null for the default."),
]


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """A request body: unknown fields are refused, since they are most likely misspelt."""


class Query(msgspec.Struct, forbid_unknown_fields=True):
    """Query parameters."""


class Answer(msgspec.Struct):
    """A response body. Fields may be added, never removed."""


class Encoding(Enum):
    """How a key or value is represented in JSON."""

    JSON = "json"
    STRING = "string"
    BASE64 = "base64"


class AcksName(Enum):
    NONE = "none"
    LEADER = "leader"
    ALL = "all"


class IsolationName(Enum):
    COMMITTED = "committed"
    UNCOMMITTED = "uncommitted"


class Position(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


class Page(Query):
    limit: Limit = 100
    page_token: PageToken = ""


# --- topics ---------------------------------------------------------------------------------------------------------


class NewTopic(Body):
    """A topic to create."""

    name: TopicName
    partitions: Count | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=32767)] | None = None
    config: Config = {}


class TopicSummary(Answer):
    name: str
    partitions: int
    replication_factor: int
    internal: bool


class TopicDescription(Answer):
    """A topic and all its settings; `overrides` lists those set for this topic."""

    name: str
    id: str
    internal: bool
    partitions: int
    replication_factor: int
    config: dict[str, str | int | float]
    overrides: list[str]
    warnings: list[str] | UnsetType = UNSET


class TopicPage(Answer):
    topics: list[TopicSummary]
    next_page_token: str | None


class TopicsQuery(Page):
    internal: Annotated[bool, Meta(description="Whether to include internal topics.")] = False


class TopicChanges(Body):
    """What to change: more partitions, settings, or both."""

    partitions: Count | None = None
    config: Config = {}


class ConfigChanges(Body):
    config: Config


class TopicConfiguration(Answer):
    config: dict[str, str | int | float]
    overrides: list[str]


class PartitionDescription(Answer):
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    start_offset: int
    end_offset: int
    last_stable_offset: int
    bytes: int
    offline: bool
    problem: str


class Partitions(Answer):
    partitions: list[PartitionDescription]


class OffsetsQuery(Query):
    timestamp: TimeMs | None = None


class PartitionOffsets(Answer):
    """`at_timestamp` is the first offset at or after the timestamp; null if there is no later record."""

    start_offset: int
    end_offset: int
    last_stable_offset: int
    at_timestamp: int | UnsetType | None = UNSET


# --- records --------------------------------------------------------------------------------------------------------


class HeaderShape(msgspec.Struct, forbid_unknown_fields=True):
    """A header of a record; its encoding is `string` or `base64`."""

    name: str
    value: str | None = None
    encoding: Encoding = Encoding.STRING


class NewRecord(Body):
    """A record to write. `null` is no key, or no value: a tombstone."""

    value: Raw | UnsetType = UNSET
    key: Raw | UnsetType = UNSET
    partition: Number | None = None
    headers: list[HeaderShape] = []
    timestamp: TimeMs | None = None
    encoding: Encoding | None = None
    key_encoding: Encoding | None = None


class NewRecords(Body):
    """Records to write, and the default encoding of their keys and values."""

    records: Annotated[list[NewRecord], Meta(min_length=1)]
    encoding: Encoding | None = None
    key_encoding: Encoding | None = None


class ProduceQuery(Query):
    acks: Annotated[AcksName, Meta(description="Which acknowledgement to wait for: see docs/how-to/rest.md.")] = (
        AcksName.LEADER
    )
    encoding: Annotated[Encoding, Meta(description="Encoding of values.")] = Encoding.JSON
    key_encoding: Annotated[Encoding, Meta(description="Encoding of keys.")] = Encoding.STRING


class RecordResult(Answer, omit_defaults=True):
    """The position of one record, or its error; in the order of the request."""

    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    error: Problem | UnsetType = UNSET


class ProduceResults(Answer):
    written: int
    failed: int
    results: list[RecordResult]


class RecordShape(Answer):
    """A record; `encoding` is that of its value, `key_encoding` that of its key."""

    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    encoding: Encoding
    key_encoding: Encoding
    headers: list[HeaderShape]
    topic: str | UnsetType = UNSET


class Reading(Query):
    encoding: Annotated[
        Encoding, Meta(description="Preferred encoding of values; a value that it cannot represent has another one.")
    ] = Encoding.JSON
    key_encoding: Annotated[Encoding, Meta(description="Preferred encoding of keys.")] = Encoding.STRING
    isolation: IsolationName = IsolationName.COMMITTED


class ReadQuery(Reading):
    """The start is one of `offset`, `timestamp` and `position`; the earliest record by default."""

    offset: Offset | None = None
    timestamp: TimeMs | None = None
    position: Position | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000, description="Maximum number of records in the response.")] = 100
    bytes_max: Annotated[int, Meta(ge=1, le=16 << 20, description="Approximate number of bytes to read.")] = 1 << 20
    wait_ms: WaitMs = 0


class Records(Answer):
    """`next_offset` is the offset for the next request."""

    records: list[RecordShape]
    next_offset: int
    end_offset: int


class TailQuery(Reading):
    position: Position = Position.LATEST
    partition: Annotated[Number, Meta(description="Only this partition.")] | None = None


class DeleteRecordsQuery(Query):
    before_offset: (
        Annotated[Offset, Meta(description="The first offset to keep; by default all records are deleted.")] | None
    ) = None


class RecordsDeleted(Answer):
    start_offset: int


# --- groups ---------------------------------------------------------------------------------------------------------


class PartitionName(msgspec.Struct):
    topic: str
    partition: int


class GroupSummary(Answer):
    name: str
    state: str
    members: int
    kind: str


class GroupPage(Answer):
    groups: list[GroupSummary]
    next_page_token: str | None


class MemberDescription(Answer):
    id: str
    instance: str
    client_id: str
    host: str
    partitions: list[PartitionName]


class GroupPosition(Answer):
    """Committed offset and lag of the group in one partition; an unknown lag is null."""

    topic: str
    partition: int
    offset: int | None
    end_offset: int
    lag: int | None
    lag_ms: int | None
    member: str
    metadata: str


class GroupDescription(Answer):
    name: str
    state: str
    kind: str
    assignor: str
    generation: int
    lag: int
    members: list[MemberDescription]
    positions: list[GroupPosition]


class OffsetToSet(Body):
    topic: str
    partition: Number
    offset: Offset
    metadata: str = ""


class GroupReset(Body):
    """The new offsets of a group without members: by position, by timestamp, or for each partition."""

    topics: list[str] = []
    position: Position | None = None
    timestamp: TimeMs | None = None
    offsets: list[OffsetToSet] = []
    validate_only: bool = False


class OffsetResult(Answer, omit_defaults=True):
    topic: str
    partition: int
    offset: int
    error: Problem | UnsetType = UNSET


class OffsetResults(Answer):
    offsets: list[OffsetResult]


class NewConsumer(Body):
    """A member of a group that polls over HTTP."""

    topics: Annotated[list[TopicName], Meta(min_length=1)]
    position: Annotated[Position, Meta(description="Start position without a committed offset.")] = Position.LATEST
    session_timeout_ms: Annotated[int, Meta(ge=1_000, le=1_800_000)] = 30_000
    instance: str = ""


class ConsumerDescription(Answer):
    id: str
    group: str
    topics: list[str]
    generation: int
    partitions: list[PartitionName]


class PollQuery(Reading):
    limit: Annotated[int, Meta(ge=1, le=10_000, description="Maximum number of records in the response.")] = 500
    wait_ms: WaitMs = 0


class Polled(Answer):
    records: list[RecordShape]


class OffsetsToCommit(Body):
    """Offsets to commit, each the next one to read; by default those of all polled records."""

    offsets: list[OffsetToSet] = []


# --- the cluster ----------------------------------------------------------------------------------------------------


class BrokerDescription(Answer):
    id: int
    host: str
    port: int
    version: str
    controller: bool
    rack: str = ""
    live: bool = True
    """Whether it may lead; if not, it is fenced or has not joined yet."""
    draining: bool = False
    """Whether it is about to stop."""


class Brokers(Answer):
    brokers: list[BrokerDescription]


class ClusterDescription(Answer):
    id: str
    controller: int
    brokers: int
    topics: int
    partitions: int
    groups: int
    offline_partitions: int
    """Without a leader; internal ones too."""
    under_replicated_partitions: int
    """With fewer in-sync replicas than replicas; internal ones too."""
    under_min_isr_partitions: int
    """With so few that acks=all is refused; internal ones too."""


class TransactionDescription(Answer):
    id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    began_at: int
    partitions: list[PartitionName]
    groups: list[str]


class TransactionPage(Answer):
    transactions: list[TransactionDescription]
    next_page_token: str | None


# --- health and metrics ----------------------------------------------------------------------------------------------


class Probe(Answer):
    status: str


class Health(Answer):
    """`status` is starting, ok, degraded or stopping; `problems` lists the reasons."""

    status: str
    version: str
    uptime_s: float
    broker: int
    cluster: str
    topics: int
    partitions: int
    offline_partitions: list[str]
    connections: int
    problems: list[str]


class Limitation(Answer):
    """A bottleneck of the broker: resource, usage, and what to do about it."""

    what: str
    severity: str
    text: str
    advice: str
    value: float


class Diagnosis(Answer):
    """The current bottlenecks of the broker, worst first; empty if there is none."""

    window_s: float
    limits: list[Limitation]
