"""Assignors: strategies to assign partitions to the members of a group. Deterministic.

- range: per topic, a range of partitions to each member, so that the same keys of several topics are co-located
- roundrobin: all partitions in turn
- sticky: balanced, and as many partitions as possible stay with their current owner
- cooperative-sticky: as sticky; but a partition that must move is not assigned until its owner has revoked it.
  A member whose assignment has shrunk revokes the partitions and rejoins; the other members keep reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import TypeAlias

from flymq.coordination.entries import MemberValue
from flymq.coordination.subscriptions import encode_assignment, understand
from flymq.model.names import TopicPartition

Assignments: TypeAlias = dict[str, list[TopicPartition]]
"""Member id → its partitions."""


@dataclass(slots=True)
class MemberSubscription:
    """The topics one member subscribes to, and the partitions it owns."""

    topics: set[str]
    owned: list[TopicPartition] = field(default_factory=list)
    instance: str = ""


def assign_range(subscriptions: Mapping[str, MemberSubscription], partition_counts: Mapping[str, int]) -> Assignments:
    assignments: Assignments = {member: [] for member in subscriptions}
    for topic, members in _subscribers(subscriptions, partition_counts).items():
        each, more = divmod(partition_counts[topic], len(members))
        start = 0
        for position, member in enumerate(members):
            end = start + each + (position < more)
            assignments[member] += [TopicPartition(topic, partition) for partition in range(start, end)]
            start = end
    return assignments


def assign_roundrobin(
    subscriptions: Mapping[str, MemberSubscription], partition_counts: Mapping[str, int]
) -> Assignments:
    assignments: Assignments = {member: [] for member in subscriptions}
    turn = cycle(_in_order(subscriptions))
    for topic in _subscribers(subscriptions, partition_counts):
        for partition in range(partition_counts[topic]):
            member = next(member for member in turn if topic in subscriptions[member].topics)
            assignments[member].append(TopicPartition(topic, partition))
    return assignments


def assign_sticky(subscriptions: Mapping[str, MemberSubscription], partition_counts: Mapping[str, int]) -> Assignments:
    subscribers = _subscribers(subscriptions, partition_counts)
    free = {
        TopicPartition(topic, partition): None for topic in subscribers for partition in range(partition_counts[topic])
    }
    assignments: Assignments = {member: [] for member in subscriptions}
    for member in _in_order(subscriptions):
        for held in subscriptions[member].owned:
            if held in free and held.topic in subscriptions[member].topics:
                del free[held]
                assignments[member].append(held)
    # Partitions with few subscribers first: those with many can still balance the assignments afterwards.
    for partition in sorted(free, key=lambda name: (len(subscribers[name.topic]), name)):
        _lightest(assignments, subscribers[partition.topic]).append(partition)
    _even_out(assignments, subscribers)
    return assignments


def assign_cooperative_sticky(
    subscriptions: Mapping[str, MemberSubscription], partition_counts: Mapping[str, int]
) -> Assignments:
    holders: dict[TopicPartition, set[str]] = {}
    for member, subscription in subscriptions.items():
        for partition in subscription.owned:
            holders.setdefault(partition, set()).add(member)
    return {
        member: [partition for partition in held if not holders.get(partition, set()) - {member}]
        for member, held in assign_sticky(subscriptions, partition_counts).items()
    }


ASSIGNORS: dict[str, Callable[[Mapping[str, MemberSubscription], Mapping[str, int]], Assignments]] = {
    "range": assign_range,
    "roundrobin": assign_roundrobin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperative_sticky,
}
"""By the names that Kafka's consumers use."""


def assign(protocol: str, members: Iterable[MemberValue], partition_counts: Mapping[str, int]) -> dict[str, bytes]:
    """Return the encoded assignment of each member."""
    subscriptions = {}
    for member in members:
        subscription = understand(member.metadata(protocol))
        subscriptions[member.member_id] = MemberSubscription(
            set(subscription.topics), subscription.owned, member.instance
        )
    assignments = ASSIGNORS[protocol](subscriptions, partition_counts)
    return {member: encode_assignment(sorted(held)) for member, held in assignments.items()}


def _in_order(subscriptions: Mapping[str, MemberSubscription]) -> list[str]:
    """Members in an order that stays the same when static members restart, which changes their ids."""
    return sorted(subscriptions, key=lambda member: (subscriptions[member].instance or member, member))


def _subscribers(
    subscriptions: Mapping[str, MemberSubscription], partition_counts: Mapping[str, int]
) -> dict[str, list[str]]:
    """Return the subscribers of each existing topic."""
    found: dict[str, list[str]] = {}
    for member in _in_order(subscriptions):
        for topic in subscriptions[member].topics:
            if partition_counts.get(topic, 0) > 0:
                found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))


def _lightest(assignments: Assignments, members: list[str]) -> list[TopicPartition]:
    """Return the smallest assignment among these members."""
    return min((assignments[member] for member in members), key=len)


def _even_out(assignments: Assignments, subscribers: Mapping[str, list[str]]) -> None:
    """Move partitions from the largest assignments to smaller ones while that balances them. Every move does, so it
    ends; and since partitions are only taken from the largest, no more are moved than necessary."""
    while any(
        _move_one(held, assignments, subscribers) for held in sorted(assignments.values(), key=len, reverse=True)
    ):
        continue


def _move_one(held: list[TopicPartition], assignments: Assignments, subscribers: Mapping[str, list[str]]) -> bool:
    """Move one partition to a subscriber that has at least two fewer, if there is one."""
    tried = set()
    for partition in reversed(held):
        if partition.topic not in tried:
            tried.add(partition.topic)
            target = _lightest(assignments, subscribers[partition.topic])
            if len(held) - len(target) > 1:
                held.remove(partition)
                target.append(partition)
                return True
    return False
