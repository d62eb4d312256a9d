"""The settings of a topic: names, descriptions, limits and defaults in one table.

The names are Kafka's (`retention.ms`), so that every protocol uses the same ones; `persistence` and `memory.bytes` are
FlyMQ's own. These are the settings that act. Those of Kafka that have no effect here are in kept_settings.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

from flymq.model.delivery import CleanupPolicy, Persistence, TimestampType, TopicCompression, UncleanElection
from flymq.model.errors import InvalidSetting
from flymq.model.kept_settings import KEPT_BY_TOPICS

UNLIMITED = -1
INT64_MAX = (1 << 63) - 1
"""As the value of a maximum time: no limit."""

BROKER_DEFAULT = "default"
"""As an override: the broker's default, whatever it is at the time. See `TopicConfig.for_topic`."""

_DAY_MS = 24 * 60 * 60 * 1000
_HOUR_MS = 60 * 60 * 1000


def _setting(name: str, default: Any, text: str, *, low: int = 0, high: int = INT64_MAX) -> Any:
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
        "`delete` old records, `compact` to the latest value per key, or both; empty: keep everything. A compacted "
        "topic refuses records without a key; those from before it was compacted stay.",
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
    timestamp_before_max_ms: int = _setting(
        "message.timestamp.before.max.ms",
        INT64_MAX,
        "How far in the past the producer's time of a record may lie; a batch with an older one is refused.",
    )
    timestamp_after_max_ms: int = _setting(
        "message.timestamp.after.max.ms",
        _HOUR_MS,
        "How far in the future the producer's time of a record may lie; a batch with a later one is refused.",
    )
    compression: TopicCompression = _setting(
        "compression.type",
        TopicCompression.PRODUCER,
        "How batches are compressed in the log: `producer` keeps them as they were sent. With a codec, or "
        "`uncompressed`, the broker compresses those that were sent otherwise again, unless that makes them larger.",
    )
    compression_gzip_level: int = _setting(
        "compression.gzip.level", -1, "Level of `compression.type` gzip, 1 to 9; -1: its default.", low=-1, high=9
    )
    compression_lz4_level: int = _setting(
        "compression.lz4.level", 9, "Level of `compression.type` lz4; 9: its fast mode.", low=1, high=17
    )
    compression_zstd_level: int = _setting(
        "compression.zstd.level", 3, "Level of `compression.type` zstd.", low=-131_072, high=22
    )
    delete_retention_ms: int = _setting(
        "delete.retention.ms", _DAY_MS, "How long compaction keeps tombstones (deleted keys)."
    )
    min_compaction_lag_ms: int = _setting(
        "min.compaction.lag.ms", 0, "Minimum age of a record before it can be compacted."
    )
    max_compaction_lag_ms: int = _setting(
        "max.compaction.lag.ms",
        INT64_MAX,
        "Maximum age of a record before its log is compacted, whatever `min.cleanable.dirty.ratio` says.",
        low=1,
    )
    min_cleanable_dirty_ratio: float = _setting(
        "min.cleanable.dirty.ratio",
        0.5,
        "Minimum share of uncompacted bytes in a log before it is compacted.",
        high=1,
    )
    min_insync_replicas: int = _setting(
        "min.insync.replicas",
        1,
        "Minimum number of in-sync replicas that must have a record before acks=all is acknowledged.",
        low=1,
    )
    unclean_election: UncleanElection = _setting(
        "unclean.leader.election.enable",
        UncleanElection.NEVER,
        "Whether a replica that is not in sync may lead when all that are in sync are gone. `true` makes the partition "
        "available again and loses the records that this replica does not have, acknowledged ones too.",
    )

    def for_topic(self, overrides: Mapping[str, Any]) -> TopicConfig:
        """Return the settings of a topic that has set these itself, where `self` are the broker's defaults.

        A topic that sets only one of `retention.ms` and `retention.bytes` has no limit on the other: a default that its
        owner did not think of must not delete unread records.
        """
        limits = {"retention.ms", "retention.bytes"}
        given = limits & overrides.keys()
        unlimited = dict.fromkeys(limits - given, UNLIMITED) if given else {}
        own = {name: value for name, value in overrides.items() if value != BROKER_DEFAULT}
        return self.with_changes({**own, **unlimited})

    def with_changes(self, changes: Mapping[str, Any]) -> TopicConfig:
        """Return these settings with `changes` by their public names; None resets one to its default."""
        parsed: dict[str, Any] = {}
        for name, value in changes.items():
            if (kept := KEPT_BY_TOPICS.get(name)) is not None:
                if value is not None:
                    kept.parse(value)
            elif (f := _BY_NAME.get(name)) is None:
                raise InvalidSetting(
                    f"unknown topic setting {name!r}", hint=f"Known: {', '.join(sorted((*_BY_NAME, *KEPT_BY_TOPICS)))}."
                )
            elif value is None or value == BROKER_DEFAULT:
                parsed[f.name] = f.default
            else:
                parsed[f.name] = _parse(name, value, f.default, f.metadata)
        return replace(self, **parsed)

    def to_overrides(self, given: Mapping[str, Any]) -> dict[str, str | int | float]:
        """Return the plain values of the settings that a topic has set itself, among them those without effect."""
        plain = self.to_mapping()
        found: dict[str, str | int | float] = {}
        for name, value in given.items():
            if name in KEPT_BY_TOPICS:
                found[name] = KEPT_BY_TOPICS[name].parse(value)
            else:
                found[name] = BROKER_DEFAULT if value == BROKER_DEFAULT else plain[name]
        return found

    def accepted_times(self, now_ms: int) -> tuple[int, int]:
        """Return the earliest and the latest time that a record may have, unless the broker sets it."""
        return now_ms - self.timestamp_before_max_ms, now_ms + self.timestamp_after_max_ms

    def describe_retention(self) -> str:
        """Return in words how long records are kept."""
        if self.cleanup_policy is CleanupPolicy.NONE:
            return "records are kept without limit"
        limits = []
        if self.retention_ms != UNLIMITED:
            limits.append(f"{self.retention_ms / _DAY_MS:g} days")
        if self.retention_bytes != UNLIMITED:
            limits.append(f"{self.retention_bytes / (1 << 20):g} MiB a partition")
        if self.cleanup_policy is CleanupPolicy.COMPACT:
            return "compacted: the last value of each key is kept"
        return f"records are kept for {' or '.join(limits)}" if limits else "records are kept without limit"

    def to_mapping(self) -> dict[str, str | int | float]:
        """Return every setting by its public name, as plain values."""
        return {name: self.value_of(name) for name in _BY_NAME}

    def value_of(self, name: str) -> str | int | float:
        """Return one setting by its public name, as a plain value."""
        value: str | int | float | Enum = getattr(self, _BY_NAME[name].name)
        return value.value if isinstance(value, Enum) else value


_BY_NAME = {f.metadata["name"]: f for f in fields(TopicConfig)}


def describe_topic_setting(name: str) -> str:
    """Return the description of a setting that acts."""
    text: str = _BY_NAME[name].metadata["text"]
    return text


def _parse(name: str, value: Any, default: Any, limits: Mapping[str, Any]) -> Any:
    if isinstance(default, Enum):
        try:
            return type(default)(getattr(value, "value", value))
        except ValueError:
            known = ", ".join(repr(choice.value) for choice in type(default))
            raise InvalidSetting(f"{name} takes one of {known}, not {value!r}") from None
    low, high = limits["low"], limits["high"]
    what = "an integer" if type(default) is int else "a number"
    try:
        number = type(default)(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidSetting(f"{name} takes {what}, not {value!r}") from None
    if isinstance(value, bool) or not low <= number <= high:
        raise InvalidSetting(f"{name} takes {what} from {low} to {high}, not {value!r}")
    return number
