"""Consumer groups: list, describe, reset and delete them."""

from __future__ import annotations

from collections.abc import Iterable

from flymq.broker.safety import wait_safe
from flymq.broker.service.groups import UNKNOWN, Committer, GroupPosition, NewOffset
from flymq.gateways.rest.handlers.read import POSITIONS
from flymq.gateways.rest.http.problems import Problem, to_problem
from flymq.gateways.rest.schema import shapes
from flymq.gateways.rest.schema.operations import Call
from flymq.gateways.rest.schema.paging import take_page
from flymq.gateways.rest.schema.shapes import OffsetResult, PartitionName
from flymq.model.errors import FlyMQError, InvalidRequest
from flymq.model.names import TopicPartition


async def list_groups(call: Call) -> shapes.GroupPage:
    """List consumer groups."""
    taken, token = take_page(call.service.groups.all(call.caller), lambda group: group.name, call.query)
    return shapes.GroupPage(
        [shapes.GroupSummary(group.name, group.state.value, group.members, group.kind) for group in taken], token
    )


async def describe_group(call: Call) -> shapes.GroupDescription:
    """Describe a group: its members, and the lag of each partition."""
    group = await call.service.groups.describe_with_lag(call.caller, call.path["group"])
    positions = [_position(position) for position in group.positions]
    return shapes.GroupDescription(
        group.name,
        group.state.value,
        group.kind,
        group.assignor,
        group.generation,
        sum(position.lag or 0 for position in positions),
        [
            shapes.MemberDescription(
                member.member_id, member.instance, member.client_id, member.host, to_names(member.assignment)
            )
            for member in group.members
        ],
        positions,
    )


def _position(position: GroupPosition) -> shapes.GroupPosition:
    committed, lag = position.committed, position.lag
    return shapes.GroupPosition(
        position.name.topic,
        position.name.partition,
        None if committed is None else committed.offset,
        lag.end_offset,
        None if lag.records == UNKNOWN else lag.records,
        None if lag.ms == UNKNOWN else lag.ms,
        position.reader,
        "" if committed is None else committed.metadata,
    )


def to_names(partitions: Iterable[TopicPartition]) -> list[PartitionName]:
    return [PartitionName(*partition) for partition in partitions]


async def delete_group(call: Call) -> None:
    """Delete a group without members and its committed offsets."""
    await wait_safe(call.service.groups.delete(call.caller, call.path["group"]))


# --- reset ----------------------------------------------------------------------------------------------------------


async def reset_group(call: Call) -> shapes.OffsetResults:
    """Reset the offsets of a group without members to a position, a timestamp or offsets."""
    body: shapes.GroupReset = call.body
    group, groups = call.path["group"], call.service.groups
    groups.check_empty(call.caller, group)
    results = [await _check(call, wanted) for wanted in body.offsets]
    results += [await _find(call, name, body) for name in _partitions(call, body)]
    notes = {(wanted.topic, wanted.partition): wanted.metadata for wanted in body.offsets}
    targets = {
        TopicPartition(found.topic, found.partition): NewOffset(
            found.offset, metadata=notes.get((found.topic, found.partition), "")
        )
        for found in results
        if not isinstance(found.error, Problem)
    }
    if targets and not body.validate_only:
        groups.check_empty(call.caller, group)  # a member may have come while records were searched
        errors, safe = groups.commit(call.caller, group, Committer(), targets)
        for found in results:
            if (error := errors.get(TopicPartition(found.topic, found.partition))) is not None:
                found.error = to_problem(error)
        await wait_safe(safe)
    return shapes.OffsetResults(results)


def _partitions(call: Call, body: shapes.GroupReset) -> list[TopicPartition]:
    """Return the partitions of the given topics; without any, all for which the group has offsets."""
    if body.position is None and body.timestamp is None:
        if not body.offsets:
            raise InvalidRequest("the new offsets are missing", hint="Set position, timestamp or offsets.")
        return []
    if body.position is not None and body.timestamp is not None:
        raise InvalidRequest("position and timestamp are mutually exclusive", hint="Omit one of them.")
    if body.topics:
        topics = [call.service.topics.get(call.caller, name) for name in dict.fromkeys(body.topics)]
        return [TopicPartition(topic.name, number) for topic in topics for number in range(len(topic.partitions))]
    described = call.service.groups.describe(call.caller, call.path["group"])
    return [position.name for position in described.positions if position.committed is not None]


async def _find(call: Call, name: TopicPartition, body: shapes.GroupReset) -> OffsetResult:
    at = POSITIONS[body.position] if body.position is not None else body.timestamp
    assert at is not None, "position or timestamp is set"
    offset, _ = await call.service.groups.find_reset(call.caller, name, at)
    return OffsetResult(*name, offset)


async def _check(call: Call, wanted: shapes.OffsetToSet) -> OffsetResult:
    result = OffsetResult(wanted.topic, wanted.partition, wanted.offset)
    try:
        await call.service.groups.check_offset(
            call.caller, TopicPartition(wanted.topic, wanted.partition), wanted.offset
        )
    except FlyMQError as error:
        result.error = to_problem(error)
    return result
