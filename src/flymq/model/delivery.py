"""How sure a sender wants to be, how durable a topic is, and what a reader may see."""

from __future__ import annotations

from enum import Enum, IntEnum


class Acks(IntEnum):
    """When a produce request is answered. The values are Kafka's."""

    NONE = 0
    LEADER = 1
    ALL = -1


class Persistence(Enum):
    """What an acknowledged record survives."""

    MEMORY = "memory"
    """Nothing: a bounded ring in memory."""
    DISK = "disk"
    """The end of the process: written to the page cache."""
    FSYNC = "fsync"
    """The end of the machine: on the disk before the answer, many appends sharing one fsync."""


class Isolation(IntEnum):
    """What a reader sees of transactions. The values are Kafka's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class TimestampType(Enum):
    """Who sets a record's time."""

    CREATE = "create"
    LOG_APPEND = "append"


class CleanupPolicy(Enum):
    """How old records leave a topic."""

    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_AND_DELETE = "compact,delete"

    @property
    def deletes(self) -> bool:
        return self is not CleanupPolicy.COMPACT

    @property
    def compacts(self) -> bool:
        return self is not CleanupPolicy.DELETE
