"""All groups of one partition of `__offsets`: the table that its log, replayed, gives again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flymq.coordination.entries import (
    Entry,
    GroupKey,
    GroupValue,
    Key,
    OffsetKey,
    OffsetValue,
    PendingKey,
    PendingValue,
    Value,
)
from flymq.coordination.group import Group, GroupLimits
from flymq.model.errors import GroupNotFound


class GroupTable:
    """Groups by name. One exists from its first member or commit on."""

    def __init__(self, limits: GroupLimits) -> None:
        self._limits = limits
        self._groups: dict[str, Group] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def find(self, name: str) -> Group | None:
        return self._groups.get(name)

    def get(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            raise GroupNotFound(f"there is no group {name!r}")
        return group

    def get_or_add(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name, self._limits)
        return group

    def drop_if_unused(self, group: Group) -> None:
        if group.is_unused:
            group.is_dead = True
            self._groups.pop(group.name, None)

    def apply(self, entries: Iterable[Entry]) -> None:
        """Bring the state up to date with entries that are in the log."""
        for key, value in entries:
            if isinstance(key, GroupKey):
                assert value is None or isinstance(value, GroupValue)
                group = self.get_or_add(key.group)
                group.apply(value)
            else:
                assert isinstance(key, (OffsetKey, PendingKey))
                assert value is None or isinstance(value, (OffsetValue, PendingValue))
                group = self.get_or_add(key.group)
                group.offsets.apply(key, value)
            if value is None:
                self.drop_if_unused(group)

    def entries(self) -> dict[Key, Value]:
        """Return the table as the log would have it after compaction."""
        found: dict[Key, Value] = {}
        for group in self._groups.values():
            if group.generation:
                found[GroupKey(group.name)] = group.value
            for partition, offset in group.offsets.committed.items():
                found[OffsetKey(group.name, *partition)] = offset
            for producer_id, offsets in group.offsets.pending.items():
                for partition, pending in offsets.items():
                    found[PendingKey(group.name, producer_id, *partition)] = pending
        return found
