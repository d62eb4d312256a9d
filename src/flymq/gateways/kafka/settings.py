"""Topic settings under Kafka's names: nearly always the same ones, values always as strings.

FlyMQ                                 Kafka
message.timestamp.type                CreateTime, LogAppendTime instead of create, append
persistence, memory.bytes             specific to FlyMQ; described and altered under these names
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, IntEnum
from functools import cache
from typing import Any

from flymq.broker.service.topics import Topic
from flymq.model.delivery import UncleanElection
from flymq.model.kept_settings import KEPT_BY_TOPICS
from flymq.model.topic_config import BROKER_DEFAULT, UNLIMITED, TopicConfig
from flymq.model.typed_settings import SettingType


class Source(IntEnum):
    """Where a value comes from. The values are Kafka's."""

    TOPIC = 1
    BROKER = 2
    """Set at run time, for this broker."""
    ALL_BROKERS = 3
    """Set at run time, for all brokers."""
    BROKER_FILE = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


_TIMESTAMP_TYPE = "message.timestamp.type"
_TIMESTAMP_TYPES = {"CreateTime": "create", "LogAppendTime": "append"}
_POLICY = "cleanup.policy"
_INTS = frozenset(
    (
        "segment.bytes",
        "index.interval.bytes",
        "max.message.bytes",
        "min.insync.replicas",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
    )
)
"""The settings that Kafka counts with 32 bits."""


@dataclass(slots=True)
class Setting:
    """One setting of a topic, a broker or a group, as in DescribeConfigs."""

    name: str
    value: str | None
    source: Source
    type: SettingType
    text: str
    read_only: bool = False
    synonyms: list[tuple[str, str, Source]] = field(default_factory=list)
    """What the value can come from: names, values and sources, the one that counts first."""


def is_known(name: str) -> bool:
    """Whether it is the name of a topic setting."""
    return name in KEPT_BY_TOPICS or any(f.metadata["name"] == name for f in fields(TopicConfig))


Origin = tuple[str, str, Source]
"""Name, value and source of what a value can come from."""


def described(topic: Topic, origins: Callable[[str], list[Origin]] = lambda _: []) -> list[Setting]:
    """Return all settings of a topic, sorted by name. `origins` tells where the defaults come from."""
    texts = {f.metadata["name"]: f.metadata["text"] for f in fields(TopicConfig)}
    texts |= {kept.name: kept.text for kept in KEPT_BY_TOPICS.values()}
    values = {**{kept.name: kept.default for kept in KEPT_BY_TOPICS.values()}, **topic.settings}
    found = []
    for name in sorted(texts):
        value, synonyms = to_kafka(name, values[name]), origins(name)
        source = synonyms[0][2] if synonyms else Source.DEFAULT
        if name in topic.own_settings:
            source = Source.TOPIC
            synonyms = [(name, value, source), *synonyms]
        found.append(Setting(name, value, source, type_of(name), texts[name], synonyms=synonyms))
    return found


@cache
def type_of(name: str) -> SettingType:
    """Return the type of a topic setting."""
    if name in KEPT_BY_TOPICS:
        return KEPT_BY_TOPICS[name].type
    if name == _POLICY:
        return SettingType.LIST
    default = next(f.default for f in fields(TopicConfig) if f.metadata["name"] == name)
    if isinstance(default, UncleanElection):
        return SettingType.BOOLEAN
    if isinstance(default, Enum):
        return SettingType.STRING
    if isinstance(default, float):
        return SettingType.DOUBLE
    return SettingType.INT if name in _INTS else SettingType.LONG


def to_flymq(settings: Mapping[str, str | None]) -> dict[str, Any]:
    """Translate Kafka's settings; None, which resets a setting, stays None."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if value is None:
            found[name] = None
        elif name == _TIMESTAMP_TYPE:
            found[name] = _TIMESTAMP_TYPES.get(value, value)
        else:
            found[name] = value.strip()
    return found


def to_kafka(name: str, value: str | int | float) -> str:
    """Return the value of a topic setting as Kafka has it."""
    if name == _TIMESTAMP_TYPE:
        return next(kafka for kafka, ours in _TIMESTAMP_TYPES.items() if ours == value)
    return str(value)


def with_kafka_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a topic created by a Kafka client: by default its size is unlimited."""
    if settings.keys() & {"retention.ms", "retention.bytes"}:
        return settings
    return {"retention.ms": BROKER_DEFAULT, "retention.bytes": UNLIMITED, **settings}
