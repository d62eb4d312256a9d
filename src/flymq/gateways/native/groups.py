"""Consumer groups: membership, committed offsets, administration."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from flymq.broker.safety import Safe, wait_safe
from flymq.broker.service.groups import NO_OFFSET, Committer, GroupPosition, NewOffset, OffsetValue, WantedMember
from flymq.gateways.connection import AnswerLater
from flymq.gateways.native.connection import NativeConnection
from flymq.host.time_slices import TimeSlice
from flymq.model.errors import FlyMQError, RequestTooLarge
from flymq.model.names import TopicPartition, by_topic
from flymq.wire.native.messages import groups as wire
from flymq.wire.native.messages.fields import Failure, TopicPartitions
from flymq.wire.native.messages.records import OffsetQuery
from flymq.wire.native.messages.session import Done

PARTITIONS_MAX = 10_000
"""Maximum number of partitions in the requests of one member."""

# --- membership -----------------------------------------------------------------------------------------------------


async def subscribe(connection: NativeConnection, request: wire.Subscribe) -> wire.SubscribeAnswer:
    groups = connection.service.groups
    member = WantedMember(
        list(dict.fromkeys(request.topics)),
        _flatten(request.owned),
        bytes(request.user_data),
        request.assignors,
        request.member,
        request.instance,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
    )
    joined = await groups.subscribe(connection.caller, request.group, member)
    return wire.SubscribeAnswer(
        member=joined.member_id,
        generation=joined.generation,
        assignor=joined.protocol,
        assigns=joined.assigns,
        members=[
            wire.GroupMember(each.member_id, each.instance, each.topics, to_topics(each.owned), each.user_data)
            for each in groups.subscribed(joined)
        ],
    )


async def sync(connection: NativeConnection, request: wire.Sync) -> wire.SyncAnswer:
    assignments = {entry.member: _flatten(entry.partitions) for entry in request.assignments}
    member = Committer(request.member, request.generation)
    assigned = await connection.service.groups.sync_partitions(connection.caller, request.group, member, assignments)
    return wire.SyncAnswer(partitions=to_topics(assigned))


def heartbeat(connection: NativeConnection, request: wire.Heartbeat) -> Done:
    member = Committer(request.member, request.generation)
    connection.service.groups.heartbeat(connection.caller, request.group, member)
    return Done()


def leave(connection: NativeConnection, request: wire.Leave) -> Done:
    connection.service.groups.leave(connection.caller, request.group, request.member)
    return Done()


# --- offsets --------------------------------------------------------------------------------------------------------


def commit(connection: NativeConnection, request: wire.Commit) -> wire.CommitAnswer | AnswerLater:
    errors, safe = connection.service.groups.commit(
        connection.caller, request.group, Committer(request.member, request.generation), to_offsets(request.offsets)
    )
    answer = commit_answer(request.offsets, errors)
    return answer if safe is None else AnswerLater(safe, lambda _: answer)


def to_offsets(offsets: Iterable[wire.OffsetToCommit]) -> dict[TopicPartition, NewOffset]:
    return {
        TopicPartition(part.topic, part.partition): NewOffset(part.offset, part.leader_epoch, part.metadata)
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
) -> wire.FetchOffsetsAnswer | AnswerLater | Coroutine[Any, Any, wire.FetchOffsetsAnswer]:
    names = None
    if request.partitions is not None:
        names = [TopicPartition(part.topic, part.partition) for part in request.partitions]
    if request.require_stable and not connection.service.groups.is_stable(connection.caller, request.group, names):
        return _fetch_stable_offsets(connection, request.group, names)
    answer, safe = _fetch_offsets(connection, request.group, names)
    return answer if safe is None else AnswerLater(safe, lambda _: answer)


async def _fetch_stable_offsets(
    connection: NativeConnection, group: str, names: list[TopicPartition] | None
) -> wire.FetchOffsetsAnswer:
    await connection.service.groups.until_stable(connection.caller, group, names)
    answer, safe = _fetch_offsets(connection, group, names)
    await wait_safe(safe)
    return answer


def _fetch_offsets(
    connection: NativeConnection, group: str, names: list[TopicPartition] | None
) -> tuple[wire.FetchOffsetsAnswer, Safe]:
    committed, safe = connection.service.groups.committed(connection.caller, group)
    wanted = sorted(committed) if names is None else names
    return wire.FetchOffsetsAnswer(partitions=[_committed(name, committed.get(name)) for name in wanted]), safe


def _committed(name: TopicPartition, value: OffsetValue | None) -> wire.CommittedOffset:
    if value is None:
        return wire.CommittedOffset(*name)
    return wire.CommittedOffset(*name, value.offset, value.leader_epoch, value.metadata)


# --- administration -------------------------------------------------------------------------------------------------


def list_groups(connection: NativeConnection, _request: wire.ListGroups) -> wire.ListGroupsAnswer:
    return wire.ListGroupsAnswer(
        groups=[
            wire.GroupSummary(group.name, group.state.value, group.members, group.kind)
            for group in connection.service.groups.all(connection.caller)
        ]
    )


async def describe_group(connection: NativeConnection, request: wire.DescribeGroup) -> wire.DescribeGroupAnswer:
    group = await connection.service.groups.describe_with_lag(connection.caller, request.group)
    return wire.DescribeGroupAnswer(
        group=group.name,
        state=group.state.value,
        assignor=group.assignor,
        generation=group.generation,
        members=[
            wire.MemberDescription(
                member.member_id, member.instance, member.client_id, member.host, to_topics(member.assignment)
            )
            for member in group.members
        ],
        positions=[_position(position) for position in group.positions],
    )


def _position(position: GroupPosition) -> wire.GroupPosition:
    committed, lag = position.committed, position.lag
    return wire.GroupPosition(
        *position.name,
        NO_OFFSET if committed is None else committed.offset,
        lag.end_offset,
        lag.records,
        lag.ms,
        position.reader,
        "" if committed is None else committed.metadata,
    )


def delete_group(connection: NativeConnection, request: wire.DeleteGroup) -> Done | AnswerLater:
    safe = connection.service.groups.delete(connection.caller, request.group)
    return Done() if safe is None else AnswerLater(safe, lambda _: Done())


async def reset_offsets(connection: NativeConnection, request: wire.ResetOffsets) -> wire.ResetOffsetsAnswer:
    """Reset the offsets of a group without members to positions, timestamps or offsets."""
    groups = connection.service.groups
    groups.check_empty(connection.caller, request.group)
    turn = TimeSlice()
    parts = []
    for query in request.partitions:
        parts.append(await _find_reset(connection, query))
        await turn.yield_if_over()
    for part in request.offsets:
        parts.append(await _check_reset(connection, part))
        await turn.yield_if_over()
    targets = {
        TopicPartition(part.topic, part.partition): NewOffset(part.offset, part.leader_epoch, part.metadata)
        for part in parts
        if part.error is None
    }
    if targets and not request.validate_only:
        groups.check_empty(connection.caller, request.group)  # a member may have come while records were searched
        _, safe = groups.commit(connection.caller, request.group, Committer(), targets)
        await wait_safe(safe)
    return wire.ResetOffsetsAnswer(partitions=parts)


async def _find_reset(connection: NativeConnection, query: OffsetQuery) -> wire.CommittedOffset:
    name = TopicPartition(query.topic, query.partition)
    try:
        offset, leader_epoch = await connection.service.groups.find_reset(connection.caller, name, query.at)
        return wire.CommittedOffset(*name, offset, leader_epoch)
    except FlyMQError as error:
        return wire.CommittedOffset(*name, error=Failure.of(error))


async def _check_reset(connection: NativeConnection, part: wire.OffsetToCommit) -> wire.CommittedOffset:
    name = TopicPartition(part.topic, part.partition)
    try:
        await connection.service.groups.check_offset(connection.caller, name, part.offset)
        return wire.CommittedOffset(*name, part.offset, part.leader_epoch, part.metadata)
    except FlyMQError as error:
        return wire.CommittedOffset(*name, error=Failure.of(error))


# --- coordinators ---------------------------------------------------------------------------------------------------


def find_coordinator(connection: NativeConnection, request: wire.FindCoordinator) -> wire.FindCoordinatorAnswer:
    found = connection.service.coordinators.find(connection.caller, request.kind, request.key, connection.local_address)
    return wire.FindCoordinatorAnswer(broker=found.broker_id, host=found.host, port=found.port)


# --- shapes ---------------------------------------------------------------------------------------------------------


def to_topics(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    return [TopicPartitions(topic, numbers) for topic, numbers in by_topic(partitions).items()]


def _flatten(topics: Sequence[TopicPartitions]) -> list[TopicPartition]:
    if sum(len(entry.partitions) for entry in topics) > PARTITIONS_MAX:
        raise RequestTooLarge(f"more than {PARTITIONS_MAX} partitions of one member", hint="Start more members.")
    return [TopicPartition(entry.topic, number) for entry in topics for number in entry.partitions]
