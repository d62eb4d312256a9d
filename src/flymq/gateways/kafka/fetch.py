"""Fetch: batches of several partitions, now or when enough is available. They are sent as slices of the logs."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from flymq.broker.service.records import Fetched, FetchFrom, FetchQuery, PartitionRead, View
from flymq.gateways.connection import AnswerLater
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.current_leader import NOT_LED, CurrentLeaders
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.fetch_session import (
    FINAL_EPOCH,
    FULL_EPOCH,
    PARTITIONS_MAX,
    FetchSession,
    TopicKey,
    Wanted,
    distinct,
    next_session,
)
from flymq.gateways.kafka.internal_topics import own_name
from flymq.gateways.pieces import ELEMENTS_AT_ONCE
from flymq.host.time_slices import TimeSlice
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.wire.kafka.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_SESSIONS_FROM = 7
_LEADERS_FROM = 16


def fetch(
    connection: KafkaConnection, request: FetchRequest, version: int
) -> FetchResponse | AnswerLater | Coroutine[Any, Any, FetchResponse]:
    opened = _open(connection, request, version)
    if isinstance(opened, FetchResponse):
        return opened
    if len(opened.wanted) > ELEMENTS_AT_ONCE:
        connection.begin_fetch(len(opened.wanted))
        return _fetch_many(connection, _limits(request, opened), opened, request.rack_id)
    asked = _Asked(request.rack_id)
    asked.add(connection, opened.wanted)
    fetched = connection.service.records.fetch(connection.caller, asked.complete(_limits(request, opened)))
    if isinstance(fetched, Fetched):
        return _respond(connection, opened, asked, fetched)
    return AnswerLater(fetched, lambda fetched: _respond(connection, opened, asked, fetched))


async def _fetch_many(connection: KafkaConnection, query: FetchQuery, opened: _Opened, rack: str) -> FetchResponse:
    """Fetch from many partitions, so that other requests are served in between."""
    try:
        return await _fetch_in_turns(connection, query, opened, rack)
    finally:
        connection.end_fetch(len(opened.wanted))


async def _fetch_in_turns(connection: KafkaConnection, query: FetchQuery, opened: _Opened, rack: str) -> FetchResponse:
    asked = _Asked(rack)
    turn = TimeSlice()
    parts = [slice(at, at + ELEMENTS_AT_ONCE) for at in range(0, len(opened.wanted), ELEMENTS_AT_ONCE)]
    for part in parts:
        asked.add(connection, opened.wanted[part])
        await turn.yield_if_over()
    fetched = connection.service.records.fetch(connection.caller, asked.complete(query))
    if not isinstance(fetched, Fetched):
        fetched = await fetched
    answered = _Answered(opened, fetched)
    for part in parts:
        answered.add(opened.wanted[part], asked)
        await turn.yield_if_over()
    return answered.response(connection)


@dataclass(slots=True)
class _Opened:
    """A request after its fetch session was applied."""

    wanted: Sequence[Wanted]
    session: FetchSession | None = None
    is_incremental: bool = False
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    names_leaders: bool = False
    """Whether the client understands who leads what this broker does not."""


def _open(connection: KafkaConnection, request: FetchRequest, version: int) -> _Opened | FetchResponse:
    isolation = Isolation(request.isolation_level == Isolation.READ_COMMITTED)
    names_leaders = version >= _LEADERS_FROM
    known = connection.fetch_session
    if version < _SESSIONS_FROM or request.session_epoch == FINAL_EPOCH:
        connection.fetch_session = None
        return _Opened(distinct(request.topics), isolation=isolation, names_leaders=names_leaders)
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
    if len(session.partitions) > PARTITIONS_MAX:
        connection.fetch_session = None
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return _Opened(list(session.partitions.values()), session, is_incremental, isolation, names_leaders)


class _Asked:
    """The partitions to read, and the errors of the others."""

    def __init__(self, rack: str) -> None:
        """`rack`: that of the consumer; empty if it has none."""
        self.found: list[FetchFrom] = []
        self.refused: dict[tuple[TopicKey, int], FlyMQError] = {}
        self.sent_on: dict[tuple[TopicKey, int], int] = {}
        """To brokers that are nearer to the consumer (KIP-392)."""
        self._rack = rack

    def add(self, connection: KafkaConnection, some: Sequence[Wanted]) -> None:
        service, caller = connection.service, connection.caller
        checked = None
        for wanted in some:
            part, topic = wanted.request, wanted.topic
            try:
                if isinstance(topic, bytes):
                    topic = service.topics.get_by_id(caller, topic).name
                else:
                    topic = own_name(topic)
                if topic != checked:  # partitions of a topic are adjacent
                    service.records.check_topic_readable(caller, topic)
                    checked = topic
                name = TopicPartition(topic, part.partition)
                if self._rack:
                    nearer = service.records.nearer_replica(caller, name, part.fetch_offset, self._rack)
                    if nearer is not None:
                        self.sent_on[wanted.key] = nearer
                        continue
                found = FetchFrom(name, part.fetch_offset, part.partition_max_bytes, part.current_leader_epoch)
                self.found.append(found)
            except FlyMQError as error:
                service.accounts.failed(caller, error)
                self.refused[wanted.key] = error.with_traceback(None)

    def complete(self, query: FetchQuery) -> FetchQuery:
        query.partitions = self.found
        if self.refused or self.sent_on:
            query.wait_ms_max = 0
        return query


def _limits(request: FetchRequest, opened: _Opened) -> FetchQuery:
    """Return a query that has no partitions yet."""
    return FetchQuery(
        (),
        bytes_min=request.min_bytes,
        bytes_max=max(0, request.max_bytes),
        wait_ms_max=request.max_wait_ms,
        view=View.of(opened.isolation),
        from_followers=bool(request.rack_id),
    )


def _respond(connection: KafkaConnection, opened: _Opened, asked: _Asked, fetched: Fetched) -> FetchResponse:
    answered = _Answered(opened, fetched)
    answered.add(opened.wanted, asked)
    return answered.response(connection)


class _Answered:
    """The response, as it is built."""

    def __init__(self, opened: _Opened, fetched: Fetched) -> None:
        self._opened = opened
        self._throttle_ms = fetched.throttle_ms
        self._reads = iter(fetched.reads)
        self._topics: dict[TopicKey, FetchableTopicResponse] = {}
        self._not_led: list[tuple[TopicKey, PartitionData]] = []

    def add(self, some: Sequence[Wanted], asked: _Asked) -> None:
        opened, refused = self._opened, asked.refused
        session = opened.session
        for wanted in some:
            if (nearer := asked.sent_on.get(wanted.key)) is not None:
                self._topic(wanted).partitions.append(
                    PartitionData(wanted.request.partition, 0, -1, preferred_read_replica=nearer, records=b"")
                )
                continue
            error = refused.get(wanted.key) if refused else None
            read = next(self._reads) if error is None else PartitionRead(TopicPartition("", 0), error=error)
            if opened.is_incremental and not wanted.is_news(read):
                continue
            if session is not None:
                session.told(wanted, read)
            part = _partition(wanted.request.partition, read, opened.isolation)
            self._topic(wanted).partitions.append(part)
            if read.error is not None and part.error_code in NOT_LED:
                self._not_led.append((wanted.topic, part))

    def _topic(self, wanted: Wanted) -> FetchableTopicResponse:
        topic = self._topics.get(wanted.topic)
        if topic is None:
            topic = self._topics[wanted.topic] = _topic(wanted.topic)
        return topic

    def response(self, connection: KafkaConnection) -> FetchResponse:
        if self._throttle_ms:
            connection.throttle(self._throttle_ms)
        session = self._opened.session
        session_id = 0 if session is None else session.session_id
        response = FetchResponse(self._throttle_ms, ErrorCode.NONE, session_id, [*self._topics.values()])
        if self._not_led and self._opened.names_leaders:
            self._name_leaders(connection, response)
        return response

    def _name_leaders(self, connection: KafkaConnection, response: FetchResponse) -> None:
        leaders, topics, caller = CurrentLeaders(connection), connection.service.topics, connection.caller
        for key, part in self._not_led:
            known = topics.find_by_id(caller, key) if isinstance(key, bytes) else topics.find(caller, own_name(key))
            if (leader := leaders.find(known, part.partition_index)) is not None:
                part.current_leader = LeaderIdAndEpoch(*leader)
        response.node_endpoints = [NodeEndpoint(*each) for each in leaders.endpoints]


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
