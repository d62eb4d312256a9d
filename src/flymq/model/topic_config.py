"""The settings of a topic: names, descriptions, limits and defaults in one table.

The names are Kafka's (`retention.ms`), so that every protocol uses the same ones; `persistence` and `memory.bytes` are
FlyMQ's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

from flymq.model.delivery import CleanupPolicy, Persistence, TimestampType
from flymq.model.errors import InvalidSetting

UNLIMITED = -1
_DAY_MS = 24 * 60 * 60 * 1000
_INT64_MAX = (1 << 63) - 1


def _setting(name: str, default: Any, text: str, *, low: int = 0, high: int = _INT64_MAX) -> Any:
    return field(default=default, metadata={"name": name, "text": text, "low": low, "high": high})


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of a topic: retention, size limits, durability."""

    retention_ms: int = _setting(
        "retention.ms",
        7 * _DAY_MS,
        "Maximum age of records before they are deleted; -1: no limit, as for a topic that sets only "
        "`retention.bytes`.",
        low=UNLIMITED,
    )
    retention_bytes: int = _setting(
        "retention.bytes",
        1 << 30,
        "Maximum size of each partition before its oldest records are deleted; -1: no limit, as for a topic that sets "
        "only `retention.ms`, or that a Kafka client creates.",
        low=UNLIMITED,
    )
    cleanup_policy: CleanupPolicy = _setting(
        "cleanup.policy",
        CleanupPolicy.DELETE,
        "`delete` old records, `compact` to the latest value per key, or both. A compacted topic refuses records "
        "without a key; those from before it was compacted stay.",
    )
    persistence: Persistence = _setting(
        "persistence", Persistence.DISK, "`memory`, `disk` (page cache) or `fsync` (fsync before the acknowledgement)."
    )
    memory_bytes: int = _setting(
        "memory.bytes", 64 << 20, "Maximum size of each partition of a `memory` topic.", low=1 << 10
    )
    segment_bytes: int = _setting(
        "segment.bytes",
        128 << 20,
        "Maximum size of a segment file before a new one is rolled.",
        low=1 << 10,
        high=(1 << 31) - 1,
    )
    segment_ms: int = _setting(
        "segment.ms", 7 * _DAY_MS, "Maximum age of a segment file before a new one is rolled.", low=1
    )
    index_interval_bytes: int = _setting(
        "index.interval.bytes", 4096, "Bytes of records between two entries of the offset index."
    )
    max_message_bytes: int = _setting(
        "max.message.bytes", 1 << 20, "Maximum size of a record batch.", low=0, high=(1 << 31) - 1
    )
    timestamp_type: TimestampType = _setting(
        "message.timestamp.type",
        TimestampType.CREATE,
        "`create`: the producer's time; `append`: the broker's time of the append.",
    )
    delete_retention_ms: int = _setting(
        "delete.retention.ms", _DAY_MS, "How long compaction keeps tombstones (deleted keys)."
    )
    min_compaction_lag_ms: int = _setting(
        "min.compaction.lag.ms", 0, "Minimum age of a record before it can be compacted."
    )
    min_cleanable_ratio_percent: int = _setting(
        "min.cleanable.ratio.percent",
        50,
        "Minimum percentage of uncompacted bytes in a log before it is compacted.",
        high=100,
    )
    min_insync_replicas: int = _setting(
        "min.insync.replicas",
        1,
        "Minimum number of in-sync replicas that must have a record before acks=all is acknowledged.",
        low=1,
    )

    def for_topic(self, overrides: Mapping[str, Any]) -> TopicConfig:
        """Return the settings of a topic that has set these itself, where `self` are the broker's defaults.

        A topic that sets only one of `retention.ms` and `retention.bytes` has no limit on the other: a default that its
        owner did not think of must not delete unread records.
        """
        limits = {"retention.ms", "retention.bytes"}
        given = limits & overrides.keys()
        unlimited = dict.fromkeys(limits - given, UNLIMITED) if given else {}
        return self.with_changes({**overrides, **unlimited})

    def with_changes(self, changes: Mapping[str, Any]) -> TopicConfig:
        """Return these settings with `changes` by their public names; None resets one to its default."""
        by_name = {f.metadata["name"]: f for f in fields(self)}
        parsed: dict[str, Any] = {}
        for name, value in changes.items():
            if name not in by_name:
                raise InvalidSetting(f"unknown topic setting {name!r}", hint=f"Known: {', '.join(sorted(by_name))}.")
            f = by_name[name]
            parsed[f.name] = f.default if value is None else _parse(name, value, f.default, f.metadata)
        return replace(self, **parsed)

    def describe_retention(self) -> str:
        """Return in words how long records are kept."""
        limits = []
        if self.retention_ms != UNLIMITED:
            limits.append(f"{self.retention_ms / _DAY_MS:g} days")
        if self.retention_bytes != UNLIMITED:
            limits.append(f"{self.retention_bytes / (1 << 20):g} MiB a partition")
        if not self.cleanup_policy.deletes:
            return "compacted: the last value of each key is kept"
        return f"records are kept for {' or '.join(limits)}" if limits else "records are kept without limit"

    def to_mapping(self) -> dict[str, str | int]:
        """Return every setting by its public name, as plain values."""
        plain: dict[str, str | int] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            plain[f.metadata["name"]] = value.value if isinstance(value, Enum) else value
        return plain


def _parse(name: str, value: Any, default: Any, limits: Mapping[str, Any]) -> Any:
    if isinstance(default, Enum):
        try:
            return type(default)(getattr(value, "value", value))
        except ValueError:
            known = ", ".join(repr(choice.value) for choice in type(default))
            raise InvalidSetting(f"{name} takes one of {known}, not {value!r}") from None
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise InvalidSetting(f"{name} takes an integer, not {value!r}") from None
    if isinstance(value, bool) or not limits["low"] <= number <= limits["high"]:
        raise InvalidSetting(f"{name} takes an integer from {limits['low']} to {limits['high']}, not {value!r}")
    return number
