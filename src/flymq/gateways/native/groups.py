"""Consumer groups: membership, committed offsets, administration."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from flymq.broker.coordinators.groups import NO_OFFSET, Committer, Joined
from flymq.coordination.entries import OffsetValue
from flymq.coordination.group import Join
from flymq.coordination.subscriptions import (
    Subscription,
    by_topic,
    encode_assignment,
    encode_subscription,
    parse_assignment,
    understand,
)
from flymq.gateways.native.connection import NativeConnection
from flymq.gateways.native.records import find_offset
from flymq.gateways.native.waiting import Later, when_done
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError, OffsetOutOfRange
from flymq.model.names import TopicPartition
from flymq.wire.native.messages import groups as wire
from flymq.wire.native.messages.fields import Failure, TopicPartitions
from flymq.wire.native.messages.records import OffsetQuery
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
        wanted = understand(member.metadata(joined.protocol))
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


def fetch_offsets(
    connection: NativeConnection, request: wire.FetchOffsets
) -> wire.FetchOffsetsAnswer | Coroutine[Any, Any, wire.FetchOffsetsAnswer]:
    names = None
    if request.partitions is not None:
        names = [TopicPartition(part.topic, part.partition) for part in request.partitions]
    if request.require_stable and not connection.broker.groups.is_stable(request.group, names):
        return _fetch_stable_offsets(connection, request.group, names)
    return _fetch_offsets(connection, request.group, names)


async def _fetch_stable_offsets(
    connection: NativeConnection, group: str, names: list[TopicPartition] | None
) -> wire.FetchOffsetsAnswer:
    await connection.broker.groups.until_stable(group, names)
    return _fetch_offsets(connection, group, names)


def _fetch_offsets(
    connection: NativeConnection, group: str, names: list[TopicPartition] | None
) -> wire.FetchOffsetsAnswer:
    committed = connection.broker.groups.committed(group)
    wanted = sorted(committed) if names is None else names
    return wire.FetchOffsetsAnswer(partitions=[_committed(name, committed.get(name)) for name in wanted])


def _committed(name: TopicPartition, value: OffsetValue | None) -> wire.CommittedOffset:
    if value is None:
        return wire.CommittedOffset(*name)
    return wire.CommittedOffset(*name, value.offset, value.leader_epoch, value.metadata)


# --- administration -------------------------------------------------------------------------------------------------


def list_groups(connection: NativeConnection, _request: wire.ListGroups) -> wire.ListGroupsAnswer:
    return wire.ListGroupsAnswer(
        groups=[
            wire.GroupSummary(group.name, group.state.value, len(group.members), group.kind)
            for group in connection.broker.groups.list()
        ]
    )


def describe_group(connection: NativeConnection, request: wire.DescribeGroup) -> wire.DescribeGroupAnswer:
    group = connection.broker.groups.get(request.group)
    shares = group.shares()
    readers = {partition: name for name, share in shares.items() for partition in share}
    return wire.DescribeGroupAnswer(
        group=group.name,
        state=group.state.value,
        assignor=group.assignor,
        generation=group.generation,
        members=[
            wire.MemberDescription(
                name, member.value.instance, member.value.client_id, member.value.host, to_topics(shares[name])
            )
            for name, member in group.members.items()
        ],
        positions=[
            _position(connection, partition, group.offsets.committed.get(partition), readers.get(partition, ""))
            for partition in sorted(readers.keys() | group.offsets.committed.keys())
        ],
    )


def _position(
    connection: NativeConnection, name: TopicPartition, committed: OffsetValue | None, reader: str
) -> wire.GroupPosition:
    offset = NO_OFFSET if committed is None else committed.offset
    lag = connection.broker.groups.lag(name, offset)
    metadata = "" if committed is None else committed.metadata
    return wire.GroupPosition(*name, offset, lag.end_offset, lag.records, lag.ms, reader, metadata)


def delete_group(connection: NativeConnection, request: wire.DeleteGroup) -> Done | Later:
    durable = connection.broker.groups.delete(request.group)
    return Done() if durable is None else when_done([durable], Done())


def reset_offsets(connection: NativeConnection, request: wire.ResetOffsets) -> wire.ResetOffsetsAnswer | Later:
    """Move a group without members to positions, times or offsets."""
    groups = connection.broker.groups
    groups.check_empty(request.group)
    parts = [_find_reset(connection, query) for query in request.partitions]
    parts += [_check_reset(connection, part) for part in request.offsets]
    answer = wire.ResetOffsetsAnswer(partitions=parts)
    now_ms = connection.broker.clock.now_ms()
    targets = {
        TopicPartition(part.topic, part.partition): OffsetValue(part.offset, part.leader_epoch, part.metadata, now_ms)
        for part in parts
        if part.error is None
    }
    if request.validate_only or not targets:
        return answer
    _, durable = groups.commit(request.group, Committer(), targets)
    return answer if durable is None else when_done([durable], answer)


def _find_reset(connection: NativeConnection, query: OffsetQuery) -> wire.CommittedOffset:
    try:
        partition = connection.broker.topics.partition(TopicPartition(query.topic, query.partition))
        found = find_offset(partition, query.at, Isolation.READ_COMMITTED)
        offset = partition.last_stable_offset if found is None else found.offset
        return wire.CommittedOffset(query.topic, query.partition, offset, partition.leader_epoch)
    except FlyMQError as error:
        return wire.CommittedOffset(query.topic, query.partition, error=Failure.of(error))


def _check_reset(connection: NativeConnection, part: wire.OffsetToCommit) -> wire.CommittedOffset:
    try:
        partition = connection.broker.topics.partition(TopicPartition(part.topic, part.partition))
        if not partition.log.start_offset <= part.offset <= partition.high_watermark:
            raise OffsetOutOfRange(
                f"{partition.name} holds the offsets {partition.log.start_offset} to {partition.high_watermark}"
            )
        return wire.CommittedOffset(part.topic, part.partition, part.offset, part.leader_epoch, part.metadata)
    except FlyMQError as error:
        return wire.CommittedOffset(part.topic, part.partition, error=Failure.of(error))


# --- shapes ---------------------------------------------------------------------------------------------------------


def to_topics(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    return [TopicPartitions(topic, numbers) for topic, numbers in by_topic(partitions).items()]


def _flatten(topics: Iterable[TopicPartitions]) -> Iterable[TopicPartition]:
    return (TopicPartition(entry.topic, number) for entry in topics for number in entry.partitions)
