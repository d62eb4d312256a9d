"""Acknowledgements, durability, isolation, timestamp types, cleanup policies, compression and elections of topics."""

from __future__ import annotations

from enum import Enum, IntEnum


class Acks(IntEnum):
    """When a produce request is acknowledged. The values are Kafka's."""

    NONE = 0
    LEADER = 1
    ALL = -1


class Persistence(Enum):
    """What an acknowledged record survives."""

    MEMORY = "memory"
    """Nothing: a bounded buffer in memory."""
    DISK = "disk"
    """A crash of the process: written to the page cache."""
    FSYNC = "fsync"
    """A crash of the machine: fsynced before the acknowledgement, many appends sharing one fsync."""


class Isolation(IntEnum):
    """Which transactional records a reader sees. The values are Kafka's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class TimestampType(Enum):
    """Who sets a record's timestamp."""

    CREATE = "create"
    LOG_APPEND = "append"


class CleanupPolicy(Enum):
    """How old records are removed from a topic."""

    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_AND_DELETE = "compact,delete"
    NONE = ""
    """Nothing is removed."""

    @classmethod
    def _missing_(cls, value: object) -> CleanupPolicy | None:
        """Find a list of policies in any order, with or without spaces."""
        if not isinstance(value, str):
            return None
        normal = ",".join(sorted({policy.strip() for policy in value.split(",")}))
        return None if normal == value else cls(normal)

    @property
    def deletes(self) -> bool:
        return self in (CleanupPolicy.DELETE, CleanupPolicy.COMPACT_AND_DELETE)

    @property
    def compacts(self) -> bool:
        return self in (CleanupPolicy.COMPACT, CleanupPolicy.COMPACT_AND_DELETE)


class TopicCompression(Enum):
    """How the batches of a topic are compressed in its log."""

    PRODUCER = "producer"
    """As the producer sent them."""
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class UncleanElection(Enum):
    """Whether a replica that is not in sync may lead, which loses committed records. The values are Kafka's."""

    NEVER = "false"
    IF_NEEDED = "true"

    @classmethod
    def _missing_(cls, value: object) -> UncleanElection | None:
        """Find a boolean, and a word with capital letters."""
        if not isinstance(value, bool | str):
            return None
        normal = str(value).strip().lower()
        return None if normal == value else cls(normal)
