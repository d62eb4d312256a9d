"""Working on records in parallel, with retries and dead letters."""

import asyncio
import threading
from collections import defaultdict

import pytest

from flymq import AsyncFlyMQClient, FlyMQClient, serializers
from flymq.errors import InvalidSetting


def fill(client: FlyMQClient, topic: str, count: int, keys: int) -> None:
    client.create_topic(topic, partitions=2)
    client.produce_batch(topic, [(f"key-{n % keys}", b"%d" % n) for n in range(count)])


def test_every_record_is_worked_on_once_and_those_of_a_key_in_order(client, topic):
    fill(client, topic, 300, keys=7)
    seen: dict[bytes, list[int]] = defaultdict(list)
    guard, left = threading.Lock(), [300]
    with client.consumer(topic) as consumer:

        def handle(record) -> None:
            with guard:
                seen[record.key].append(int(record.value))
                left[0] -= 1
                if not left[0]:
                    consumer.stop()

        consumer.process(handle, concurrency=5)
    assert seen == {b"key-%d" % key: [n for n in range(300) if n % 7 == key] for key in range(7)}


def test_handlers_run_at_the_same_time(client, topic):
    fill(client, topic, 12, keys=12)
    together = threading.Barrier(12, timeout=20)
    with client.consumer(topic) as consumer:

        def handle(record) -> None:
            together.wait()
            consumer.stop()

        consumer.process(handle, concurrency=12, order_by="nothing")


def test_a_handler_that_fails_for_a_while_is_called_again(client, topic):
    fill(client, topic, 1, keys=1)
    calls = []
    with client.consumer(topic) as consumer:

        def handle(record) -> None:
            calls.append(record.offset)
            if len(calls) < 3:
                raise ConnectionError("the database is away")
            consumer.stop()

        consumer.process(handle, retries=3, retry_backoff_ms=1)
    assert calls == [0, 0, 0]


def test_a_record_that_keeps_failing_goes_to_the_dead_letters_byte_for_byte(client, topic):
    dead = f"{topic}-dead"
    client.create_topic(topic, partitions=1)
    client.create_topic(dead, partitions=1)
    client.produce(topic, b'{"good": 1}')
    client.produce(topic, b'{"bad": 1}', key=b"k", headers=[("trace", b"7")])
    client.produce(topic, b"not json")
    client.produce(topic, b'{"good": 2}')
    worked = []
    with client.consumer(topic, value_deserializer=serializers.from_json) as consumer:

        def handle(record) -> None:
            if "bad" in record.value:
                raise ValueError("cannot be helped")
            worked.append(record.value["good"])
            if record.value["good"] == 2:
                consumer.stop()

        consumer.process(handle, retries=1, retry_backoff_ms=1, dead_letter_topic=dead)
    assert worked == [1, 2]
    letters = {record.value: record for record in client.fetch(dead)}
    assert set(letters) == {b'{"bad": 1}', b"not json"}
    bad = letters[b'{"bad": 1}']
    assert bad.key == b"k"
    assert dict(bad.headers) == {
        "trace": b"7",
        "flymq-origin-topic": topic.encode(),
        "flymq-origin-partition": b"0",
        "flymq-origin-offset": b"1",
        "flymq-error": b"ValueError: cannot be helped",
    }
    assert b"DeserializationFailed" in dict(letters[b"not json"].headers)["flymq-error"]


def test_without_dead_letters_the_error_ends_the_work(client, topic):
    fill(client, topic, 3, keys=1)
    with client.consumer(topic) as consumer, pytest.raises(ZeroDivisionError):
        consumer.process(lambda record: 1 // 0, retries=0)


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"order_by": "mood"}, {"retries": -1}])
def test_a_wrong_setting_is_named(client, topic, wrong):
    client.create_topic(topic)
    with client.consumer(topic) as consumer, pytest.raises(InvalidSetting, match=next(iter(wrong))):
        consumer.process(print, **wrong)


async def test_slow_work_holds_up_reading(broker, topic):
    """However much there is to read, no more is taken than fits into the lanes and one fetch."""
    async with AsyncFlyMQClient(broker.address) as client:
        await client.create_topic(topic, partitions=1)
        for _ in range(50):
            await client.produce_batch(topic, [b"v"] * 100)
        working, gate = asyncio.Event(), asyncio.Event()
        async with client.consumer(topic, partition_bytes_max=1_000, prefetch_bytes=1_000) as consumer:

            async def handle(record) -> None:
                working.set()
                await gate.wait()
                consumer.stop()

            work = asyncio.ensure_future(consumer.process(handle, concurrency=3))
            await working.wait()
            for _ in range(5):
                await client.produce(topic, b"v")
            assert client.metrics().records_received < 500
            gate.set()
            await work
