"""Administration with the clients beside librdkafka."""

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from tests.clients.kafka.peers import kafka


@pytest.mark.shows("admin", client="kafka-python")
def test_kafka_python_manages_topics(topic, broker):
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        admin.create_topics(
            {topic: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "5000"}}}
        )
        assert topic in admin.list_topics()
        resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic)
        assert "5000" in str(admin.describe_configs([resource]))
        assert topic in str(admin.describe_log_dirs())
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
    finally:
        admin.close()


@pytest.mark.shows("admin", client="aiokafka")
async def test_aiokafka_manages_topics(topic, broker):
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "5000"})])
        await admin.create_partitions({topic: NewPartitions(3)})
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        assert "5000" in str(await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()
    finally:
        await admin.close()
