"""Subscriptions to metrics of clients (KIP-714): which clients push which metrics, and how often.

metrics      org.apache.kafka.consumer.fetch., org.apache.kafka.producer.   prefixes of names; * for all of them
interval.ms  60000
match        client_id=billing-.*, client_software_name=librdkafka          all of them must match; none: every client
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from flymq.coordination.topic_pattern import TopicPattern
from flymq.model.errors import InvalidSetting, InvalidTopicPattern

METRICS, INTERVAL, MATCH = "metrics", "interval.ms", "match"
DEFAULTS = {METRICS: "", INTERVAL: "300000", MATCH: ""}
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
_ALL = "*"
_PREFIXES_MAX = 100
_CLIENT_FIELDS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


@dataclass(slots=True)
class MetricsSubscription:
    """One subscription. Settings that are not given have their defaults."""

    prefixes: tuple[str, ...]
    """The empty prefix means all metrics."""
    interval_ms: int
    patterns: Mapping[str, TopicPattern] = field(default_factory=dict)

    def matches(self, client: Mapping[str, str]) -> bool:
        return all(pattern.matches(client.get(name, "")) for name, pattern in self.patterns.items())


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one client is asked for: by all subscriptions that match it together."""

    prefixes: tuple[str, ...] = ()
    interval_ms: int = int(DEFAULTS[INTERVAL])

    @property
    def id(self) -> int:
        """Another one for other metrics or another interval, so that a client knows when to ask again."""
        named = f"{self.interval_ms} {' '.join(self.prefixes)}".encode()
        return crc32(named) & 0x7FFF_FFFF

    def wants(self, name: str) -> bool:
        return name.startswith(self.prefixes)


def parse_subscription(settings: Mapping[str, str]) -> MetricsSubscription:
    """Return the subscription with these settings; raise InvalidSetting if one is invalid."""
    check_names(settings)
    given = {**DEFAULTS, **settings}
    return MetricsSubscription(
        _parse_prefixes(given[METRICS]), _parse_interval(given[INTERVAL]), _parse_match(given[MATCH])
    )


def check_names(settings: Iterable[str]) -> None:
    """Raise InvalidSetting if one is unknown."""
    if unknown := set(settings) - DEFAULTS.keys():
        raise InvalidSetting(
            f"a subscription to client metrics has no setting {min(unknown)!r}", hint=f"They are {', '.join(DEFAULTS)}."
        )


def _parse_prefixes(text: str) -> tuple[str, ...]:
    prefixes = _split(text)
    if len(prefixes) > _PREFIXES_MAX:
        raise InvalidSetting(f"{METRICS} has at most {_PREFIXES_MAX} prefixes, not {len(prefixes)}")
    return ("",) if _ALL in prefixes else tuple(sorted(set(prefixes)))


def _parse_interval(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or not INTERVAL_MS_MIN <= int(text) <= INTERVAL_MS_MAX:
        raise InvalidSetting(f"{INTERVAL} must be {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}, not {text[:20]!r}")
    return int(text)


def _parse_match(text: str) -> dict[str, TopicPattern]:
    patterns = {}
    for item in _split(text):
        name, equals, pattern = item.partition("=")
        if not equals or name.strip() not in _CLIENT_FIELDS:
            raise InvalidSetting(
                f"{MATCH} has {item[:100]!r}", hint=f"Use NAME=PATTERN with one of {', '.join(_CLIENT_FIELDS)}."
            )
        try:
            patterns[name.strip()] = TopicPattern(pattern.strip())
        except InvalidTopicPattern as error:
            raise InvalidSetting(f"{MATCH}: {error.message}") from None
    return patterns


def _split(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def select(subscriptions: Iterable[MetricsSubscription], client: Mapping[str, str]) -> Wanted:
    """Return what a client is asked for. Without a subscription it asks again after the default interval."""
    matching = [each for each in subscriptions if each.prefixes and each.matches(client)]
    if not matching:
        return Wanted()
    prefixes = {prefix for each in matching for prefix in each.prefixes}
    shortest = ("",) if "" in prefixes else tuple(sorted(prefixes))
    return Wanted(shortest, min(each.interval_ms for each in matching))
