"""Consumer groups: membership, committed offsets, administration."""

from __future__ import annotations

from collections.abc import Iterable

from flymq.broker.groups import Committer, Joined
from flymq.coordination.entries import OffsetValue
from flymq.coordination.group import Join
from flymq.coordination.subscriptions import (
    Subscription,
    by_topic,
    encode_assignment,
    encode_subscription,
    parse_assignment,
    parse_subscription,
)
from flymq.gateways.native.connection import NativeConnection
from flymq.gateways.native.waiting import Later, when_done
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.wire.native.messages import groups as wire
from flymq.wire.native.messages.fields import Failure, TopicPartitions
from flymq.wire.native.messages.session import Done

DEFAULT_ASSIGNOR = "range"


# --- membership -----------------------------------------------------------------------------------------------------


async def subscribe(connection: NativeConnection, request: wire.Subscribe) -> wire.SubscribeAnswer:
    subscription = Subscription(request.topics, list(_flatten(request.owned)), bytes(request.user_data))
    wanted = encode_subscription(subscription)
    join = Join(
        tuple((name, wanted) for name in request.assignors or [DEFAULT_ASSIGNOR]),
        request.member,
        request.instance,
        connection.client_id,
        connection.peer_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        assigned_by_broker=True,
    )
    joined = await connection.broker.groups.join(request.group, join)
    return wire.SubscribeAnswer(
        member=joined.member_id,
        generation=joined.generation,
        assignor=joined.protocol,
        assigns=joined.assigns,
        members=_members(joined),
    )


def _members(joined: Joined) -> list[wire.GroupMember]:
    """Return what the member that assigns needs to know of everybody."""
    found = []
    for member in joined.members:
        wanted = parse_subscription(member.metadata(joined.protocol))
        found.append(
            wire.GroupMember(
                member.member_id, member.instance, wanted.topics, to_topics(wanted.owned), wanted.user_data
            )
        )
    return found


async def sync(connection: NativeConnection, request: wire.Sync) -> wire.SyncAnswer:
    shares = {entry.member: encode_assignment(_flatten(entry.partitions)) for entry in request.assignments}
    member = Committer(request.member, request.generation)
    share = await connection.broker.groups.sync(request.group, member, shares)
    return wire.SyncAnswer(partitions=to_topics(parse_assignment(share)))


def heartbeat(connection: NativeConnection, request: wire.Heartbeat) -> Done:
    connection.broker.groups.heartbeat(request.group, Committer(request.member, request.generation))
    return Done()


def leave(connection: NativeConnection, request: wire.Leave) -> Done:
    connection.broker.groups.leave(request.group, request.member)
    return Done()


# --- offsets --------------------------------------------------------------------------------------------------------


def commit(connection: NativeConnection, request: wire.Commit) -> wire.CommitAnswer | Later:
    offsets = to_offsets(request.offsets, connection.broker.clock.now_ms())
    errors, durable = connection.broker.groups.commit(
        request.group, Committer(request.member, request.generation), offsets
    )
    answer = commit_answer(request.offsets, errors)
    return answer if durable is None else when_done([durable], answer)


def to_offsets(offsets: Iterable[wire.OffsetToCommit], now_ms: int) -> dict[TopicPartition, OffsetValue]:
    return {
        TopicPartition(part.topic, part.partition): OffsetValue(part.offset, part.leader_epoch, part.metadata, now_ms)
        for part in offsets
    }


def commit_answer(
    offsets: Iterable[wire.OffsetToCommit], errors: dict[TopicPartition, FlyMQError]
) -> wire.CommitAnswer:
    parts = []
    for part in offsets:
        error = errors.get(TopicPartition(part.topic, part.partition))
        parts.append(wire.OffsetCommitted(part.topic, part.partition, None if error is None else Failure.of(error)))
    return wire.CommitAnswer(partitions=parts)


def fetch_offsets(connection: NativeConnection, request: wire.FetchOffsets) -> wire.FetchOffsetsAnswer:
    committed = connection.broker.groups.committed(request.group)
    if request.partitions is None:
        names = sorted(committed)
    else:
        names = [TopicPartition(part.topic, part.partition) for part in request.partitions]
    return wire.FetchOffsetsAnswer(partitions=[_committed(name, committed.get(name)) for name in names])


def _committed(name: TopicPartition, value: OffsetValue | None) -> wire.CommittedOffset:
    if value is None:
        return wire.CommittedOffset(*name)
    return wire.CommittedOffset(*name, value.offset, value.leader_epoch, value.metadata)


# --- shapes ---------------------------------------------------------------------------------------------------------


def to_topics(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    return [TopicPartitions(topic, numbers) for topic, numbers in by_topic(partitions).items()]


def _flatten(topics: Iterable[TopicPartitions]) -> Iterable[TopicPartition]:
    return (TopicPartition(entry.topic, number) for entry in topics for number in entry.partitions)
