"""Fetch: batches of several partitions, now or when enough is available. They are sent as slices of the logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flymq.broker.service.records import Fetched, FetchFrom, FetchQuery, PartitionRead, View
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
    fetched = connection.service.records.fetch(connection.caller, query)
    if isinstance(fetched, Fetched):
        return _respond(connection, opened, refused, fetched)
    return AnswerLater(fetched, lambda fetched: _respond(connection, opened, refused, fetched))


@dataclass(slots=True)
class _Opened:
    """A request after its fetch session was applied."""

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
    """Return the partitions to read, and the errors of the others, by their position."""
    service, caller = connection.service, connection.caller
    found: list[FetchFrom] = []
    refused: dict[int, FlyMQError] = {}
    checked = None
    for at, each in enumerate(opened.wanted):
        part, topic = each.request, each.topic
        try:
            if isinstance(topic, bytes):
                topic = service.topics.get_by_id(caller, topic).name
            if topic != checked:  # partitions of a topic are adjacent
                service.records.check_topic_readable(caller, topic)
                checked = topic
            name = TopicPartition(topic, part.partition)
            found.append(FetchFrom(name, part.fetch_offset, part.partition_max_bytes, part.current_leader_epoch))
        except FlyMQError as error:
            service.accounts.failed(caller, error)
            refused[at] = error
    query = FetchQuery(
        found,
        bytes_min=request.min_bytes,
        bytes_max=max(0, request.max_bytes),
        wait_ms_max=0 if refused else request.max_wait_ms,
        view=View.of(opened.isolation),
    )
    return query, refused


def _respond(
    connection: KafkaConnection, opened: _Opened, refused: dict[int, FlyMQError], fetched: Fetched
) -> FetchResponse:
    session = opened.session
    topics: dict[TopicKey, FetchableTopicResponse] = {}
    found = iter(fetched.reads)
    for at, wanted in enumerate(opened.wanted):
        error = refused.get(at)
        read = next(found) if error is None else PartitionRead(TopicPartition("", 0), error=error)
        if opened.is_incremental and not wanted.is_news(read):
            continue
        if session is not None:
            session.told(wanted, read)
        topic = topics.get(wanted.topic)
        if topic is None:
            topic = topics[wanted.topic] = _topic(wanted.topic)
        topic.partitions.append(_partition(wanted.request.partition, read, opened.isolation))
    if fetched.throttle_ms:
        connection.throttle(fetched.throttle_ms)
    session_id = 0 if session is None else session.session_id
    return FetchResponse(fetched.throttle_ms, ErrorCode.NONE, session_id, [*topics.values()])


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
