"""The settings of a topic beside those of Kafka 4.3.1, as it describes a topic without overrides."""

from __future__ import annotations

from tests.unit.broker.world import World
from tests.unit.gateways.test_partial_failures import kafka_connection

from flymq.gateways.kafka.config_resources import TopicResource
from flymq.gateways.kafka.settings import with_kafka_defaults
from flymq.host.virtual_time import run

KAFKA = {
    "cleanup.policy": ("LIST", "delete"),
    "compression.gzip.level": ("INT", "-1"),
    "compression.lz4.level": ("INT", "9"),
    "compression.type": ("STRING", "producer"),
    "compression.zstd.level": ("INT", "3"),
    "delete.retention.ms": ("LONG", "86400000"),
    "file.delete.delay.ms": ("LONG", "60000"),
    "flush.messages": ("LONG", "9223372036854775807"),
    "flush.ms": ("LONG", "9223372036854775807"),
    "follower.replication.throttled.replicas": ("LIST", ""),
    "index.interval.bytes": ("INT", "4096"),
    "leader.replication.throttled.replicas": ("LIST", ""),
    "local.retention.bytes": ("LONG", "-2"),
    "local.retention.ms": ("LONG", "-2"),
    "max.compaction.lag.ms": ("LONG", "9223372036854775807"),
    "max.message.bytes": ("INT", "1048588"),
    "message.timestamp.after.max.ms": ("LONG", "3600000"),
    "message.timestamp.before.max.ms": ("LONG", "9223372036854775807"),
    "message.timestamp.type": ("STRING", "CreateTime"),
    "min.cleanable.dirty.ratio": ("DOUBLE", "0.5"),
    "min.compaction.lag.ms": ("LONG", "0"),
    "min.insync.replicas": ("INT", "1"),
    "preallocate": ("BOOLEAN", "false"),
    "remote.log.copy.disable": ("BOOLEAN", "false"),
    "remote.log.delete.on.disable": ("BOOLEAN", "false"),
    "remote.storage.enable": ("BOOLEAN", "false"),
    "retention.bytes": ("LONG", "-1"),
    "retention.ms": ("LONG", "604800000"),
    "segment.bytes": ("INT", "1073741824"),
    "segment.index.bytes": ("INT", "10485760"),
    "segment.jitter.ms": ("LONG", "0"),
    "segment.ms": ("LONG", "604800000"),
    "unclean.leader.election.enable": ("BOOLEAN", "false"),
}

OTHER_DEFAULTS = {
    "max.message.bytes": "1048576",  # a batch of 1 MiB, where Kafka counts 12 bytes more
    "segment.bytes": "134217728",
}
OWN = {"persistence", "memory.bytes"}


def test_a_topic_has_every_setting_of_kafka_with_its_type_and_default() -> None:
    async def live() -> None:
        world = World(quick_disk=True)
        node = await world.start()
        await node.admin.create("orders", settings=with_kafka_defaults({}))
        found = {
            each.name: (each.type.name, each.value) for each in TopicResource("orders").describe(kafka_connection(node))
        }
        assert found.keys() == KAFKA.keys() | OWN
        for name, (type_, default) in KAFKA.items():
            assert found[name] == (type_, OTHER_DEFAULTS.get(name, default)), name
        await world.close()

    run(live())
