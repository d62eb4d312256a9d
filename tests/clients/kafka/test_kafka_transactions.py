"""Idempotence and transactions of Kafka's clients: all of it counts, or nothing does."""

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from tests.clients.kafka.peers import PEERS, WAIT_S, Row, kafka
from tests.clients.kafka.writers import WRITERS, LibrdkafkaTransactions

from flymq import FlyMQClient


def values_of(peer: str, address: str, topic: str, count: int) -> list[bytes | None]:
    return [row.value for row in PEERS[peer].read(address, topic, count, committed=True)]


@pytest.mark.shows("transactions: commit and abort", by="writer")
@pytest.mark.parametrize("writer", WRITERS)
def test_readers_of_committed_records_see_a_transaction_once_it_commits_and_never_one_that_aborts(
    broker, topic, writer
):
    transactions = WRITERS[writer](broker.address, f"writer-of-{topic}")
    transactions.write(topic, b"one", b"two")
    transactions.commit()
    transactions.write(topic, b"never")
    transactions.abort()
    transactions.write(topic, b"three")
    transactions.commit()
    transactions.close()
    for reader in PEERS:
        assert values_of(reader, broker.address, topic, 3) == [b"one", b"two", b"three"], reader


def test_a_reader_waits_at_a_transaction_that_is_open(broker, topic):
    transactions = LibrdkafkaTransactions(broker.address, f"writer-of-{topic}")
    transactions.write(topic, b"open")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.address, "group.id": topic, "isolation.level": "read_committed"}
    )
    place = confluent_kafka.TopicPartition(topic, 0, 0)
    assert consumer.get_watermark_offsets(place, timeout=WAIT_S) == (0, 0)
    transactions.commit()
    consumer.assign([place])
    assert consumer.poll(WAIT_S).value() == b"open"
    consumer.close()


def test_a_native_transaction_is_read_by_kafkas_clients(broker, topic):
    with FlyMQClient(broker.address) as client:
        client.create_topic(topic, partitions=1)
        with client.transaction() as transaction:
            transaction.produce(topic, b"committed")
        aborted = client.begin_transaction()
        aborted.produce(topic, b"aborted")
        aborted.abort()
        client.produce(topic, b"plain")
    for reader in PEERS:
        assert values_of(reader, broker.address, topic, 2) == [b"committed", b"plain"], reader


def test_a_producer_whose_transactional_id_was_taken_over_is_fenced(broker, topic):
    first = LibrdkafkaTransactions(broker.address, f"writer-of-{topic}")
    first.write(topic, b"left open")
    second = LibrdkafkaTransactions(broker.address, f"writer-of-{topic}")
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        first.commit()
    assert refused.value.args[0].fatal()
    second.write(topic, b"of the second")
    second.commit()
    assert values_of("librdkafka", broker.address, topic, 1) == [b"of the second"]


def committed_offset(address: str, group: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": address})
    asked = ConsumerGroupTopicPartitions(group, [confluent_kafka.TopicPartition(topic, 0)])
    return admin.list_consumer_group_offsets([asked])[group].result().topic_partitions[0].offset


def test_librdkafka_commits_what_it_read_together_with_what_it_wrote(broker, topic):
    target = f"{topic}-out"
    PEERS["native"].write(broker.address, topic, [Row(None, b"%d" % n) for n in range(10)])
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for ends_by in (producer.abort_transaction, producer.commit_transaction):
        messages: list[confluent_kafka.Message] = []
        while len(messages) < 10:
            messages += consumer.consume(10 - len(messages), WAIT_S)
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value() * 2, partition=0)
        positions = [confluent_kafka.TopicPartition(topic, 0, messages[-1].offset() + 1)]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
        ends_by(WAIT_S)
        if ends_by == producer.abort_transaction:
            assert committed_offset(broker.address, topic, topic) == confluent_kafka.OFFSET_INVALID
            consumer.seek(confluent_kafka.TopicPartition(topic, 0, 0))
    consumer.close()
    assert committed_offset(broker.address, topic, topic) == 10
    assert values_of("native", broker.address, target, 10) == [b"%d%d" % (n, n) for n in range(10)]


async def test_aiokafka_commits_offsets_with_a_transaction(broker, topic):
    async with (
        aiokafka.AIOKafkaProducer(bootstrap_servers=broker.address, transactional_id=topic) as producer,
        aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=broker.address, group_id=topic, enable_auto_commit=False
        ) as consumer,
    ):
        async with producer.transaction():
            await producer.send(topic, b"value", partition=0)
            place = aiokafka.TopicPartition(topic, 0)
            await producer.send_offsets_to_transaction({place: 1}, topic)
        assert await consumer.committed(place) == 1


def test_a_transaction_is_listed_while_it_is_open(broker, topic):
    transactions = LibrdkafkaTransactions(broker.address, f"writer-of-{topic}")
    transactions.write(topic, b"open")
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        described = admin.describe_transactions([f"writer-of-{topic}"])
        assert "Ongoing" in str(described)
    finally:
        admin.close()
    transactions.abort()
