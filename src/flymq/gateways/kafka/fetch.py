"""Fetch: batches of several partitions, now or when enough has come. They leave as slices of the logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flymq.broker.replicas.fetching import FetchFrom, FetchQuery, WaitingFetch
from flymq.broker.replicas.partition import PartitionRead
from flymq.gateways.connection import AnswerLater
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.fetch_session import (
    FINAL_EPOCH,
    FULL_EPOCH,
    FetchSession,
    TopicKey,
    Wanted,
    flatten,
    next_session,
)
from flymq.gateways.kafka.partitions import find_partition
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.wire.kafka.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

_SESSIONS_FROM = 7


def fetch(connection: KafkaConnection, request: FetchRequest, version: int) -> FetchResponse | AnswerLater:
    opened = _open(connection, request, version)
    if isinstance(opened, FetchResponse):
        return opened
    query, refused = _query(connection, request, opened)
    reads = connection.broker.topics.fetch(query)
    if isinstance(reads, WaitingFetch):
        return AnswerLater(reads, lambda found: _respond(connection, opened, refused, found))
    return _respond(connection, opened, refused, reads)


@dataclass(slots=True)
class _Opened:
    """What a request asks for, once its session is known."""

    wanted: Sequence[Wanted]
    session: FetchSession | None = None
    is_incremental: bool = False
    isolation: Isolation = Isolation.READ_UNCOMMITTED


def _open(connection: KafkaConnection, request: FetchRequest, version: int) -> _Opened | FetchResponse:
    isolation = Isolation(request.isolation_level == Isolation.READ_COMMITTED)
    known = connection.fetch_session
    if version < _SESSIONS_FROM or request.session_epoch == FINAL_EPOCH:
        connection.fetch_session = None
        return _Opened(list(flatten(request.topics)), isolation=isolation)
    is_incremental = request.session_epoch != FULL_EPOCH
    if not is_incremental:
        session = connection.fetch_session = next_session(known)
    elif known is None or known.session_id != request.session_id:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    elif known.epoch != request.session_epoch:
        return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    else:
        session = known
        session.advance()
    session.change(request.topics, request.forgotten_topics_data)
    return _Opened(list(session.partitions.values()), session, is_incremental, isolation)


def _query(
    connection: KafkaConnection, request: FetchRequest, opened: _Opened
) -> tuple[FetchQuery, dict[int, FlyMQError]]:
    """Return what is to be read, and what is wrong with the rest of what is wanted, by its place there."""
    topics, limits = connection.broker.topics, connection.broker.fetch_limits
    found: list[FetchFrom] = []
    refused: dict[int, FlyMQError] = {}
    for at, each in enumerate(opened.wanted):
        part = each.request
        try:
            partition = find_partition(topics, each.topic, part.partition, part.current_leader_epoch)
            found.append(FetchFrom(partition.name, part.fetch_offset, max(0, part.partition_max_bytes)))
        except FlyMQError as error:
            refused[at] = error
    query = FetchQuery(
        found,
        bytes_min=request.min_bytes,
        bytes_max=min(max(0, request.max_bytes), limits.bytes_max),
        wait_ms_max=0 if refused else min(request.max_wait_ms, limits.wait_ms_max),
        isolation=opened.isolation,
    )
    return query, refused


def _respond(
    connection: KafkaConnection, opened: _Opened, refused: dict[int, FlyMQError], reads: list[PartitionRead]
) -> FetchResponse:
    session = opened.session
    topics: dict[TopicKey, FetchableTopicResponse] = {}
    found = iter(reads)
    for at, wanted in enumerate(opened.wanted):
        error = refused.get(at)
        read = next(found) if error is None else PartitionRead(TopicPartition("", 0), error=error)
        if read.error is not None:
            connection.shared.requests.failed(connection.protocol, read.error.code)
        if opened.is_incremental and not wanted.is_news(read):
            continue
        if session is not None:
            session.told(wanted, read)
        topic = topics.get(wanted.topic)
        if topic is None:
            topic = topics[wanted.topic] = _topic(wanted.topic)
        topic.partitions.append(_partition(wanted.request.partition, read, opened.isolation))
    size = 0
    for read in reads:
        if read.length:
            size += read.length
            connection.broker.traffic.read(connection.protocol, read.name.topic, read.offsets, read.length)
    throttle_ms = connection.charge(connection.shared.fetch_quota, size)
    return FetchResponse(throttle_ms, ErrorCode.NONE, 0 if session is None else session.session_id, [*topics.values()])


def _topic(key: TopicKey) -> FetchableTopicResponse:
    return FetchableTopicResponse(topic=key) if isinstance(key, str) else FetchableTopicResponse(topic_id=key)


def _partition(number: int, read: PartitionRead, isolation: Isolation) -> PartitionData:
    aborted = None
    if isolation is Isolation.READ_COMMITTED:
        aborted = [AbortedTransaction(*transaction) for transaction in read.aborted]
    return PartitionData(
        number,
        code_of(read.error),
        read.high_watermark,
        read.last_stable_offset,
        read.start_offset,
        aborted_transactions=aborted,
        records=b"" if read.slice is None else read.slice,
    )
