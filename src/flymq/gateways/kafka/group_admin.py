"""List, describe and delete groups."""

from __future__ import annotations

from flymq.broker.safety import wait_safe
from flymq.broker.service.groups import CLASSIC, GroupInfo, GroupState
from flymq.gateways.kafka.cluster import GROUP_OPERATIONS, NO_OPERATIONS
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.model.errors import FlyMQError, GroupNotFound
from flymq.model.names import TopicPartition
from flymq.wire.kafka.messages import delete_groups as deletion
from flymq.wire.kafka.messages import describe_groups as description
from flymq.wire.kafka.messages import list_groups as listing
from flymq.wire.kafka.messages import offset_delete as forgetting

STATES = {
    GroupState.EMPTY: "Empty",
    GroupState.PREPARING: "PreparingRebalance",
    GroupState.COMPLETING: "CompletingRebalance",
    GroupState.RECONCILING: "Reconciling",
    GroupState.NOT_READY: "NotReady",
    GroupState.STABLE: "Stable",
    GroupState.DEAD: "Dead",
}
_UNKNOWN_IS_AN_ERROR_FROM = 6


def list_groups(
    connection: KafkaConnection, request: listing.ListGroupsRequest, _version: int
) -> listing.ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    groups = []
    for group in connection.service.groups.all(connection.caller):
        state = STATES[group.state]
        if (not states or state.lower() in states) and (not types or group.type in types):
            groups.append(listing.ListedGroup(group.name, group.kind, state, group.type))
    return listing.ListGroupsResponse(groups=groups)


def describe_groups(
    connection: KafkaConnection, request: description.DescribeGroupsRequest, version: int
) -> description.DescribeGroupsResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NO_OPERATIONS
    groups = []
    for name in request.groups:
        try:
            group = connection.service.groups.describe(connection.caller, name, type_=CLASSIC)
            groups.append(_describe(group, operations))
        except GroupNotFound as error:
            # Older versions report an unknown group as DEAD.
            code = code_of(error) if version >= _UNKNOWN_IS_AN_ERROR_FROM else ErrorCode.NONE
            groups.append(description.DescribedGroup(code, error.message, name, STATES[GroupState.DEAD]))
        except FlyMQError as error:
            groups.append(description.DescribedGroup(code_of(error), error.message, name))
    return description.DescribeGroupsResponse(groups=groups)


def _describe(group: GroupInfo, operations: int) -> description.DescribedGroup:
    protocol = group.assignor if group.state is GroupState.STABLE else ""
    members = [
        description.DescribedGroupMember(
            member.member_id,
            member.instance or None,
            member.client_id,
            member.host,
            member.metadata,
            member.assignment_bytes,
        )
        for member in group.members
    ]
    return description.DescribedGroup(
        ErrorCode.NONE, None, group.name, STATES[group.state], group.kind, protocol, members, operations
    )


async def delete_groups(
    connection: KafkaConnection, request: deletion.DeleteGroupsRequest, _version: int
) -> deletion.DeleteGroupsResponse:
    results = []
    for name in request.groups_names:
        code = ErrorCode.NONE
        try:
            await wait_safe(connection.service.groups.delete(connection.caller, name))
        except FlyMQError as error:
            code = code_of(error)
        results.append(deletion.DeletableGroupResult(name, code))
    return deletion.DeleteGroupsResponse(results=results)


async def offset_delete(
    connection: KafkaConnection, request: forgetting.OffsetDeleteRequest, _version: int
) -> forgetting.OffsetDeleteResponse:
    """Delete committed offsets of partitions that none of the members reads."""
    names = [TopicPartition(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions]
    kept, safe = connection.service.groups.delete_offsets(connection.caller, request.group_id, names)
    await wait_safe(safe)
    topics = []
    for topic in request.topics:
        parts = []
        for part in topic.partitions:
            is_kept = TopicPartition(topic.name, part.partition_index) in kept
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_kept else ErrorCode.NONE
            parts.append(forgetting.OffsetDeleteResponsePartition(part.partition_index, code))
        topics.append(forgetting.OffsetDeleteResponseTopic(topic.name, parts))
    return forgetting.OffsetDeleteResponse(topics=topics)
