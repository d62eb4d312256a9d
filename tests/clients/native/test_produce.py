"""Writing records with the SDK."""

import asyncio
import threading

import pytest

from flymq import AsyncFlyMQClient, FlyMQClient, serializers
from flymq.errors import ClientClosed, MessageTooLarge, PartitionNotFound, SerializationFailed, TopicNotFound
from flymq.record.partitioning import partition_for_key
from flymq.testing import running_broker


def read_all(client: FlyMQClient, topic: str) -> dict[int, list[bytes]]:
    """Return the values of each partition."""
    ends = client.admin.latest_offsets(topic)
    return {
        name.partition: [record.value for record in client.fetch(topic, name.partition, max_bytes=64 << 20)]
        for name, end in ends.items()
        if end
    }


def test_produce_returns_the_offset_and_where_it_is(client, topic):
    client.create_topic(topic, partitions=1)
    first, second = client.produce(topic, b"one"), client.produce(topic, b"two")
    assert (first, second) == (0, 1)
    assert (second.topic, second.partition, second.offset) == (topic, 0, 1)
    assert client.consume(topic, second).timestamp == second.timestamp


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_that_compresses_answers_and_reads_like_others(client, topic, codec):
    client.create_topic(topic, partitions=1, settings={"compression.type": codec})
    values = [b"value %d " % number * 100 for number in range(20)]
    assert [client.produce(topic, value) for value in values[:3]] == [0, 1, 2]
    with client.producer(compression="lz4") as producer:
        for value in values[3:]:
            producer.send(topic, value)
    assert read_all(client, topic) == {0: values}
    assert client.admin.describe_topic(topic).settings["compression.type"] == codec


def test_records_of_one_key_stay_together(client, topic):
    places = {client.produce(topic, b"v", key="user-1").partition for _ in range(5)}
    assert places == {partition_for_key(b"user-1", 4)}


def test_records_without_a_key_go_round_robin(client, topic):
    assert sorted(client.produce(topic, b"v").partition for _ in range(8)) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_batch_is_written_and_its_places_come_in_order(client, topic):
    messages = [(f"key-{n}", f"data-{n}".encode()) for n in range(1000)]
    places = client.produce_batch(topic, messages)
    assert len(places) == 1000
    for number in (0, 1, 500, 999):
        place = places[number]
        record = client.consume(topic, place, partition=place.partition)
        assert (record.key, record.value) == (f"key-{number}".encode(), f"data-{number}".encode())


def test_a_batch_larger_than_one_request_is_cut_and_kept_in_order(client, topic):
    client.create_topic(topic, partitions=1)
    values = [b"%06d" % n + bytes(1000) for n in range(3000)]
    places = client.produce_batch(topic, values)
    assert list(places) == list(range(3000))
    with client.consumer(topic) as consumer:
        read: list[bytes] = []
        while len(read) < len(values):
            read += [record.value[:6] for record in consumer.poll()]
    assert read == [value[:6] for value in values]


def test_sending_one_by_one_keeps_the_order_of_each_partition(client, topic):
    client.create_topic(topic, partitions=2)
    with client.producer(batch_bytes_max=2000) as producer:
        deliveries = [producer.send(topic, b"%d" % n, partition=n % 2) for n in range(2000)]
    assert all(delivery.done() for delivery in deliveries)
    written = read_all(client, topic)
    assert written == {parity: [b"%d" % n for n in range(2000) if n % 2 == parity] for parity in (0, 1)}
    assert [delivery.result() for delivery in deliveries[:4]] == [0, 0, 1, 1]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read_back(client, topic, compression):
    client.create_topic(topic, partitions=1)
    with client.producer(compression=compression) as producer:
        producer.produce_batch(topic, [b"same " * 50] * 100)
    assert [record.value for record in client.fetch(topic)] == [b"same " * 50] * 100


@pytest.mark.parametrize("acks", ["leader", "all"])
def test_every_level_of_acknowledgement_writes(client, topic, acks):
    with client.producer(acks=acks) as producer:
        assert producer.produce(topic, b"v") == 0


def test_without_acknowledgement_the_offset_is_not_known_but_the_record_is_written(client, topic):
    client.create_topic(topic, partitions=1)
    with client.producer(acks="none") as producer:
        assert producer.produce(topic, b"v") == -1
    with client.consumer(topic) as consumer:
        assert [record.value for record in consumer.poll(timeout_ms=20_000)] == [b"v"]


def test_headers_time_and_tombstones_are_kept(client, topic):
    client.create_topic(topic, partitions=1)
    client.produce(topic, None, key=b"gone", headers=[("trace", b"7"), ("text", "x")], timestamp=1234)
    record = client.consume(topic, 0)
    assert (record.key, record.value, record.timestamp) == (b"gone", None, 1234)
    assert record.headers == (("trace", b"7"), ("text", b"x"))


