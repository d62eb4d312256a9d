"""Consumer groups: who they are, how far they are, and how to move them."""

from __future__ import annotations

from collections.abc import Iterable

from flymq.broker.coordinators.groups import NO_OFFSET, Committer
from flymq.broker.replicas.lag import UNKNOWN
from flymq.broker.replicas.partition import Partition
from flymq.coordination.entries import OffsetValue
from flymq.gateways.rest import shapes
from flymq.gateways.rest.operations import Call
from flymq.gateways.rest.paging import take_page
from flymq.gateways.rest.problems import Problem, to_problem
from flymq.gateways.rest.reading import at_position
from flymq.gateways.rest.shapes import OffsetResult, PartitionName
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError, InvalidRequest, OffsetOutOfRange
from flymq.model.names import TopicPartition


async def list_groups(call: Call) -> shapes.GroupPage:
    """List consumer groups."""
    taken, token = take_page(call.broker.groups.list(), lambda group: group.name, call.query)
    return shapes.GroupPage(
        [shapes.GroupSummary(group.name, group.state.value, len(group.members), group.kind) for group in taken], token
    )


async def describe_group(call: Call) -> shapes.GroupDescription:
    """Describe a group: its members, and how far each partition is behind."""
    group = call.broker.groups.get(call.path["group"])
    shares = group.shares()
    readers = {partition: name for name, share in shares.items() for partition in share}
    committed = group.offsets.committed
    positions = [
        _position(call, partition, committed.get(partition), readers.get(partition, ""))
        for partition in sorted(readers.keys() | committed.keys())
    ]
    return shapes.GroupDescription(
        group.name,
        group.state.value,
        group.kind,
        group.assignor,
        group.generation,
        sum(position.lag or 0 for position in positions),
        [
            shapes.MemberDescription(
                name, member.value.instance, member.value.client_id, member.value.host, to_names(shares[name])
            )
            for name, member in group.members.items()
        ],
        positions,
    )


def _position(call: Call, name: TopicPartition, committed: OffsetValue | None, reader: str) -> shapes.GroupPosition:
    lag = call.broker.groups.lag(name, NO_OFFSET if committed is None else committed.offset)
    return shapes.GroupPosition(
        name.topic,
        name.partition,
        None if committed is None else committed.offset,
        lag.end_offset,
        None if lag.records == UNKNOWN else lag.records,
        None if lag.ms == UNKNOWN else lag.ms,
        reader,
        "" if committed is None else committed.metadata,
    )


def to_names(partitions: Iterable[TopicPartition]) -> list[PartitionName]:
    return [PartitionName(*partition) for partition in partitions]


async def delete_group(call: Call) -> None:
    """Delete a group without members, and its offsets."""
    durable = call.broker.groups.delete(call.path["group"])
    if durable is not None:
        await durable


# --- move -----------------------------------------------------------------------------------------------------------


async def reset_group(call: Call) -> shapes.OffsetResults:
    """Move a group without members to a position, a time or offsets."""
    body: shapes.GroupReset = call.body
    group, groups = call.path["group"], call.broker.groups
    groups.check_empty(group)
    results = [_check(call, wanted) for wanted in body.offsets]
    results += [_find(partition, body) for partition in _partitions(call, body)]
    now_ms = call.broker.clock.now_ms()
    notes = {(wanted.topic, wanted.partition): wanted.metadata for wanted in body.offsets}
    targets = {
        TopicPartition(found.topic, found.partition): OffsetValue(
            found.offset, -1, notes.get((found.topic, found.partition), ""), now_ms
        )
        for found in results
        if not isinstance(found.error, Problem)
    }
    if targets and not body.validate_only:
        errors, durable = groups.commit(group, Committer(), targets)
        for found in results:
            if (error := errors.get(TopicPartition(found.topic, found.partition))) is not None:
                found.error = to_problem(error)
        if durable is not None:
            await durable
    return shapes.OffsetResults(results)


def _partitions(call: Call, body: shapes.GroupReset) -> list[Partition]:
    """Return the partitions of the named topics; of all that the group has offsets for if none is named."""
    if body.position is None and body.timestamp is None:
        if not body.offsets:
            raise InvalidRequest("nothing says where to move the group", hint="Give position, timestamp or offsets.")
        return []
    if body.position is not None and body.timestamp is not None:
        raise InvalidRequest("give one of position and timestamp", hint="Leave the other out.")
    topics = call.broker.topics
    if body.topics:
        return [partition for name in dict.fromkeys(body.topics) for partition in topics.get(name).partitions]
    committed = call.broker.groups.get(call.path["group"]).offsets.committed
    return [topics.partition(name) for name in sorted(committed)]


def _find(partition: Partition, body: shapes.GroupReset) -> OffsetResult:
    if body.position is not None:
        offset = at_position(partition, body.position)
    else:
        assert body.timestamp is not None
        found = partition.find_time(body.timestamp, Isolation.READ_COMMITTED)
        offset = partition.last_stable_offset if found is None else found.offset
    return OffsetResult(*partition.name, offset)


def _check(call: Call, wanted: shapes.OffsetToSet) -> OffsetResult:
    result = OffsetResult(wanted.topic, wanted.partition, wanted.offset)
    try:
        partition = call.broker.topics.partition(TopicPartition(wanted.topic, wanted.partition))
        start_offset, end_offset = partition.log.start_offset, partition.high_watermark
        if not start_offset <= wanted.offset <= end_offset:
            raise OffsetOutOfRange(f"{partition.name} holds the offsets {start_offset} to {end_offset}")
    except FlyMQError as error:
        result.error = to_problem(error)
    return result
