"""All groups of one partition of `__offsets`, as a table that is rebuilt by replaying its log.

A group has one of three types: classic (`Group`), whose members go from one generation to the next together; consumer
(`ConsumerGroup`, KIP-848), whose members the broker reconciles one by one; or streams (`StreamsGroup`, KIP-1071). It
can change its type: without members at once, with members as group_migration.py says. Its offsets stay, and its
generation continues, so that a number is never used twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, TypeAlias, TypeVar

from flymq.coordination.consumer_group import ConsumerGroup
from flymq.coordination.entries import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    Entry,
    GroupKey,
    GroupValue,
    Key,
    OffsetKey,
    OffsetValue,
    PendingKey,
    PendingValue,
    QueryKey,
    StreamsGroupKey,
    StreamsGroupValue,
    StreamsMemberKey,
    StreamsMemberValue,
    TransactionKey,
    Value,
)
from flymq.coordination.group import Group, GroupLimits, GroupState
from flymq.coordination.group_migration import decide_upgrade
from flymq.coordination.streams_group import StreamsGroup
from flymq.model.errors import GroupNotFound, OtherGroupType

AnyGroup: TypeAlias = Group | ConsumerGroup | StreamsGroup
G = TypeVar("G", Group, ConsumerGroup, StreamsGroup)


_TYPES: dict[type[Key], type[AnyGroup]] = {
    GroupKey: Group,
    ConsumerGroupKey: ConsumerGroup,
    ConsumerMemberKey: ConsumerGroup,
    StreamsGroupKey: StreamsGroup,
    StreamsMemberKey: StreamsGroup,
}


class GroupTable:
    """Groups by name. A group is created by its first member or commit."""

    kinds: ClassVar[tuple[type[Key], ...]] = (
        GroupKey,
        ConsumerGroupKey,
        ConsumerMemberKey,
        StreamsGroupKey,
        StreamsMemberKey,
        OffsetKey,
        PendingKey,
    )

    def __init__(self, limits: GroupLimits) -> None:
        self._limits = limits
        self._groups: dict[str, AnyGroup] = {}

    def __iter__(self) -> Iterator[AnyGroup]:
        return iter(list(self._groups.values()))

    def find(self, name: str) -> AnyGroup | None:
        return self._groups.get(name)

    def get(self, name: str) -> AnyGroup:
        group = self._groups.get(name)
        if group is None:
            raise GroupNotFound(f"there is no group {name!r}")
        return group

    def get_or_add(self, name: str) -> AnyGroup:
        return self._groups.get(name) or self._become(Group, name)

    def drop_if_unused(self, group: AnyGroup) -> None:
        if group.is_unused:
            group.is_dead = True
            self._groups.pop(group.name, None)

    # --- group types

    def decide_type(self, name: str, type_: type[AnyGroup], now_ms: int) -> list[Entry]:
        """Give the group this type. Nothing to write if it has it; an error if it has another one and members."""
        group = self._groups.get(name)
        if isinstance(group, type_) or (group is None and type_ is Group):
            return []
        number = 0
        entries: list[Entry] = []
        if isinstance(group, Group) and group.members and type_ is ConsumerGroup:
            return decide_upgrade(group, now_ms)
        if group is not None:
            if group.state is not GroupState.EMPTY:
                raise OtherGroupType(f"the group {name!r} has {len(group.members)} members of another group protocol")
            number = group.generation
            entries += group.decide_delete()
        if type_ is Group:
            return [*entries, (GroupKey(name), GroupValue(number, changed_at_ms=now_ms))]
        if type_ is StreamsGroup:
            return [*entries, (StreamsGroupKey(name), StreamsGroupValue(number + 1, changed_at_ms=now_ms))]
        return [*entries, (ConsumerGroupKey(name), ConsumerGroupValue(number + 1, changed_at_ms=now_ms))]

    def _become(self, type_: type[G], name: str) -> G:
        """Return the group with this type."""
        group = self._groups.get(name)
        if isinstance(group, type_):
            return group
        found: G = type_(name, self._limits)
        if group is not None:
            found.offsets = group.offsets
            group.is_dead = True
        self._groups[name] = found
        return found

    # --- apply

    def check(self, entries: Iterable[Entry]) -> None:
        """Assert what every decision must keep true. Called before the entries are written.

        It is not part of `apply`: a log may contain anything, and its replay must not stop the broker.
        """
        consumers: dict[str, dict[str, ConsumerMemberValue | None]] = {}
        streams: dict[str, dict[str, StreamsMemberValue | None]] = {}
        for key, value in entries:
            if isinstance(value, (GroupValue, ConsumerGroupValue, StreamsGroupValue)):
                assert isinstance(key, (GroupKey, ConsumerGroupKey, StreamsGroupKey))
                number = value.generation if isinstance(value, GroupValue) else value.epoch
                known = self._groups.get(key.group)
                assert known is None or number >= known.generation, (
                    f"{key.group}: the generation goes back from {known.generation} to {number}"
                )
            elif isinstance(key, ConsumerMemberKey):
                assert value is None or isinstance(value, ConsumerMemberValue)
                consumers.setdefault(key.group, {})[key.member_id] = value
            elif isinstance(key, StreamsMemberKey):
                assert value is None or isinstance(value, StreamsMemberValue)
                streams.setdefault(key.group, {})[key.member_id] = value
        for name, changes in consumers.items():
            if isinstance(group := self._groups.get(name), ConsumerGroup):
                group.check_members(changes)
        for name, tasks in streams.items():
            if isinstance(group := self._groups.get(name), StreamsGroup):
                group.check_members(tasks)

    def apply(self, entries: Iterable[Entry]) -> None:
        """Apply entries of the log."""
        for key, value in entries:
            assert isinstance(key, self.kinds) and not isinstance(key, (TransactionKey, QueryKey))
            if isinstance(key, (OffsetKey, PendingKey)):
                assert value is None or isinstance(value, (OffsetValue, PendingValue))
                self.get_or_add(key.group).offsets.apply(key, value)
            else:
                self._apply_group(key, value)
            if value is None and (group := self._groups.get(key.group)) is not None:
                self.drop_if_unused(group)

    def _apply_group(
        self,
        key: GroupKey | ConsumerGroupKey | ConsumerMemberKey | StreamsGroupKey | StreamsMemberKey,
        value: Value | None,
    ) -> None:
        type_ = _TYPES[type(key)]
        if value is None and not isinstance(self._groups.get(key.group), type_):
            return  # its type has changed since
        if isinstance(key, GroupKey):
            assert value is None or isinstance(value, GroupValue)
            self._become(Group, key.group).apply(value)
        elif isinstance(key, ConsumerGroupKey):
            assert value is None or isinstance(value, ConsumerGroupValue)
            self._become(ConsumerGroup, key.group).apply_group(value)
        elif isinstance(key, StreamsGroupKey):
            assert value is None or isinstance(value, StreamsGroupValue)
            self._become(StreamsGroup, key.group).apply_group(value)
        elif isinstance(key, StreamsMemberKey):
            assert value is None or isinstance(value, StreamsMemberValue)
            self._become(StreamsGroup, key.group).apply_member(key.member_id, value)
        else:
            assert value is None or isinstance(value, ConsumerMemberValue)
            self._become(ConsumerGroup, key.group).apply_member(key.member_id, value)

    def entries(self) -> dict[Key, Value]:
        """Return the entries that compaction would keep."""
        found: dict[Key, Value] = {}
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                found.update(_consumer_entries(group))
            elif isinstance(group, StreamsGroup):
                found.update(_streams_entries(group))
            elif group.generation:
                found[GroupKey(group.name)] = group.value
            for partition, offset in group.offsets.committed.items():
                found[OffsetKey(group.name, *partition)] = offset
            for producer_id, offsets in group.offsets.pending.items():
                for partition, pending in offsets.items():
                    found[PendingKey(group.name, producer_id, *partition)] = pending
        return found


def _streams_entries(group: StreamsGroup) -> Iterator[tuple[Key, Value]]:
    if group.generation:
        yield StreamsGroupKey(group.name), group.value
    for member_id, member in group.members.items():
        yield StreamsMemberKey(group.name, member_id), member.value


def _consumer_entries(group: ConsumerGroup) -> Iterator[tuple[Key, Value]]:
    if group.generation:
        yield ConsumerGroupKey(group.name), group.value
    for member_id, member in group.members.items():
        yield ConsumerMemberKey(group.name, member_id), member.value
