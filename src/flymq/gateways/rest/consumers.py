"""Members of consumer groups that poll over HTTP: create one, poll, commit, delete it.

The broker is the member in the client's place: it keeps the position between two polls, tells the group that the
member lives, and joins again at once when the group is shared out anew. The client's sign of life is that it asks for
something: a consumer that is silent for its session timeout leaves the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from flymq.broker.coordinators.groups import Committer
from flymq.broker.replicas.fetching import FetchFrom, FetchQuery
from flymq.broker.service.service import Broker
from flymq.coordination.entries import OffsetValue
from flymq.coordination.group import Join
from flymq.coordination.subscriptions import Subscription, encode_subscription, parse_assignment
from flymq.gateways.rest import shapes
from flymq.gateways.rest.bodies import JSON
from flymq.gateways.rest.groups import to_names
from flymq.gateways.rest.operations import Call
from flymq.gateways.rest.problems import to_problem
from flymq.gateways.rest.reading import ISOLATIONS, at_position, fetch, pay, show_read
from flymq.gateways.rest.shapes import OffsetResult, Position, RecordShape
from flymq.model.errors import (
    ConsumerNotFound,
    FlyMQError,
    GroupFull,
    MemberFenced,
    RebalanceInProgress,
    StaleGeneration,
    UnknownMember,
)
from flymq.model.names import TopicPartition

CONSUMERS_MAX = 1_000
_ASSIGNOR = "range"
_POLL_BYTES = 1 << 20
_TURN_MS = 250  # a waiting poll looks at its group so often
_LOOK_S = 0.25


@dataclass(slots=True)
class Consumer:
    """One consumer, between two polls."""

    group: str
    topics: list[str]
    begin: Position
    session_timeout_ms: int
    instance: str
    host: str
    member_id: str = ""
    generation: int = -1
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """Next offset to read of each partition it was given."""
    last_asked_s: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Two polls of one consumer at a time would read the same records."""

    @property
    def committer(self) -> Committer:
        return Committer(self.member_id, self.generation, self.instance)

    async def join(self, broker: Broker) -> None:
        """Become part of the group's next generation, and take the positions it has committed."""
        wanted = encode_subscription(Subscription(self.topics, list(self.positions), b""))
        join = Join(
            ((_ASSIGNOR, wanted),),
            self.member_id,
            self.instance,
            "http",
            self.host,
            self.session_timeout_ms,
            self.session_timeout_ms,
            assigned_by_broker=True,
        )
        joined = await broker.groups.join(self.group, join)
        self.member_id, self.generation = joined.member_id, joined.generation
        share = parse_assignment(await broker.groups.sync(self.group, self.committer))
        committed = broker.groups.committed(self.group)
        self.positions = {name: self._start(broker, name, committed.get(name)) for name in share}

    def _start(self, broker: Broker, name: TopicPartition, committed: OffsetValue | None) -> int:
        """Return where to read: on from where it was in a partition it keeps, else where its group was."""
        if name in self.positions:
            return self.positions[name]
        partition = broker.topics.partition(name)
        if committed is not None and partition.log.start_offset <= committed.offset <= partition.high_watermark:
            return committed.offset
        return at_position(partition, self.begin)

    def lives(self, broker: Broker) -> bool:
        """Give the group a sign of life; False when it is being shared out anew, or has dropped this member."""
        try:
            broker.groups.heartbeat(self.group, self.committer)
        except (RebalanceInProgress, StaleGeneration, UnknownMember, MemberFenced):
            return False
        return True

    async def join_again(self, broker: Broker) -> None:
        while True:
            try:
                await self.join(broker)
            except RebalanceInProgress:
                continue  # somebody came between joining and the share
            return


class Consumers:
    """All consumers over HTTP."""

    def __init__(self) -> None:
        self._consumers: dict[tuple[str, str], Consumer] = {}

    def __len__(self) -> int:
        return len(self._consumers)

    def add(self, consumer: Consumer) -> None:
        self._consumers[consumer.group, consumer.member_id] = consumer

    def get(self, group: str, consumer_id: str) -> Consumer:
        consumer = self._consumers.get((group, consumer_id))
        if consumer is None:
            raise ConsumerNotFound(f"the group {group!r} has no consumer {consumer_id!r} over HTTP")
        return consumer

    def drop(self, consumer: Consumer) -> None:
        self._consumers.pop((consumer.group, consumer.member_id), None)

    async def run(self, broker: Broker) -> None:
        """Look after all of them, as a client of another protocol looks after itself."""
        while True:
            await asyncio.sleep(_LOOK_S)
            now_s = broker.clock.monotonic_s()
            for consumer in list(self._consumers.values()):
                if consumer.lock.locked():
                    continue  # a poll is under way, which does the same
                if now_s - consumer.last_asked_s > consumer.session_timeout_ms / 1000:
                    self.leave(broker, consumer)
                elif not consumer.lives(broker):
                    broker.tasks.spawn(f"join of {consumer.member_id}", self._join_again(broker, consumer))

    def leave(self, broker: Broker, consumer: Consumer) -> None:
        self.drop(consumer)
        with suppress(UnknownMember, MemberFenced):  # the group has dropped it already
            broker.groups.leave(consumer.group, consumer.member_id, instance=consumer.instance)

    async def _join_again(self, broker: Broker, consumer: Consumer) -> None:
        async with consumer.lock:
            try:
                await consumer.join_again(broker)
            except FlyMQError:
                self.drop(consumer)


