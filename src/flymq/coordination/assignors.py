"""Ways to assign partitions to the members of a group. Pure: the same members and partitions, the same assignments.

- range: of each topic, neighbouring partitions to each member, so that equal keys of several topics meet
- roundrobin: all partitions in turn
- sticky: even, and every partition that can stays with whoever has it
- cooperative-sticky: as sticky; but a partition that must move is assigned to nobody until its holder has revoked it.
  A member whose assignment has shrunk revokes and joins again; nobody else stops reading meanwhile.
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
class Wish:
    """What one member wants and holds."""

    topics: set[str]
    owned: list[TopicPartition] = field(default_factory=list)
    instance: str = ""


def assign_range(wishes: Mapping[str, Wish], partition_counts: Mapping[str, int]) -> Assignments:
    assignments: Assignments = {member: [] for member in wishes}
    for topic, members in _subscribers(wishes, partition_counts).items():
        each, more = divmod(partition_counts[topic], len(members))
        start = 0
        for position, member in enumerate(members):
            end = start + each + (position < more)
            assignments[member] += [TopicPartition(topic, partition) for partition in range(start, end)]
            start = end
    return assignments


def assign_roundrobin(wishes: Mapping[str, Wish], partition_counts: Mapping[str, int]) -> Assignments:
    assignments: Assignments = {member: [] for member in wishes}
    turn = cycle(_in_order(wishes))
    for topic in _subscribers(wishes, partition_counts):
        for partition in range(partition_counts[topic]):
            member = next(member for member in turn if topic in wishes[member].topics)
            assignments[member].append(TopicPartition(topic, partition))
    return assignments


def assign_sticky(wishes: Mapping[str, Wish], partition_counts: Mapping[str, int]) -> Assignments:
    subscribers = _subscribers(wishes, partition_counts)
    free = {
        TopicPartition(topic, partition): None for topic in subscribers for partition in range(partition_counts[topic])
    }
    assignments: Assignments = {member: [] for member in wishes}
    for member in _in_order(wishes):
        for held in wishes[member].owned:
            if held in free and held.topic in wishes[member].topics:
                del free[held]
                assignments[member].append(held)
    # Those that few members want go first: what everybody wants can still even things out afterwards.
    for partition in sorted(free, key=lambda name: (len(subscribers[name.topic]), name)):
        _lightest(assignments, subscribers[partition.topic]).append(partition)
    _even_out(assignments, subscribers)
    return assignments


def assign_cooperative_sticky(wishes: Mapping[str, Wish], partition_counts: Mapping[str, int]) -> Assignments:
    holders: dict[TopicPartition, set[str]] = {}
    for member, wish in wishes.items():
        for partition in wish.owned:
            holders.setdefault(partition, set()).add(member)
    return {
        member: [partition for partition in held if not holders.get(partition, set()) - {member}]
        for member, held in assign_sticky(wishes, partition_counts).items()
    }


ASSIGNORS: dict[str, Callable[[Mapping[str, Wish], Mapping[str, int]], Assignments]] = {
    "range": assign_range,
    "roundrobin": assign_roundrobin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperative_sticky,
}
"""The names are those Kafka's consumers use."""


def assign(protocol: str, members: Iterable[MemberValue], partition_counts: Mapping[str, int]) -> dict[str, bytes]:
    """Return each member's assignment, in the bytes it will be given."""
    wishes = {}
    for member in members:
        subscription = understand(member.metadata(protocol))
        wishes[member.member_id] = Wish(set(subscription.topics), subscription.owned, member.instance)
    assignments = ASSIGNORS[protocol](wishes, partition_counts)
    return {member: encode_assignment(sorted(held)) for member, held in assignments.items()}


def _in_order(wishes: Mapping[str, Wish]) -> list[str]:
    """Members in an order that outlives a restart for static ones, whose ids change."""
    return sorted(wishes, key=lambda member: (wishes[member].instance or member, member))


def _subscribers(wishes: Mapping[str, Wish], partition_counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Return, for each topic that exists and is wanted, who wants it."""
    found: dict[str, list[str]] = {}
    for member in _in_order(wishes):
        for topic in wishes[member].topics:
            if partition_counts.get(topic, 0) > 0:
                found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))


def _lightest(assignments: Assignments, members: list[str]) -> list[TopicPartition]:
    """Return the smallest assignment among these members."""
    return min((assignments[member] for member in members), key=len)


def _even_out(assignments: Assignments, subscribers: Mapping[str, list[str]]) -> None:
    """Move partitions from the largest assignments to smaller ones while that helps. Every move makes them more even,
    so it ends; and since only the largest gives, no more is moved than must be."""
    while any(
        _move_one(held, assignments, subscribers) for held in sorted(assignments.values(), key=len, reverse=True)
    ):
        continue


def _move_one(held: list[TopicPartition], assignments: Assignments, subscribers: Mapping[str, list[str]]) -> bool:
    """Give one partition to somebody who has at least two fewer, if anybody who wants it has."""
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
