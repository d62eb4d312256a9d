"""Reading records with the SDK, without a group."""

import asyncio
import threading

import pytest

from flymq import AsyncFlyMQClient, ConsumerRecord, FlyMQClient, TopicPartition, serializers
from flymq.errors import (
    ClientClosed,
    DeserializationFailed,
    InvalidSetting,
    OffsetOutOfRange,
    PartitionNotFound,
    RecordNotFound,
    TopicNotFound,
)


def fill(client: FlyMQClient, topic: str, count: int, partitions: int = 1) -> None:
    client.create_topic(topic, partitions=partitions)
    client.produce_batch(topic, [(f"key-{n}", b"%d" % n) for n in range(count)])


def take(consumer, count: int) -> list[int]:
    read = []
    for record in consumer:
        read.append(int(record.value))
        if len(read) == count:
            return read
    return read


def test_a_record_is_read_by_its_offset(client, topic):
    fill(client, topic, 3)
    record = client.consume(topic, 1)
    assert (record.topic, record.partition, record.offset, record.key, record.value) == (topic, 0, 1, b"key-1", b"1")


def test_what_is_not_there_is_named(client, topic):
    fill(client, topic, 3)
    with pytest.raises((OffsetOutOfRange, RecordNotFound)):
        client.consume(topic, 99)
    with pytest.raises(PartitionNotFound):
        client.consume(topic, 0, partition=9)
    with pytest.raises(TopicNotFound):
        client.consume("no-such-topic", 0)
    assert "no-such-topic" not in client.list_topics(), "reading by mistake creates nothing"


def test_fetch_returns_what_is_there_from_an_offset_on(client, topic):
    fill(client, topic, 10)
    assert [record.offset for record in client.fetch(topic, offset=7)] == [7, 8, 9]
    assert [record.offset for record in client.fetch(topic, max_records=2)] == [0, 1]
    assert client.fetch(topic, offset=10) == []


def test_iterating_reads_all_partitions_and_each_in_order(client, topic):
    fill(client, topic, 500, partitions=4)
    with client.consumer(topic) as consumer:
        assert sorted(take(consumer, 500)) == list(range(500))


def test_a_consumer_waits_for_records_that_come_later(client, topic):
    client.create_topic(topic, partitions=1)
    with client.consumer(topic) as consumer:
        writer = threading.Thread(target=lambda: client.produce_batch(topic, [b"%d" % n for n in range(3)]))
        writer.start()
        assert take(consumer, 3) == [0, 1, 2]
        writer.join()


def test_a_loop_can_be_left_and_entered_again(client, topic):
    fill(client, topic, 10)
    with client.consumer(topic) as consumer:
        assert take(consumer, 3) == [0, 1, 2]
        assert [int(record.value) for record in consumer.poll(max_records=2)] == [3, 4]
        assert take(consumer, 2) == [5, 6]
        assert [int(record.value) for record in next(consumer.batches())] == [7, 8, 9]


def test_starting_at_the_end_reads_only_what_is_new(client, topic):
    fill(client, topic, 5)
    with client.consumer(topic, start="latest") as consumer:
        client.produce(topic, b"99")
        assert take(consumer, 1) == [99]


def test_poll_returns_nothing_when_nothing_comes(client, topic):
    client.create_topic(topic)
    with client.consumer(topic) as consumer:
        assert consumer.poll(timeout_ms=20) == []


def test_poll_returns_at_most_what_was_asked_for(client, topic):
    fill(client, topic, 1200)
    with client.consumer(topic) as consumer:
        assert len(consumer.poll(20_000)) == 500
        assert len(consumer.poll(20_000, max_records=7)) == 7
        rest: list[ConsumerRecord] = []
        while len(rest) < 1200 - 507:
            rest += consumer.poll(20_000)
        assert [record.offset for record in rest] == list(range(507, 1200))


def test_chosen_partitions_only(client, topic):
    fill(client, topic, 100, partitions=4)
    with client.consumer(topic, partitions=[1, 3]) as consumer:
        assert consumer.assignment() == [(topic, 1), (topic, 3)]
        assert {record.partition for record in consumer.poll(20_000)} <= {1, 3}


def test_a_partition_the_topic_does_not_have_is_refused(client, topic):
    client.create_topic(topic, partitions=1)
    with pytest.raises(PartitionNotFound):
        client.consumer(topic, partitions=[5]).start()


def test_several_topics_in_one_consumer(client, topic):
    other = f"{topic}-other"
    fill(client, topic, 5)
    fill(client, other, 5)
    with client.consumer(topic, other) as consumer:
        assert sorted(take(consumer, 10)) == sorted([*range(5), *range(5)])


def test_seek_goes_anywhere_also_in_the_middle_of_a_loop(client, topic):
    fill(client, topic, 10)
    with client.consumer(topic) as consumer:
        read = []
        for record in consumer:
            read.append(record.offset)
            if read == [0, 1, 2]:
                consumer.seek(topic, 0, 8)
            if record.offset == 9:
                break
        assert read == [0, 1, 2, 8, 9]
        consumer.seek_to_beginning()
        assert take(consumer, 1) == [0]
        assert consumer.position(topic, 0) == 1
        consumer.seek_to_end()
        client.produce(topic, b"10")
        assert take(consumer, 1) == [10]


