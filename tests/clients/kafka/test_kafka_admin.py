"""Topics, settings and offsets, managed by the administration client of librdkafka."""

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.clients.kafka.peers import PEERS, WAIT_S, Row

from flymq import FlyMQClient

pytestmark = pytest.mark.shows("admin", client="librdkafka")


@pytest.fixture
def admin(broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


def create(admin: AdminClient, topic: str, partitions: int = 1, **config: str) -> None:
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result()


def code_of(future) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result()
    return refused.value.args[0].code()


def configs_of(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return admin.describe_configs([resource])[resource].result()


def test_a_topic_is_created_described_grown_and_deleted(admin, topic):
    create(admin, topic, 3)
    assert len(admin.list_topics(timeout=WAIT_S).topics[topic].partitions) == 3
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result()
    described = admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result()
    assert [partition.id for partition in described.partitions] == [0, 1, 2, 3, 4]
    admin.delete_topics([topic])[topic].result()
    assert topic not in admin.list_topics(timeout=WAIT_S).topics


def test_a_topic_made_again_has_another_id(admin, topic):
    def topic_id() -> str:
        described = admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result()
        return str(described.topic_id)

    create(admin, topic)
    first = topic_id()
    assert topic_id() == first
    admin.delete_topics([topic])[topic].result()
    create(admin, topic)
    assert topic_id() != first


def test_what_cannot_be_created_is_refused_by_name(admin, topic):
    create(admin, topic)
    wanted = [
        (NewTopic(topic, 1, 1), KafkaError.TOPIC_ALREADY_EXISTS),
        (NewTopic(f"{topic}-a", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic(f"{topic} b", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic(f"{topic}-c", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic(f"{topic}-d", 1, 1, config={"no.such.setting": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("__mine", 1, 1), KafkaError.TOPIC_EXCEPTION),
    ]
    results = admin.create_topics([new for new, _ in wanted])
    assert [code_of(results[new.topic]) for new, _ in wanted] == [code for _, code in wanted]


def test_a_topic_that_is_only_validated_is_not_created(admin, topic):
    admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic].result()
    assert topic not in admin.list_topics(timeout=WAIT_S).topics


def test_settings_have_kafkas_names_and_values(admin, topic):
    create(admin, topic, retention_ms="1000", message_timestamp_type="LogAppendTime", cleanup_policy="delete, compact")
    configs = configs_of(admin, topic)
    assert configs["retention.ms"].value == "1000"
    assert not configs["retention.ms"].is_default
    assert configs["message.timestamp.type"].value == "LogAppendTime"
    assert configs["cleanup.policy"].value == "compact,delete"
    assert configs["min.cleanable.dirty.ratio"].value == "0.5"
    assert configs["segment.bytes"].is_default


def test_settings_change_one_by_one(admin, topic, broker):
    create(admin, topic, retention_ms="1000")
    changes = [
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    admin.incremental_alter_configs([resource])[resource].result()
    configs = configs_of(admin, topic)
    assert configs["retention.ms"].is_default
    assert configs["max.message.bytes"].value == "2000"
    assert configs["cleanup.policy"].value == "compact,delete"
    with FlyMQClient(broker.address) as client:
        assert client.admin.describe_topic(topic).settings["max.message.bytes"] == 2000


def test_settings_that_mean_nothing_here_are_kept_and_shown(admin, topic):
    create(admin, topic, flush_messages="1", remote_storage_enable="TRUE", local_retention_ms="5")
    configs = configs_of(admin, topic)
    assert [configs[name].value for name in ("flush.messages", "remote.storage.enable", "local.retention.ms")] == [
        "1",
        "true",
        "5",
    ]
    assert not configs["flush.messages"].is_default
    assert (configs["preallocate"].value, configs["preallocate"].is_default) == ("false", True)


def test_a_default_of_topics_changes_at_run_time(admin, topic):
    create(admin, topic)
    for operation, value, retention_ms in (
        (AlterConfigOpType.SET, "12345", "12345"),
        (AlterConfigOpType.DELETE, None, "604800000"),
    ):
        change = ConfigEntry("log.retention.ms", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[change])
        admin.incremental_alter_configs([resource])[resource].result()
        assert configs_of(admin, topic)["retention.ms"].value == retention_ms


def test_settings_of_the_broker_that_take_effect_at_its_start_can_be_read_but_not_changed(admin):
    resource = ConfigResource(ResourceType.BROKER, "0")
    found = admin.describe_configs([resource])[resource].result()
    assert found["num.partitions"].is_read_only
    assert found["advertised.listeners"].value.startswith("PLAINTEXT://127.0.0.1:")
    assert found["log.dirs"].value
    change = ConfigEntry("num.partitions", "9", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[change])
    assert code_of(admin.incremental_alter_configs([resource])[resource]) == KafkaError.INVALID_REQUEST


def offset_at(admin: AdminClient, topic: str, spec: OffsetSpec):
    place = confluent_kafka.TopicPartition(topic, 0)
    return admin.list_offsets({place: spec})[place].result()


def test_offsets_are_found_by_position_and_by_time(admin, topic, broker):
    create(admin, topic)
    PEERS["native"].write(broker.address, topic, [Row(None, b"x", timestamp_ms=time) for time in (1000, 3000, 2000)])
    assert offset_at(admin, topic, OffsetSpec.earliest()).offset == 0
    assert offset_at(admin, topic, OffsetSpec.latest()).offset == 3
    by_time = offset_at(admin, topic, OffsetSpec.for_timestamp(1500))
    assert (by_time.offset, by_time.timestamp, by_time.leader_epoch) == (1, 3000, 0)
    assert offset_at(admin, topic, OffsetSpec.max_timestamp()).offset == 1
    assert offset_at(admin, topic, OffsetSpec.for_timestamp(9000)).offset == -1


def test_old_records_are_deleted_up_to_an_offset(admin, topic, broker):
    create(admin, topic)
    PEERS["native"].write(broker.address, topic, [Row(None, b"%d" % n) for n in range(5)])
    place = confluent_kafka.TopicPartition(topic, 0, 3)
    assert admin.delete_records([place])[place].result().low_watermark == 3
    assert offset_at(admin, topic, OffsetSpec.earliest()).offset == 3
    beyond = confluent_kafka.TopicPartition(topic, 0, 30)
    assert code_of(admin.delete_records([beyond])[beyond]) == KafkaError.OFFSET_OUT_OF_RANGE


def test_the_cluster_is_described(admin, broker):
    cluster = admin.describe_cluster().result()
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [(0, "127.0.0.1", broker.port)]
    assert cluster.controller.id == 0
    assert cluster.cluster_id


def test_leaders_that_need_no_election_are_told_so(admin, topic):
    create(admin, topic)
    place = confluent_kafka.TopicPartition(topic, 0)
    result = admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, [place]).result()
    assert result[place].code() == KafkaError.ELECTION_NOT_NEEDED


@pytest.mark.parametrize(
    ("config", "retention_ms", "retention_bytes"),
    [({}, "604800000", "-1"), ({"retention_ms": "-1"}, "-1", "-1"), ({"retention_bytes": "5000"}, "-1", "5000")],
)
def test_a_topic_of_a_kafka_client_has_no_limit_in_size_that_nobody_set(
    admin, topic, config, retention_ms, retention_bytes
):
    create(admin, topic, **config)
    found = configs_of(admin, topic)
    assert (found["retention.ms"].value, found["retention.bytes"].value) == (retention_ms, retention_bytes)
