"""A running group changes its protocol, as in Kafka (KIP-848, online migration).

    classic group ──the first member of the consumer protocol joins──▶ consumer group with members of both protocols
         ▲                                                                                  │
         └──────────────── the last member of the consumer protocol has left ───────────────┘

In a group with members of both protocols the broker computes all assignments. A classic member takes a step towards its
target each time it joins: it is told to rejoin by its heartbeats, and gets its assignment without a leader.
"""

from __future__ import annotations

import msgspec

from flymq.coordination.consumer_group import ConsumerGroup
from flymq.coordination.entries import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    Entry,
    GroupKey,
    GroupValue,
    MemberValue,
)
from flymq.coordination.group import CONSUMER, Group, choose_protocol
from flymq.coordination.subscriptions import (
    Subscription,
    encode_assignment,
    has_user_data,
    parse_assignment,
    parse_subscription,
)
from flymq.model.errors import InvalidRequest, OtherGroupType
from flymq.model.names import TopicPartition


def decide_upgrade(group: Group, now_ms: int) -> list[Entry]:
    """Make a classic group with members a consumer group with the same members, each of which keeps its partitions."""
    if group.kind != CONSUMER:
        raise OtherGroupType(f"the group {group.name!r} has members with the protocol type {group.kind!r}")
    entries: list[Entry] = [
        *group.decide_delete(),
        (ConsumerGroupKey(group.name), ConsumerGroupValue(max(1, group.generation), changed_at_ms=now_ms)),
    ]
    taken: set[TopicPartition] = set()
    for member in group.members.values():
        value = _upgraded(group, member.value)
        mine = tuple(name for name in value.assigned if name not in taken)
        taken.update(mine)
        value = msgspec.structs.replace(value, target=mine, assigned=mine)
        entries.append((ConsumerMemberKey(group.name, member.member_id), value))
    return entries


def _upgraded(group: Group, member: MemberValue) -> ConsumerMemberValue:
    try:
        subscription = subscription_of(member)
        # While it has no assignment in this generation, it may still own what it has reported.
        held = parse_assignment(member.assignment) if member.assignment else subscription.owned
        is_custom = has_user_data(member.assignment)
    except InvalidRequest as error:
        raise OtherGroupType(f"a subscription in the group {group.name!r} cannot be read: {error.message}") from None
    if is_custom:
        raise OtherGroupType(f"the group {group.name!r} uses a custom assignor, whose data would be lost")
    return ConsumerMemberValue(
        topics=tuple(sorted(set(subscription.topics))),
        instance=member.instance,
        client_id=member.client_id,
        host=member.host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        epoch=max(1, group.generation),
        previous_epoch=max(1, group.generation),
        assigned=tuple(sorted(set(held))),
        classic=msgspec.structs.replace(member, assignment=b""),
    )


def decide_downgrade(group: ConsumerGroup, now_ms: int) -> list[Entry]:
    """Make a consumer group classic again if all its members are. They have to rejoin."""
    members = []
    for member in group.members.values():
        if member.value.classic is None:
            return []
        assignment = encode_assignment(sorted(member.value.assigned))
        members.append(msgspec.structs.replace(member.value.classic, assignment=assignment))
    if not members:
        return []
    entries: list[Entry] = [(ConsumerMemberKey(group.name, member_id), None) for member_id in group.members]
    value = GroupValue(
        group.generation,
        CONSUMER,
        choose_protocol(members),
        members[0].member_id,
        tuple(members),
        changed_at_ms=now_ms,
    )
    return [*entries, *group.decide_delete(), (GroupKey(group.name), value)]


def subscription_of(member: MemberValue) -> Subscription:
    """Return the subscription of a classic member, in the encoding of the assignor that it prefers."""
    _, metadata = member.protocols[0]
    return parse_subscription(metadata)
