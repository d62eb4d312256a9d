"""The settings of one group, by Kafka's names. Those of groups of types that are not served are kept without effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flymq.model.errors import InvalidSetting
from flymq.model.typed_settings import SettingType, TypedSetting, by_name

CONSUMER_SESSION_TIMEOUT = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT = "consumer.heartbeat.interval.ms"
STREAMS_SESSION_TIMEOUT = "streams.session.timeout.ms"
STREAMS_HEARTBEAT = "streams.heartbeat.interval.ms"
STREAMS_STANDBY_REPLICAS = "streams.num.standby.replicas"

ACTING = {
    CONSUMER_SESSION_TIMEOUT: "groups.consumer_session_timeout_ms",
    CONSUMER_HEARTBEAT: "groups.consumer_heartbeat_ms",
    STREAMS_SESSION_TIMEOUT: "groups.consumer_session_timeout_ms",
    STREAMS_HEARTBEAT: "groups.consumer_heartbeat_ms",
    STREAMS_STANDBY_REPLICAS: "groups.streams_standby_replicas",
}
"""The settings that have an effect → their default in the broker's configuration. All others are only kept."""

_TIMEOUT_MS_MIN = 1_000
_HEARTBEAT_MS_MIN = 10


def _timeout(type_: str) -> TypedSetting:
    text = f"Session timeout of the members of a {type_} group."
    return TypedSetting(f"{type_}.session.timeout.ms", SettingType.INT, "45000", text, low=_TIMEOUT_MS_MIN)


def _heartbeat(type_: str) -> TypedSetting:
    text = f"Heartbeat interval of the members of a {type_} group."
    return TypedSetting(f"{type_}.heartbeat.interval.ms", SettingType.INT, "5000", text, low=_HEARTBEAT_MS_MIN)


def _assignment(type_: str) -> TypedSetting:
    text = f"Kafka: minimum time between two assignments of a {type_} group. Here they are made at once."
    return TypedSetting(f"{type_}.assignment.interval.ms", SettingType.INT, "1000", text)


def _share(name: str, type_: SettingType, default: str, low: int = 0, item: str = "") -> TypedSetting:
    return TypedSetting(f"share.{name}", type_, default, "Kafka: a setting of share groups.", low, item=item)


GROUP_SETTINGS = by_name(
    (
        *(make(type_) for type_ in ("consumer", "share", "streams") for make in (_timeout, _heartbeat, _assignment)),
        _share("auto.offset.reset", SettingType.STRING, "latest", 0, "earliest|latest|by_duration:P.+"),
        _share("delivery.count.limit", SettingType.INT, "5", 2),
        _share("isolation.level", SettingType.STRING, "read_uncommitted", 0, "read_(un)?committed"),
        _share("partition.max.record.locks", SettingType.INT, "2000", 100),
        _share("record.lock.duration.ms", SettingType.INT, "30000", 1000),
        _share("renew.acknowledge.enable", SettingType.BOOLEAN, "true"),
        TypedSetting(
            "streams.initial.rebalance.delay.ms",
            SettingType.INT,
            "3000",
            "Kafka: how long a new streams group waits for more members. Here the first one gets its tasks at once.",
        ),
        TypedSetting(
            STREAMS_STANDBY_REPLICAS,
            SettingType.INT,
            "0",
            "Number of standby replicas of each task of the group.",
        ),
    )
)


def parse_group_settings(given: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a group in their usual form. `defaults` are those of settings that are not given."""
    parsed: dict[str, str] = {}
    for name, value in given.items():
        if name not in GROUP_SETTINGS:
            raise InvalidSetting(f"unknown group setting {name!r}", hint=f"Known: {', '.join(sorted(GROUP_SETTINGS))}.")
        parsed[name] = GROUP_SETTINGS[name].parse(value)
    all_ = {name: setting.default for name, setting in GROUP_SETTINGS.items()} | dict(defaults) | parsed
    for type_ in ("consumer", "share", "streams"):
        heartbeat, timeout = f"{type_}.heartbeat.interval.ms", f"{type_}.session.timeout.ms"
        if parsed.keys() & {heartbeat, timeout} and int(all_[heartbeat]) >= int(all_[timeout]):
            raise InvalidSetting(
                f"{heartbeat} is {all_[heartbeat]}, which must be less than {timeout}, {all_[timeout]}"
            )
    return parsed