def test_seek_by_time(client, topic):
    client.create_topic(topic, partitions=1)
    for n in range(5):
        client.produce(topic, b"%d" % n, timestamp=1000 + 10 * n)
    with client.consumer(topic) as consumer:
        consumer.seek_to_time(1015)
        assert take(consumer, 1) == [2]
        consumer.seek_to_time(5000)
        assert consumer.position(topic, 0) == 5
    assert client.admin.offsets_at(topic, 1020) == {(topic, 0): 2}


def test_a_paused_partition_hands_out_nothing_until_it_is_resumed(client, topic):
    fill(client, topic, 40, partitions=2)
    paused = TopicPartition(topic, 0)
    with client.consumer(topic) as consumer:
        consumer.pause(paused)
        assert consumer.paused() == [paused]
        others = client.admin.latest_offsets(topic)[TopicPartition(topic, 1)]
        read: list[ConsumerRecord] = []
        while len(read) < others:
            read += consumer.poll(20_000)
        assert {record.partition for record in read} == {1}
        assert consumer.poll(timeout_ms=20) == []
        consumer.resume(paused)
        while len(read) < 40:
            read += consumer.poll(20_000)
        assert sorted(int(record.value) for record in read) == list(range(40))


def test_an_offset_that_is_gone_leads_to_where_records_are(client, topic):
    fill(client, topic, 10)
    with client.consumer(topic) as consumer:
        client.admin.delete_records({TopicPartition(topic, 0): 10})
        client.produce(topic, b"10")
        consumer.seek(topic, 0, 3)
        assert take(consumer, 1) == [10]


def test_an_offset_that_is_gone_is_an_error_when_so_configured(client, topic):
    fill(client, topic, 10)
    client.admin.delete_records({TopicPartition(topic, 0): 10})
    with client.consumer(topic, start="none") as consumer, pytest.raises(OffsetOutOfRange):
        consumer.poll(20_000)


def test_values_are_deserialized_and_a_broken_one_can_be_skipped(client, topic):
    client.create_topic(topic, partitions=1)
    client.produce_batch(topic, [b"1", b"2", b"broken", b"4"])
    with client.consumer(topic, value_deserializer=serializers.from_json) as consumer:
        read = []
        with pytest.raises(DeserializationFailed) as refusal:
            for record in consumer:
                read.append(record.value)
        assert (read, refusal.value.offset) == ([1, 2], 2)
        consumer.skip(refusal.value)
        assert [record.value for record in consumer.poll(20_000)] == [4]


def test_lag_says_how_much_is_still_to_come(client, topic):
    fill(client, topic, 10)
    with client.consumer(topic) as consumer:
        take(consumer, 4)
        assert consumer.lag() == {(topic, 0): 6}


def test_stop_ends_a_loop_from_another_thread(client, topic):
    client.create_topic(topic)
    with client.consumer(topic) as consumer:
        threading.Thread(target=consumer.stop).start()
        assert take(consumer, 1) == []


def test_new_partitions_are_read_from_their_first_record(broker, topic):
    with FlyMQClient(broker.address, metadata_max_age_ms=100) as client:
        fill(client, topic, 1)
        with client.consumer(topic) as consumer:
            assert take(consumer, 1) == [0]
            client.admin.add_partitions(topic, 2)
            with FlyMQClient(broker.address) as writer:
                writer.produce(topic, b"1", partition=1)
            assert take(consumer, 1) == [1]


def test_a_record_larger_than_what_is_fetched_at_once_is_still_read(client, topic):
    client.create_topic(topic, partitions=1)
    client.produce(topic, bytes(300_000))
    with client.consumer(topic, partition_bytes_max=1000, fetch_bytes_max=1000) as consumer:
        assert [len(record.value) for record in consumer.poll(20_000)] == [300_000]


def test_reading_ahead_is_bounded(client, topic):
    client.create_topic(topic, partitions=1)
    client.produce_batch(topic, [bytes(10_000)] * 500)
    received_before = client.metrics().bytes_received
    with client.consumer(topic, partition_bytes_max=100_000, prefetch_bytes=100_000) as consumer:
        assert len(consumer.poll(20_000, max_records=1)) == 1
        consumer.poll(timeout_ms=50, max_records=1)
        assert client.metrics().bytes_received - received_before < 2_500_000


def test_commit_without_a_group_is_refused(client, topic):
    client.create_topic(topic)
    with client.consumer(topic) as consumer, pytest.raises(InvalidSetting, match="no group"):
        consumer.commit()


def test_a_closed_consumer_says_so(client, topic):
    client.create_topic(topic)
    consumer = client.consumer(topic)
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.poll()


async def test_all_of_it_works_from_asyncio(broker, topic):
    async with AsyncFlyMQClient(broker.address) as client:
        await client.produce_batch(topic, [(f"key-{n}", b"%d" % n) for n in range(100)])
        async with client.consumer(topic) as consumer:
            read = []
            async for record in consumer:
                read.append(int(record.value))
                if len(read) == 60:
                    break
            async for batch in consumer.batches():
                read += [int(record.value) for record in batch]
                if len(read) == 100:
                    break
            assert sorted(read) == list(range(100))
            assert await consumer.poll(timeout_ms=10) == []
            waiting = asyncio.ensure_future(consumer.poll(timeout_ms=20_000))
            await client.produce(topic, b"later")
            assert [record.value for record in await waiting] == [b"later"]
