"""What has settings in Kafka's protocol: topics, brokers, groups, subscriptions to metrics of clients. How each of them
is described and altered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Protocol

from flymq.broker.service.client_metrics import DEFAULTS as CLIENT_METRICS_DEFAULTS
from flymq.broker.service.settings import ALL_BROKERS
from flymq.gateways.kafka.broker_settings import (
    BROKER_NAMES,
    describe_all_brokers,
    describe_broker,
    origins,
    to_topic_settings,
)
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.internal_topics import own_name
from flymq.gateways.kafka.settings import Setting, Source, described, is_known, to_flymq
from flymq.model.errors import InvalidRequest
from flymq.model.group_settings import GROUP_SETTINGS
from flymq.model.typed_settings import SettingType

Changes = Mapping[str, str | None]
"""New values by name; None resets a setting to its default."""


class ResourceType(IntEnum):
    """The values are Kafka's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(Protocol):
    """Something that has settings."""

    def describe(self, connection: KafkaConnection) -> list[Setting]:
        """Return its settings, sorted by name."""

    def own(self, connection: KafkaConnection) -> set[str]:
        """Return the names of the settings that were given for it."""

    async def alter(self, connection: KafkaConnection, changes: Changes, *, validate_only: bool) -> None:
        """Change its settings, or only say whether that could be done."""


@dataclass(frozen=True, slots=True)
class TopicResource:
    name: str

    def describe(self, connection: KafkaConnection) -> list[Setting]:
        topic = connection.service.topics.get(connection.caller, own_name(self.name))
        return described(topic, partial(origins, connection))

    def own(self, connection: KafkaConnection) -> set[str]:
        return set(connection.service.topics.get(connection.caller, own_name(self.name)).own_settings)

    async def alter(self, connection: KafkaConnection, changes: Changes, *, validate_only: bool) -> None:
        # To reset a setting that does not exist is no error in Kafka, and tools that mirror settings do it.
        named = {name: value for name, value in changes.items() if value is not None or is_known(name)}
        topics, ours = connection.service.topics, to_flymq(named)
        await topics.alter(connection.caller, self.name, ours, validate_only=validate_only)


@dataclass(frozen=True, slots=True)
class BrokerResource:
    name: str
    """The broker's id, or empty for all brokers."""

    def describe(self, connection: KafkaConnection) -> list[Setting]:
        self._check(connection)
        return describe_all_brokers(connection) if self.name == ALL_BROKERS else describe_broker(connection)

    def own(self, connection: KafkaConnection) -> set[str]:
        self._check(connection)
        return {BROKER_NAMES[name] for name in connection.service.settings.of_broker(connection.caller, self.name)}

    async def alter(self, connection: KafkaConnection, changes: Changes, *, validate_only: bool) -> None:
        self._check(connection)
        settings, ours = connection.service.settings, to_topic_settings(changes)
        await settings.alter_broker(connection.caller, self.name, ours, validate_only=validate_only)

    def _check(self, connection: KafkaConnection) -> None:
        broker_id = connection.service.cluster.broker_id
        if self.name not in (ALL_BROKERS, str(broker_id)):
            raise InvalidRequest(f"this is broker {broker_id}, not {self.name!r}")


@dataclass(frozen=True, slots=True)
class GroupResource:
    name: str

    def describe(self, connection: KafkaConnection) -> list[Setting]:
        settings = connection.service.settings
        own, defaults = settings.of_group(connection.caller, self.name), settings.group_defaults
        found = []
        for name, known in sorted(GROUP_SETTINGS.items()):
            default = defaults.get(name, known.default)
            synonyms = [(name, str(own[name]), Source.GROUP)] if name in own else []
            synonyms.append((f"group.{name}", default, Source.DEFAULT))
            _, value, source = synonyms[0]
            found.append(Setting(name, value, source, known.type, known.text, synonyms=synonyms))
        return found

    def own(self, connection: KafkaConnection) -> set[str]:
        return set(connection.service.settings.of_group(connection.caller, self.name))

    async def alter(self, connection: KafkaConnection, changes: Changes, *, validate_only: bool) -> None:
        settings = connection.service.settings
        await settings.alter_group(connection.caller, self.name, changes, validate_only=validate_only)


@dataclass(frozen=True, slots=True)
class ClientMetricsResource:
    """A subscription to metrics that clients push."""

    name: str

    def describe(self, connection: KafkaConnection) -> list[Setting]:
        given = connection.service.client_metrics.settings_of(connection.caller, self.name)
        found = []
        for name, default in sorted(CLIENT_METRICS_DEFAULTS.items()):
            source = Source.CLIENT_METRICS if name in given else Source.DEFAULT
            value, type_ = given.get(name, default), SettingType.INT if name == "interval.ms" else SettingType.LIST
            text = _CLIENT_METRICS_TEXTS[name]
            found.append(Setting(name, value, source, type_, text, synonyms=[(name, value, source)]))
        return found

    def own(self, connection: KafkaConnection) -> set[str]:
        return set(connection.service.client_metrics.settings_of(connection.caller, self.name))

    async def alter(self, connection: KafkaConnection, changes: Changes, *, validate_only: bool) -> None:
        service = connection.service.client_metrics
        await service.alter(connection.caller, self.name, changes, validate_only=validate_only)


_CLIENT_METRICS_TEXTS = {
    "metrics": "Prefixes of the names of the metrics that clients push; * for all.",
    "interval.ms": "How often clients push.",
    "match": "Which clients: NAME=PATTERN, separated by commas; all must match.",
}


RESOURCES: dict[int, type[TopicResource] | type[BrokerResource] | type[GroupResource] | type[ClientMetricsResource]] = {
    ResourceType.TOPIC: TopicResource,
    ResourceType.BROKER: BrokerResource,
    ResourceType.CLIENT_METRICS: ClientMetricsResource,
    ResourceType.GROUP: GroupResource,
}


def find_resource(type_: int, name: str) -> Resource:
    """Return what a request names."""
    if type_ not in RESOURCES:
        known = ", ".join(f"{ResourceType(number).name.lower()} ({number})" for number in RESOURCES)
        raise InvalidRequest(f"resources of the type {type_} have no settings here; these have: {known}")
    return RESOURCES[type_](name)
