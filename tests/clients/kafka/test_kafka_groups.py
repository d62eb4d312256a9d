"""Consumer groups of Kafka's clients: assignments, members that join and leave, offsets, and native members."""

import asyncio
import threading

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from tests.clients.kafka.members import fill, librdkafka_member, poll_until, poll_values
from tests.clients.kafka.peers import KAFKA_PEERS, WAIT_S, Row, kafka

from flymq import FlyMQClient


def read_as_librdkafka(broker, topic: str, group: str, count: int) -> list[int]:
    consumer = librdkafka_member(broker.address, group)
    consumer.subscribe([topic])
    values = poll_values(consumer, count)
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def read_as_aiokafka(broker, topic: str, group: str, count: int) -> list[int]:
    async def read() -> list[int]:
        async with aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=broker.address, group_id=group, auto_offset_reset="earliest"
        ) as consumer:
            values = [int((await asyncio.wait_for(consumer.getone(), WAIT_S)).value) for _ in range(count)]
            await consumer.commit()
            return values

    return asyncio.run(read())


def read_as_kafka_python(broker, topic: str, group: str, count: int) -> list[int]:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=int(WAIT_S * 1000),
        max_poll_records=1,
    )
    values = []
    for message in consumer:
        values.append(int(message.value))
        if len(values) == count:
            break
    consumer.commit()
    consumer.close()
    return values


def read_as_native(broker, topic: str, group: str, count: int) -> list[int]:
    values: list[int] = []
    with FlyMQClient(broker.address) as client, client.consumer(topic, group=group, start="earliest") as consumer:
        while len(values) < count:
            values += [int(each.value) for each in consumer.poll(WAIT_S * 1000, max_records=count - len(values))]
        consumer.commit()
    return values


READERS = {
    "librdkafka": read_as_librdkafka,
    "aiokafka": read_as_aiokafka,
    "kafka-python": read_as_kafka_python,
    "native": read_as_native,
}


@pytest.mark.shows("groups: go on where they committed", by="reader")
@pytest.mark.parametrize("reader", READERS)
def test_a_group_goes_on_where_it_committed_whatever_its_next_member_speaks(broker, topic, reader):
    fill(broker.address, topic, 40, partitions=1)
    assert READERS[reader](broker, topic, topic, 10) == list(range(10))
    position = 10
    for name, other in READERS.items():
        assert other(broker, topic, topic, 5) == list(range(position, position + 5)), name
        position += 5


@pytest.mark.shows("groups: members join and leave", client="librdkafka")
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_and_take_over_from_one_that_leaves(broker, topic, strategy):
    fill(broker.address, topic)
    first = librdkafka_member(broker.address, topic, **{"partition.assignment.strategy": strategy})
    second = librdkafka_member(broker.address, topic, **{"partition.assignment.strategy": strategy})
    first.subscribe([topic])
    poll_until(lambda: len(first.assignment()) == 4, first)
    second.subscribe([topic])
    poll_until(lambda: len(second.assignment()) == 2 and len(first.assignment()) == 2, first, second)
    assigned = {(each.topic, each.partition) for member in (first, second) for each in member.assignment()}
    assert assigned == {(topic, number) for number in range(4)}
    first.close()
    poll_until(lambda: len(second.assignment()) == 4, second)
    second.close()


@pytest.mark.shows("groups: members join and leave", client="aiokafka")
async def test_aiokafka_members_share_the_partitions_and_take_over(broker, topic):
    await asyncio.to_thread(fill, broker.address, topic)
    first, second = (
        aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=broker.address, group_id=topic, heartbeat_interval_ms=100, metadata_max_age_ms=500
        )
        for _ in range(2)
    )

    async def until(condition) -> None:
        for _ in range(int(WAIT_S / 0.02)):
            if condition():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("it did not come to that")

    await first.start()
    await until(lambda: len(first.assignment()) == 4)
    await second.start()
    await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
    assert not first.assignment() & second.assignment()
    await first.stop()
    await until(lambda: len(second.assignment()) == 4)
    await second.stop()


@pytest.mark.shows("groups: members join and leave", client="kafka-python")
def test_kafka_python_members_share_the_partitions_and_take_over(broker, topic):
    fill(broker.address, topic)

    def member() -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            topic, bootstrap_servers=broker.address, group_id=topic, heartbeat_interval_ms=100, session_timeout_ms=6000
        )

    def until(condition, *members: kafka.KafkaConsumer) -> None:
        for _ in range(int(WAIT_S / 0.05)):
            if condition():
                return
            for each in members:
                each.poll(50)
        raise AssertionError("it did not come to that")

    first = member()
    until(lambda: len(first.assignment()) == 4, first)
    second = member()
    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
    assert not first.assignment() & second.assignment()
    first.close()
    until(lambda: len(second.assignment()) == 4, second)
    second.close()