def test_callbacks_are_told_the_place_or_the_error(client, topic):
    client.create_topic(topic, partitions=1, settings={"max.message.bytes": 1000})
    told: list[object] = []
    with client.producer() as producer:
        producer.send(topic, b"small", on_delivery=lambda place, error: told.append(place))
        producer.flush()
        producer.send(topic, bytes(5000), on_delivery=lambda place, error: told.append(type(error)))
    assert told == [0, MessageTooLarge]


def test_a_failure_nobody_looked_at_is_raised_by_flush(client, topic):
    client.create_topic(topic, partitions=1, settings={"max.message.bytes": 1000})
    producer = client.producer()
    producer.send(topic, bytes(5000))
    with pytest.raises(MessageTooLarge):
        producer.flush()
    producer.flush()
    with pytest.raises(MessageTooLarge):
        producer.send(topic, bytes(5000)).result()
    producer.close()


def test_a_record_that_is_refused_does_not_hold_up_the_next(client, topic):
    client.create_topic(topic, partitions=1, settings={"max.message.bytes": 1000})
    for _ in range(2):
        with pytest.raises(MessageTooLarge):
            client.produce(topic, bytes(5000))
        client.produce(topic, b"small")
    assert [record.offset for record in client.fetch(topic)] == [0, 1]


def test_batches_respect_the_limit_of_their_topic(client, topic):
    client.create_topic(topic, partitions=1, settings={"max.message.bytes": 1000})
    client.produce_batch(topic, [bytes(100)] * 100)
    assert client.admin.latest_offsets(topic) == {(topic, 0): 100}


def test_a_full_buffer_blocks_and_loses_nothing(client, topic):
    client.create_topic(topic, partitions=1)
    with client.producer(buffer_bytes_max=4000, batch_bytes_max=1000) as producer:
        for n in range(500):
            producer.send(topic, b"%d" % n + bytes(100))
    assert [int(value.rstrip(b"\0")) for value in read_all(client, topic)[0]] == list(range(500))


def test_threads_can_share_a_client(client, topic):
    def work(name: int) -> None:
        for n in range(50):
            client.produce(topic, b"%d" % n, key=b"thread-%d" % name)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(map(len, read_all(client, topic).values())) == 400


def test_a_lingering_record_leaves_at_the_latest_with_flush(client, topic):
    with client.producer(linger_ms=60_000) as producer:
        delivery = producer.send(topic, b"v")
        assert not delivery.done()
        producer.flush()
        assert delivery.result() == 0


def test_a_partitioner_of_the_users_own_is_asked(client, topic):
    with client.producer(partitioner=lambda topic, key, value, count: int(value)) as producer:
        assert [producer.produce(topic, b"%d" % n).partition for n in (3, 0, 2)] == [3, 0, 2]


def test_values_are_serialized(client, topic):
    with client.producer(value_serializer=serializers.to_json) as producer:
        place = producer.produce(topic, {"n": 1})
        with pytest.raises(SerializationFailed):
            producer.produce(topic, object())
    assert client.consume(topic, place, partition=place.partition).value == b'{"n":1}'


def test_a_partition_that_does_not_exist_is_refused(client, topic):
    with pytest.raises(PartitionNotFound):
        client.produce(topic, b"v", partition=99)


def test_without_automatic_creation_a_missing_topic_is_an_error():
    with running_broker(settings={"topics.auto_create": False}) as strict, FlyMQClient(strict.address) as client:
        with pytest.raises(TopicNotFound) as refusal:
            client.produce("nowhere", b"v")
        assert "flymq topic create" in refusal.value.hint


def test_a_producer_learns_of_new_partitions(broker, topic):
    with FlyMQClient(broker.address, metadata_max_age_ms=100) as client:
        client.create_topic(topic, partitions=1)
        client.produce(topic, b"v")
        client.admin.add_partitions(topic, 3)
        while {client.produce(topic, b"v").partition for _ in range(3)} != {0, 1, 2}:
            pass


def test_a_closed_client_says_so(broker, topic):
    client = FlyMQClient(broker.address)
    client.produce(topic, b"v")
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        client.produce(topic, b"v")
    with pytest.raises(ClientClosed):
        client.list_topics()


async def test_all_of_it_works_from_asyncio(broker, topic):
    async with AsyncFlyMQClient(broker.address) as client:
        places = await asyncio.gather(*(client.produce(topic, b"v", key=b"k") for _ in range(100)))
        assert sorted(places) == list(range(100))
        async with client.producer(buffer_bytes_max=4000, batch_bytes_max=1000) as producer:
            deliveries = [await producer.send(topic, bytes(100), b"k") for _ in range(200)]
            await producer.flush()
            assert [await delivery for delivery in deliveries] == list(range(100, 300))
        result = await client.produce_batch(topic, [("k", b"v")] * 10)
        assert list(result) == list(range(300, 310))
