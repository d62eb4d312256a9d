"""Topic settings under Kafka's names: nearly always the same ones, values always as strings.

    FlyMQ                                 Kafka
    message.timestamp.type                CreateTime, LogAppendTime instead of create, append
    min.cleanable.ratio.percent: 50       min.cleanable.dirty.ratio: 0.5
    persistence, memory.bytes             specific to FlyMQ; described and altered under these names

Some of Kafka's settings are about the internals of its brokers, not about the semantics of a topic. They are accepted
without effect, so that programs that set them work unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from flymq.broker.service.topics import Topic, TopicDefaults
from flymq.model.errors import InvalidSetting
from flymq.model.topic_config import UNLIMITED, TopicConfig

WITHOUT_EFFECT = frozenset(
    (
        "compression.type",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "max.compaction.lag.ms",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "preallocate",
        "segment.index.bytes",
        "segment.jitter.ms",
        "unclean.leader.election.enable",
    )
)

FROM_TOPIC = 1
FROM_DEFAULTS = 5
_TEXT, _INT, _LONG, _LIST = 2, 3, 5, 7

_TIMESTAMP_TYPE = "message.timestamp.type"
_TIMESTAMP_TYPES = {"CreateTime": "create", "LogAppendTime": "append"}
_RATIO, _PERCENT = "min.cleanable.dirty.ratio", "min.cleanable.ratio.percent"
_POLICY = "cleanup.policy"


@dataclass(slots=True)
class Setting:
    """One setting of one topic, as in DescribeConfigs."""

    name: str
    value: str
    source: int
    type: int
    text: str
    read_only: bool = False


def described(topic: Topic) -> list[Setting]:
    """Return all settings of a topic."""
    texts = {f.metadata["name"]: f.metadata["text"] for f in fields(TopicConfig)}
    found = []
    for name, value in topic.config.to_mapping().items():
        source = FROM_TOPIC if name in topic.spec.settings else FROM_DEFAULTS
        kind = _LIST if name == _POLICY else _LONG if isinstance(value, int) else _TEXT
        kafka_name, kafka_value = _to_kafka(name, value)
        found.append(Setting(kafka_name, kafka_value, source, kind, texts[name]))
    return found


def to_flymq(settings: Mapping[str, str | None]) -> dict[str, Any]:
    """Translate Kafka's settings; None, which resets a setting, stays None."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name == _TIMESTAMP_TYPE and value is not None:
            found[name] = _TIMESTAMP_TYPES.get(value, value)
        elif name == _RATIO:
            found[_PERCENT] = None if value is None else _percent(value)
        elif name == _POLICY and value is not None:
            found[name] = ",".join(sorted(policy.strip() for policy in value.split(",")))
        elif name not in WITHOUT_EFFECT:
            found[name] = value
    return found


def with_kafka_defaults(defaults: TopicDefaults, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a topic created by a Kafka client: by default its size is unlimited."""
    if settings.keys() & {"retention.ms", "retention.bytes"}:
        return settings
    return {"retention.ms": defaults.config.retention_ms, "retention.bytes": UNLIMITED, **settings}


def _to_kafka(name: str, value: str | int) -> tuple[str, str]:
    if name == _PERCENT:
        return _RATIO, str(int(value) / 100)
    if name == _TIMESTAMP_TYPE:
        return name, next(kafka for kafka, ours in _TIMESTAMP_TYPES.items() if ours == value)
    return name, str(value)


def _percent(ratio: str) -> int:
    try:
        return round(float(ratio) * 100)
    except (ValueError, OverflowError):
        raise InvalidSetting(f"{_RATIO} must be a number from 0 to 1, not {ratio!r}") from None