def test_a_kafka_member_and_a_native_one_share_a_group(broker, topic):
    fill(broker.address, topic)
    member = librdkafka_member(broker.address, topic, **{"partition.assignment.strategy": "range"})
    member.subscribe([topic])
    poll_until(lambda: len(member.assignment()) == 4, member)
    with FlyMQClient(broker.address) as client, client.consumer(topic, group=topic, assignors=["range"]) as native:
        joining = threading.Thread(target=lambda: native.poll(WAIT_S * 1000))
        joining.start()
        poll_until(lambda: len(member.assignment()) == 2, member)
        joining.join()
        mine = {each.partition for each in member.assignment()}
        assert mine | {each.partition for each in native.assignment()} == {0, 1, 2, 3}
        assert len(native.assignment()) == 2
    member.close()


def test_a_static_member_that_restarts_keeps_its_partitions_without_a_new_generation(broker, topic):
    fill(broker.address, topic)
    settings = {"group.instance.id": "worker-1"}
    member = librdkafka_member(broker.address, topic, **settings)
    member.subscribe([topic])
    poll_until(lambda: len(member.assignment()) == 4, member)
    member.close()
    again = librdkafka_member(broker.address, topic, **settings)
    again.subscribe([topic])
    poll_until(lambda: len(again.assignment()) == 4, again)
    again.close()


def test_a_commit_of_a_member_that_is_gone_is_refused(broker, topic):
    fill(broker.address, topic)
    member = librdkafka_member(broker.address, topic)
    member.subscribe([topic])
    poll_until(lambda: len(member.assignment()) == 4, member)
    outsider = librdkafka_member(broker.address, topic)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        outsider.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 3)], asynchronous=False)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID
    member.close()
    outsider.close()


def test_offsets_carry_a_note_and_an_unknown_group_has_none(broker, topic):
    fill(broker.address, topic)
    consumer = librdkafka_member(broker.address, topic)
    place = confluent_kafka.TopicPartition(topic, 0, 7, metadata="seven")
    consumer.commit(offsets=[place], asynchronous=False)
    found = consumer.committed([confluent_kafka.TopicPartition(topic, number) for number in (0, 1)], timeout=WAIT_S)
    assert [(each.offset, each.metadata) for each in found] == [(7, "seven"), (confluent_kafka.OFFSET_INVALID, None)]
    consumer.close()


def test_groups_are_listed_described_and_deleted(broker, topic):
    fill(broker.address, topic)
    admin = AdminClient({"bootstrap.servers": broker.address})
    member = librdkafka_member(broker.address, topic, **{"client.id": "reader"})
    member.subscribe([topic])
    poll_until(lambda: len(member.assignment()) == 4, member)
    listed = {group.group_id: group for group in admin.list_consumer_groups().result().valid}
    assert listed[topic].state is ConsumerGroupState.STABLE
    described = admin.describe_consumer_groups([topic])[topic].result()
    assert [each.client_id for each in described.members] == ["reader"]
    assert len(described.members[0].assignment.topic_partitions) == 4
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.delete_consumer_groups([topic])[topic].result()
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    member.close()
    admin.delete_consumer_groups([topic])[topic].result()
    assert topic not in {group.group_id for group in admin.list_consumer_groups().result().valid}


def test_offsets_are_altered_from_outside_while_nobody_reads(broker, topic):
    fill(broker.address, topic)
    admin = AdminClient({"bootstrap.servers": broker.address})
    wanted = ConsumerGroupTopicPartitions(topic, [confluent_kafka.TopicPartition(topic, 2, 5)])
    admin.alter_consumer_group_offsets([wanted])[topic].result()
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)])[topic].result()
    assert [(each.partition, each.offset) for each in found.topic_partitions] == [(2, 5)]


def test_what_a_row_is_stays_the_same_in_a_group(broker, topic):
    row = Row(b"key", None, (("header", b"value"),))
    KAFKA_PEERS["aiokafka"].write(broker.address, topic, [row])
    consumer = librdkafka_member(broker.address, topic)
    consumer.subscribe([topic])
    message = consumer.poll(WAIT_S)
    assert (message.key(), message.value(), tuple(message.headers())) == row[:3]
    consumer.close()
