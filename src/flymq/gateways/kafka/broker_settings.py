"""The settings of a broker under Kafka's names: those that Kafka's tools look for.

Four kinds: defaults of topics, which can be changed at run time; settings of FlyMQ's configuration under another name;
facts about this broker; settings of Kafka that stand for what is always so here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flymq.broker.service.settings import ALL_BROKERS
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.settings import Setting, Source, to_flymq, to_kafka, type_of
from flymq.model.errors import InvalidRequest, InvalidSetting
from flymq.model.kept_settings import KEPT_BY_TOPICS
from flymq.model.topic_config import TopicConfig, describe_topic_setting
from flymq.model.typed_settings import SettingType

BROKER_NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""Topic setting → the broker's setting that has its default. These can be changed at run time."""

_BUILT_IN = TopicConfig()

TOPIC_NAMES = {broker: topic for topic, broker in BROKER_NAMES.items()}

_KEPT_NAMES = {
    "log.flush.interval.messages": "flush.messages",
    "log.flush.interval.ms": "flush.ms",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.local.retention.bytes": "local.retention.bytes",
    "log.local.retention.ms": "local.retention.ms",
    "log.preallocate": "preallocate",
    "log.roll.jitter.ms": "segment.jitter.ms",
    "log.segment.delete.delay.ms": "file.delete.delay.ms",
}
"""The broker's setting → the topic setting without effect of which it has the default."""


class _FromFile(NamedTuple):
    """A setting of FlyMQ's configuration."""

    name: str
    type: SettingType
    show: Callable[[Any], Any] = lambda value: value


def _or_unlimited(count: int) -> int:
    return count or (1 << 31) - 1


