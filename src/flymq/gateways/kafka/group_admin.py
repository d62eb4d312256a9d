"""Look at groups from outside, and delete them."""

from __future__ import annotations

from flymq.coordination.consumer_group import ConsumerGroup
from flymq.coordination.group import Group, GroupState
from flymq.coordination.groups import AnyGroup
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
    for group in connection.broker.groups.list():
        state, type_ = STATES[group.state], _type_of(group)
        if (not states or state.lower() in states) and (not types or type_ in types):
            groups.append(listing.ListedGroup(group.name, group.kind, state, type_))
    return listing.ListGroupsResponse(groups=groups)


def _type_of(group: AnyGroup) -> str:
    return "consumer" if isinstance(group, ConsumerGroup) else "classic"


def describe_groups(
    connection: KafkaConnection, request: description.DescribeGroupsRequest, version: int
) -> description.DescribeGroupsResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NO_OPERATIONS
    groups = []
    for name in request.groups:
        try:
            group = connection.broker.groups.get(name)
            if not isinstance(group, Group):
                raise GroupNotFound(f"{name!r} is not a classic group")
            groups.append(_describe(group, operations))
        except GroupNotFound as error:
            # Older clients take an unknown group for one that is dead.
            code = code_of(error) if version >= _UNKNOWN_IS_AN_ERROR_FROM else ErrorCode.NONE
            groups.append(description.DescribedGroup(code, error.message, name, STATES[GroupState.DEAD]))
    return description.DescribeGroupsResponse(groups=groups)


def _describe(group: Group, operations: int) -> description.DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    protocol = group.value.protocol if is_stable else ""
    members = [
        description.DescribedGroupMember(
            member.member_id,
            member.value.instance or None,
            member.value.client_id,
            member.value.host,
            member.value.metadata(protocol) if protocol else b"",
            member.value.share if is_stable else b"",
        )
        for member in group.members.values()
    ]
    return description.DescribedGroup(
        ErrorCode.NONE, None, group.name, STATES[group.state], group.value.kind, protocol, members, operations
    )


async def delete_groups(
    connection: KafkaConnection, request: deletion.DeleteGroupsRequest, _version: int
) -> deletion.DeleteGroupsResponse:
    results = []
    for name in request.groups_names:
        code = ErrorCode.NONE
        try:
            durable = connection.broker.groups.delete(name)
            if durable is not None:
                await durable
        except FlyMQError as error:
            code = code_of(error)
        results.append(deletion.DeletableGroupResult(name, code))
    return deletion.DeleteGroupsResponse(results=results)


async def offset_delete(
    connection: KafkaConnection, request: forgetting.OffsetDeleteRequest, _version: int
) -> forgetting.OffsetDeleteResponse:
    """Forget what a group has committed for partitions that none of its members reads."""
    groups = connection.broker.groups
    in_use = groups.get(request.group_id).topics()
    gone: list[TopicPartition] = []
    topics = []
    for topic in request.topics:
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic.name in in_use else ErrorCode.NONE
        if code is ErrorCode.NONE:
            gone += [TopicPartition(topic.name, part.partition_index) for part in topic.partitions]
        parts = [forgetting.OffsetDeleteResponsePartition(part.partition_index, code) for part in topic.partitions]
        topics.append(forgetting.OffsetDeleteResponseTopic(topic.name, parts))
    durable = groups.forget_offsets(request.group_id, gone)
    if durable is not None:
        await durable
    return forgetting.OffsetDeleteResponse(topics=topics)
