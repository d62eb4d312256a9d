"""Each system's Python client at its best: many messages under way, read in the largest pieces it offers.

A program writes `count` messages of 100 bytes to a topic of its own and reads them back; both return the seconds that
took, without connecting. These are limits of the clients more than of the servers: that is what a Python team gets.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import confluent_kafka
import nats
import pika
import redis
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from benchmarks.peers.contender import MESSAGE_BYTES
from flymq import FlyMQClient

VALUE = b"x" * MESSAGE_BYTES
_PIECE = 1_000


class Sdk:
    """FlyMQ's own client, over FlyMQ's protocol."""

    name = "FlyMQ's SDK"

    def produce(self, port: int, topic: str, count: int) -> float:
        with FlyMQClient(f"127.0.0.1:{port}") as client:
            client.create_topic(topic, 1)
            producer = client.default_producer()
            began_s = time.perf_counter()
            for _ in range(count):
                producer.send(topic, VALUE)
            client.flush()
            return time.perf_counter() - began_s

    def consume(self, port: int, topic: str, count: int) -> float:
        with FlyMQClient(f"127.0.0.1:{port}") as client, client.consumer(topic) as consumer:
            began_s, left = time.perf_counter(), count
            for batch in consumer.batches():
                left -= len(batch)
                if left <= 0:
                    break
            return time.perf_counter() - began_s


class Confluent:
    """The Python client of Kafka on librdkafka, for Kafka and for FlyMQ alike."""

    name = "confluent-kafka"

    def produce(self, port: int, topic: str, count: int) -> float:
        producer = confluent_kafka.Producer({"bootstrap.servers": f"127.0.0.1:{port}", "acks": "1", "log_level": 0})
        producer.list_topics(topic)
        began_s = time.perf_counter()
        for _ in range(count):
            while True:
                try:
                    producer.produce(topic, VALUE, partition=0)
                    break
                except BufferError:
                    producer.poll(0.01)
        assert producer.flush(60) == 0, "not all messages were written"
        return time.perf_counter() - began_s

    def consume(self, port: int, topic: str, count: int) -> float:
        settings = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "bench", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer({**settings, "log_level": 0})
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        began_s, left = time.perf_counter(), count
        while left > 0:
            left -= len(consumer.consume(10_000, 1.0))
        elapsed_s = time.perf_counter() - began_s
        consumer.close()
        return elapsed_s


class NatsPy:
    name = "nats-py"

    def produce(self, port: int, topic: str, count: int) -> float:
        return asyncio.run(self._produce(port, topic, count))

    async def _produce(self, port: int, topic: str, count: int) -> float:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        stream = client.jetstream(publish_async_max_pending=_PIECE)
        await stream.add_stream(name=topic, subjects=[topic])
        began_s = time.perf_counter()
        for _ in range(count):
            await stream.publish_async(topic, VALUE)
        await stream.publish_async_completed()
        elapsed_s = time.perf_counter() - began_s
        await client.close()
        return elapsed_s

    def consume(self, port: int, topic: str, count: int) -> float:
        return asyncio.run(self._consume(port, topic, count))

    async def _consume(self, port: int, topic: str, count: int) -> float:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE)
        pulling = await client.jetstream().pull_subscribe(topic, durable="bench", config=config)
        began_s, left = time.perf_counter(), count
        while left > 0:
            messages = await pulling.fetch(min(_PIECE, left))
            left -= len(messages)
        elapsed_s = time.perf_counter() - began_s
        await client.close()
        return elapsed_s


class RedisPy:
    name = "redis-py"

    def produce(self, port: int, topic: str, count: int) -> float:
        with redis.Redis(port=port) as client:
            began_s = time.perf_counter()
            for _ in range(count // _PIECE):
                pipeline = client.pipeline(transaction=False)
                for _ in range(_PIECE):
                    pipeline.xadd(topic, {b"v": VALUE})
                pipeline.execute()
            return time.perf_counter() - began_s

    def consume(self, port: int, topic: str, count: int) -> float:
        with redis.Redis(port=port) as client:
            began_s, left, last = time.perf_counter(), count, b"0"
            while left > 0:
                found: Any = client.xread({topic: last}, count=_PIECE)
                entries = found[0][1]
                last, left = entries[-1][0], left - len(entries)
            return time.perf_counter() - began_s


class Pika:
    """RabbitMQ's client. Its blocking channel confirms one message at a time, so messages are written without confirms:
    faster than the promise allows."""

    name = "pika, without confirms"

    def produce(self, port: int, topic: str, count: int) -> float:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            channel.queue_declare(topic, durable=True, arguments={"x-queue-type": "stream"})
            began_s = time.perf_counter()
            for _ in range(count):
                channel.basic_publish("", topic, VALUE)
            channel.queue_declare(topic, passive=True)  # answered after all that was sent before it
            return time.perf_counter() - began_s

    def consume(self, port: int, topic: str, count: int) -> float:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=2 * _PIECE)
            began_s = time.perf_counter()
            messages = channel.consume(topic, arguments={"x-stream-offset": "first"})
            for number, (method, _, _) in enumerate(messages, start=1):
                if number % _PIECE == 0 or number == count:
                    channel.basic_ack(method.delivery_tag, multiple=True)
                if number == count:
                    break
            return time.perf_counter() - began_s