_FILE_NAMES = {
    "auto.create.topics.enable": _FromFile("topics.auto_create", SettingType.BOOLEAN),
    "connections.max.idle.ms": _FromFile("limits.idle_connection_timeout_ms", SettingType.LONG),
    "default.replication.factor": _FromFile("topics.default_replication_factor", SettingType.INT),
    "fetch.max.bytes": _FromFile("limits.fetch_bytes_max", SettingType.INT),
    "group.consumer.heartbeat.interval.ms": _FromFile("groups.consumer_heartbeat_ms", SettingType.INT),
    "group.consumer.max.size": _FromFile("groups.members_max", SettingType.INT),
    "group.consumer.session.timeout.ms": _FromFile("groups.consumer_session_timeout_ms", SettingType.INT),
    "group.initial.rebalance.delay.ms": _FromFile("groups.quiet_ms", SettingType.INT),
    "group.max.session.timeout.ms": _FromFile("groups.session_timeout_ms_max", SettingType.INT),
    "group.max.size": _FromFile("groups.members_max", SettingType.INT),
    "group.min.session.timeout.ms": _FromFile("groups.session_timeout_ms_min", SettingType.INT),
    "log.cleaner.backoff.ms": _FromFile("storage.compaction_check_interval_ms", SettingType.LONG),
    "log.dir": _FromFile("broker.data_dir", SettingType.STRING),
    "log.dirs": _FromFile("broker.data_dir", SettingType.LIST),
    "log.flush.offset.checkpoint.interval.ms": _FromFile("storage.checkpoint_interval_ms", SettingType.INT),
    "log.retention.check.interval.ms": _FromFile("storage.retention_check_interval_ms", SettingType.LONG),
    "max.connections": _FromFile("limits.connections_max", SettingType.INT),
    "max.connections.per.ip": _FromFile("limits.connections_per_ip_max", SettingType.INT, _or_unlimited),
    "num.partitions": _FromFile("topics.default_partitions", SettingType.INT),
    "num.recovery.threads.per.data.dir": _FromFile("storage.recovery_threads_max", SettingType.INT),
    "offsets.retention.minutes": _FromFile(
        "groups.offset_retention_ms", SettingType.INT, lambda value: max(1, value // 60_000)
    ),
    "offsets.topic.num.partitions": _FromFile("groups.internal_partitions", SettingType.INT),
    "socket.listen.backlog.size": _FromFile("listener.backlog", SettingType.INT),
    "socket.request.max.bytes": _FromFile("limits.request_bytes_max", SettingType.INT),
    "ssl.client.auth": _FromFile("tls.client_auth", SettingType.STRING, lambda value: value.value),
    "transaction.max.timeout.ms": _FromFile("transactions.timeout_ms_max", SettingType.INT),
    "transaction.state.log.num.partitions": _FromFile("groups.internal_partitions", SettingType.INT),
    "transactional.id.expiration.ms": _FromFile("transactions.id_retention_ms", SettingType.INT),
}

_ALWAYS = {
    "authorizer.class.name": ("", SettingType.STRING),
    "broker.rack": (None, SettingType.STRING),
    "delete.topic.enable": ("true", SettingType.BOOLEAN),
    "group.consumer.assignors": ("uniform,range", SettingType.LIST),
    "group.coordinator.rebalance.protocols": ("classic,consumer,streams", SettingType.LIST),
    "log.cleaner.enable": ("true", SettingType.BOOLEAN),
    "offset.metadata.max.bytes": ("4096", SettingType.INT),
    "offsets.topic.replication.factor": ("1", SettingType.SHORT),
    "process.roles": ("broker,controller", SettingType.LIST),
    "remote.log.storage.system.enable": ("false", SettingType.BOOLEAN),
    "sasl.enabled.mechanisms": ("PLAIN", SettingType.LIST),
    "security.inter.broker.protocol": ("PLAINTEXT", SettingType.STRING),
    "transaction.state.log.min.isr": ("1", SettingType.INT),
    "transaction.state.log.replication.factor": ("1", SettingType.SHORT),
}


_FACTS = ("advertised.listeners", "broker.id", "inter.broker.listener.name", "listeners", "node.id")

READ_ONLY = frozenset((*_FILE_NAMES, *_ALWAYS, *_KEPT_NAMES, *_FACTS))
"""The settings that cannot be changed at run time."""


def describe_broker(connection: KafkaConnection) -> list[Setting]:
    """Return all settings of this broker, sorted by name."""
    found = [_dynamic(connection, name) for name in TOPIC_NAMES]
    for name, topic_name in _KEPT_NAMES.items():
        kept = KEPT_BY_TOPICS[topic_name]
        found.append(Setting(name, kept.default, Source.DEFAULT, kept.type, kept.text, read_only=True))
    for name, (ours, type_, show) in _FILE_NAMES.items():
        given = connection.service.settings.file[ours]
        source = Source.DEFAULT if given.is_default else Source.BROKER_FILE
        text = f"`{ours}` in FlyMQ's configuration."
        found.append(Setting(name, _text(show(given.value)), source, type_, text, read_only=True))
    for name, (always, type_) in _ALWAYS.items():
        found.append(Setting(name, always, Source.DEFAULT, type_, "", read_only=True))
    found += _facts(connection)
    for setting in found:
        if not setting.synonyms and setting.value is not None:
            setting.synonyms = [(setting.name, setting.value, setting.source)]
    return sorted(found, key=lambda setting: setting.name)


def describe_all_brokers(connection: KafkaConnection) -> list[Setting]:
    """Return what was set at run time for all brokers."""
    own = connection.service.settings.of_broker(connection.caller, ALL_BROKERS)
    found = []
    for name in sorted(own):
        value, broker_name = to_kafka(name, own[name]), BROKER_NAMES[name]
        setting = Setting(broker_name, value, Source.ALL_BROKERS, type_of(name), describe_topic_setting(name))
        setting.synonyms = [(broker_name, value, Source.ALL_BROKERS)]
        found.append(setting)
    return found


def origins(connection: KafkaConnection, topic_name: str) -> list[tuple[str, str, Source]]:
    """Return where the default of a topic setting comes from: name, value and source, the one that counts first."""
    if topic_name in KEPT_BY_TOPICS:
        default = KEPT_BY_TOPICS[topic_name].default
        return [(name, default, Source.DEFAULT) for name, kept in _KEPT_NAMES.items() if kept == topic_name]
    if topic_name not in BROKER_NAMES:
        return []
    name, settings = BROKER_NAMES[topic_name], connection.service.settings
    broker_id = str(connection.service.cluster.broker_id)
    found = []
    for broker, source in ((broker_id, Source.BROKER), (ALL_BROKERS, Source.ALL_BROKERS)):
        own = settings.of_broker(connection.caller, broker)
        if topic_name in own:
            found.append((name, to_kafka(topic_name, own[topic_name]), source))
    in_file, built_in = settings.file_defaults.value_of(topic_name), _BUILT_IN.value_of(topic_name)
    if in_file != built_in:
        found.append((name, to_kafka(topic_name, in_file), Source.BROKER_FILE))
    found.append((name, to_kafka(topic_name, built_in), Source.DEFAULT))
    return found


def to_topic_settings(changes: Mapping[str, str | None]) -> dict[str, Any]:
    """Translate changes of a broker's settings to those of the defaults of topics, or raise an error."""
    for name in changes:
        if name in READ_ONLY:
            hint = "Change it in the broker's configuration and restart it."
            raise InvalidRequest(f"the broker setting {name!r} cannot be changed at run time", hint=hint)
        if name not in TOPIC_NAMES:
            raise InvalidSetting(f"unknown broker setting {name!r}")
    return to_flymq({TOPIC_NAMES[name]: value for name, value in changes.items()})


def _dynamic(connection: KafkaConnection, name: str) -> Setting:
    topic_name = TOPIC_NAMES[name]
    synonyms = origins(connection, topic_name)
    _, value, source = synonyms[0]
    return Setting(name, value, source, type_of(topic_name), describe_topic_setting(topic_name), synonyms=synonyms)


def _facts(connection: KafkaConnection) -> list[Setting]:
    cluster, file = connection.service.cluster, connection.service.settings.file
    this = cluster.this_broker(connection.local_address)
    protocol = _security_protocol(connection)
    values = {
        "advertised.listeners": f"{protocol}://{this.host}:{this.port}",
        "broker.id": str(cluster.broker_id),
        "inter.broker.listener.name": protocol,
        "listeners": f"{protocol}://{file['listener.host'].value}:{connection.local_address[1]}",
        "node.id": str(cluster.broker_id),
    }
    types = {"broker.id": SettingType.INT, "node.id": SettingType.INT, "inter.broker.listener.name": SettingType.STRING}
    return [
        Setting(name, values[name], Source.BROKER_FILE, types.get(name, SettingType.LIST), "", read_only=True)
        for name in _FACTS
    ]


def _security_protocol(connection: KafkaConnection) -> str:
    protocol = "SSL" if connection.caller.is_encrypted else "PLAINTEXT"
    return f"SASL_{protocol}" if connection.service.access.is_required else protocol


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
