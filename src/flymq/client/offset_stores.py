"""Where a group's committed offsets are stored: in the broker, or in a store of the application.

An external store is for applications whose results are in a database: offsets and results can then be written in one
database transaction. The broker still assigns the partitions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from os import PathLike
from typing import Protocol

from flymq.model.names import TopicPartition


class OffsetStore(Protocol):
    """Stores the next offset to read of each group, topic and partition. Called in a thread; may block."""

    def load(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the stored offsets of these partitions; leave out those without one."""

    def save(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Store these offsets durably and atomically: all or none."""


class SqliteOffsets:
    """Offsets in a table of an SQLite database, created if missing."""

    _TABLE = """
        CREATE TABLE IF NOT EXISTS flymq_offsets (
            "group" TEXT, topic TEXT, partition INTEGER, "offset" INTEGER, PRIMARY KEY ("group", topic, partition)
        )"""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = path

    def load(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = set(partitions)
        with closing(self._open()) as database:
            rows = database.execute('SELECT topic, partition, "offset" FROM flymq_offsets WHERE "group" = ?', (group,))
            found = {TopicPartition(topic, partition): offset for topic, partition, offset in rows}
        return {name: offset for name, offset in found.items() if name in wanted}

    def save(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        rows = [(group, topic, partition, int(offset)) for (topic, partition), offset in offsets.items()]
        with closing(self._open()) as database, database:
            database.executemany("INSERT OR REPLACE INTO flymq_offsets VALUES (?, ?, ?, ?)", rows)

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=30)
        database.execute(self._TABLE)
        return database