# --- handlers -------------------------------------------------------------------------------------------------------


async def create_consumer(call: Call) -> Response:
    """Join a group as a consumer that polls over HTTP."""
    body: shapes.NewConsumer = call.body
    broker, consumers = call.broker, call.rest.consumers
    for topic in body.topics:
        await broker.admin.get_or_create(topic)
    if len(consumers) >= CONSUMERS_MAX:
        raise GroupFull(f"there are {CONSUMERS_MAX} consumers over HTTP", hint="Delete some first.")
    host = call.request.client.host if call.request.client else ""
    consumer = Consumer(call.path["group"], body.topics, body.position, body.session_timeout_ms, body.instance, host)
    await consumer.join_again(broker)
    consumer.last_asked_s = broker.clock.monotonic_s()
    consumers.add(consumer)
    path = f"/api/v1/groups/{quote(consumer.group, safe='')}/consumers/{quote(consumer.member_id, safe='')}"
    return Response(msgspec.json.encode(_describe(consumer)), 201, {"Location": path}, JSON)


async def describe_consumer(call: Call) -> shapes.ConsumerDescription:
    """Describe a consumer over HTTP: the partitions it was given."""
    return _describe(_find(call))


async def poll(call: Call) -> shapes.Polled:
    """Read the next records of a consumer. Nothing is committed by it."""
    query: shapes.PollQuery = call.query
    consumer = _find(call)
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + min(query.wait_ms, call.broker.fetch_limits.wait_ms_max) / 1000
    async with consumer.lock:
        while True:
            await _keep(call, consumer)
            left_ms = max(0, int((ends_s - loop.time()) * 1000))
            records = await _read(call, consumer, min(left_ms, _TURN_MS))
            if records or left_ms == 0 or not call.rest.observed.is_ready:
                return shapes.Polled(records)


async def commit(call: Call) -> shapes.OffsetResults:
    """Commit offsets for a consumer's group: those given, or all that was polled."""
    body: shapes.OffsetsToCommit = call.body
    consumer, now_ms = _find(call), call.broker.clock.now_ms()
    if body.offsets:
        offsets = {
            TopicPartition(each.topic, each.partition): OffsetValue(each.offset, -1, each.metadata, now_ms)
            for each in body.offsets
        }
    else:
        offsets = {name: OffsetValue(offset, -1, "", now_ms) for name, offset in consumer.positions.items()}
    errors, durable = _forget_if_gone(call, consumer, offsets)
    if durable is not None:
        await durable
    results = []
    for name, value in offsets.items():
        error = errors.get(name)
        results.append(OffsetResult(*name, value.offset))
        if error is not None:
            results[-1].error = to_problem(error)
    return shapes.OffsetResults(results)


async def delete_consumer(call: Call) -> None:
    """Leave the group."""
    consumer = _find(call)
    call.rest.consumers.leave(call.broker, consumer)


# --- within ---------------------------------------------------------------------------------------------------------


def _find(call: Call) -> Consumer:
    consumer = call.rest.consumers.get(call.path["group"], call.path["consumer"])
    consumer.last_asked_s = call.broker.clock.monotonic_s()
    return consumer


def _describe(consumer: Consumer) -> shapes.ConsumerDescription:
    return shapes.ConsumerDescription(
        consumer.member_id,
        consumer.group,
        consumer.topics,
        consumer.generation,
        to_names(sorted(consumer.positions)),
    )


async def _keep(call: Call, consumer: Consumer) -> None:
    consumer.last_asked_s = call.broker.clock.monotonic_s()
    try:
        if not consumer.lives(call.broker):
            await consumer.join_again(call.broker)
    except (UnknownMember, MemberFenced) as error:
        call.rest.consumers.drop(consumer)
        raise ConsumerNotFound(error.message) from None


def _forget_if_gone(
    call: Call, consumer: Consumer, offsets: Mapping[TopicPartition, OffsetValue]
) -> tuple[dict[TopicPartition, FlyMQError], asyncio.Future[None] | None]:
    try:
        return call.broker.groups.commit(consumer.group, consumer.committer, offsets)
    except (UnknownMember, MemberFenced) as error:
        call.rest.consumers.drop(consumer)
        raise ConsumerNotFound(error.message) from None


async def _read(call: Call, consumer: Consumer, wait_ms: int) -> list[RecordShape]:
    """Return the next records of the consumer's partitions, and move its positions behind them."""
    query: shapes.PollQuery = call.query
    if not consumer.positions:
        await asyncio.sleep(wait_ms / 1000)
        return []
    wanted = [FetchFrom(name, offset, _POLL_BYTES) for name, offset in consumer.positions.items()]
    reads = await fetch(
        call.broker,
        FetchQuery(wanted, bytes_max=_POLL_BYTES, wait_ms_max=wait_ms, isolation=ISOLATIONS[query.isolation]),
    )
    records: list[RecordShape] = []
    for read in reads:
        left = query.limit - len(records)
        if left <= 0:
            break
        shown, consumer.positions[read.name] = show_read(read, consumer.positions[read.name], query, left)
        for record in shown:
            record.topic = read.name.topic
        records += shown
        await pay(call, read.name.topic, len(shown), read.length)
    # The partition that was read first goes last, so that a full one does not keep the others waiting.
    first = next(iter(consumer.positions))
    consumer.positions[first] = consumer.positions.pop(first)
    return records
