"""All groups of this broker, and the partitions of `__offsets` that tell of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from flymq.broker.coordinators.internal_topics import InternalTopic
from flymq.coordination.entries import Entry
from flymq.coordination.group import GroupLimits
from flymq.coordination.groups import AnyGroup, GroupTable

Durable = asyncio.Future[None] | None
"""Done when what was written is on the disk; None when it is there already."""


class GroupLog:
    """What is decided about groups goes through here: into the log, then into the table of its partition."""

    def __init__(self, topic: InternalTopic, limits: GroupLimits) -> None:
        self._topic = topic
        self._tables = [GroupTable(limits) for _ in range(len(topic))]

    def __iter__(self) -> Iterator[AnyGroup]:
        for table in self._tables:
            yield from table

    def replay(self) -> None:
        for number, table in enumerate(self._tables):
            table.apply(self._topic.replay(number))

    def table(self, name: str) -> GroupTable:
        """Return the table in which a group of this name is, or would be."""
        return self._tables[self._topic.number_of(name)]

    def write(self, name: str, entries: Sequence[Entry]) -> Durable:
        """Append, then apply. Nothing comes between a decision and this."""
        number = self._topic.number_of(name)
        durable = self._topic.write(number, entries)
        self._tables[number].apply(entries)
        return durable

    def durable(self, name: str) -> Durable:
        """Return when everything written so far about the group is on the disk."""
        return self._topic.partition(self._topic.number_of(name)).durable()
