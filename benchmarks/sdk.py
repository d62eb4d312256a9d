"""The SDK from one Python process, 100-byte messages, against a broker in another process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median

from benchmarks.figures import percentile
from benchmarks.librdkafka_client import LibrdkafkaClient
from benchmarks.processes import broker
from benchmarks.row import Row, row, show
from flymq import AsyncFlyMQClient, FlyMQClient

VALUE = b"x" * 100
PARTITIONS = 4
_SETTINGS = {"retention.bytes": 2 << 30}


PEER = "confluent-kafka"


def run(quick: bool = False) -> list[Row]:
    count = 200_000 if quick else 1_000_000
    with broker() as measured, FlyMQClient(f"127.0.0.1:{measured.port}") as client:
        peer = LibrdkafkaClient(measured.port)
        return [
            *_produce(client, peer, count, rounds=1 if quick else 3),
            *_consume(client, peer, count, rounds=1 if quick else 3),
            *_latency(client, peer, 500 if quick else 3000),
            *asyncio.run(_async_rows(measured.port, count)),
        ]


Work = Callable[[], None]


def _beside(what: str, count: int, work: Work, peer_work: Work, rounds: int, target: str = "") -> Row:
    """Return the best of several alternating rounds: on a shared machine the slower ones measure other load."""
    best = peer_best = 0.0
    for _ in range(rounds):
        best = max(best, _rate(count, work))
        peer_best = max(peer_best, _rate(count, peer_work))
    return row(what, best, "msgs/s", peer=PEER, peer_value=peer_best, target=target)


def _rate(count: int, work: Work) -> float:
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def _produce(client: FlyMQClient, peer: LibrdkafkaClient, count: int, rounds: int) -> list[Row]:
    topic = "sdk-produce"
    client.create_topic(topic, PARTITIONS, settings=_SETTINGS)

    def in_batches(what: str, size: int, key: Callable[[int], str | None], target: str = "") -> Row:
        messages = [(key(n), VALUE) for n in range(size)]
        peer_messages: list[dict[str, object]] = [
            {"value": VALUE} if key(n) is None else {"value": VALUE, "key": key(n)} for n in range(size)
        ]
        times = count // size

        def work() -> None:
            for _ in range(times):
                client.produce_batch(topic, messages)

        return _beside(what, count, work, lambda: peer.send_batches(topic, peer_messages, times), rounds, target)

    def one_by_one() -> None:
        with client.producer() as producer:
            for _ in range(count):
                producer.send(topic, VALUE)

    def with_keys() -> None:
        with client.producer() as producer:
            for n in range(count):
                producer.send(topic, VALUE, f"key-{n}")

    return [
        in_batches("produce_batch of 10,000 values", 10_000, lambda n: None, ">= 1 M"),
        in_batches("produce_batch of 10,000, text keys", 10_000, "key-{}".format),
        in_batches("produce_batch of 1,000, text keys", 1_000, "key-{}".format),
        _beside("send one by one", count, one_by_one, lambda: peer.send(topic, VALUE, count), rounds, ">= 250 k"),
        _beside(
            "send one by one, text keys",
            count,
            with_keys,
            lambda: peer.send(topic, VALUE, count, with_keys=True),
            rounds,
        ),
    ]


def _consume(client: FlyMQClient, peer: LibrdkafkaClient, count: int, rounds: int) -> list[Row]:
    topic = "sdk-consume"
    client.create_topic(topic, PARTITIONS, settings=_SETTINGS)
    for _ in range(count // 10_000):
        client.produce_batch(topic, [(f"key-{n}", VALUE) for n in range(10_000)])

    def in_batches() -> None:
        left = count
        with client.consumer(topic) as consumer:
            for batch in consumer.batches():
                left -= len([record.value for record in batch])
                if left <= 0:
                    return

    def one_by_one() -> None:
        left = count
        with client.consumer(topic) as consumer:
            for record in consumer:
                record.value  # noqa: B018 (both sides look at what they read)
                left -= 1
                if left <= 0:
                    return

    return [
        _beside(
            "consume in batches",
            count,
            in_batches,
            lambda: peer.read_batches(topic, PARTITIONS, count),
            rounds,
            ">= 1.5 M",
        ),
        _beside(
            "consume one by one",
            count,
            one_by_one,
            lambda: peer.read_one_by_one(topic, PARTITIONS, count),
            rounds,
            ">= 500 k",
        ),
    ]


def _latency(client: FlyMQClient, peer: LibrdkafkaClient, count: int) -> list[Row]:
    client.create_topic("sdk-latency", 1)
    times = []
    for _ in range(count):
        started = time.perf_counter()
        client.produce("sdk-latency", VALUE)
        times.append(time.perf_counter() - started)
    peer_times = peer.round_trips("sdk-latency", VALUE, count)
    times.sort()
    peer_times.sort()
    return [
        row(
            f"blocking produce, p{share}",
            percentile(times, share / 100) * 1e6,
            "us",
            peer=PEER,
            peer_value=percentile(peer_times, share / 100) * 1e6,
        )
        for share in (50, 99)
    ]


async def _async_rows(port: int, count: int) -> list[Row]:
    async with AsyncFlyMQClient(f"127.0.0.1:{port}") as client:
        times = []
        for _ in range(1000):
            started = time.perf_counter()
            await client.produce("sdk-latency", VALUE)
            times.append(time.perf_counter() - started)
        started = time.perf_counter()
        async with client.producer() as producer:
            for _ in range(count):
                await producer.send("sdk-produce", VALUE)
        sent = count / (time.perf_counter() - started)
        started, left = time.perf_counter(), count
        async with client.consumer("sdk-consume") as consumer:
            async for _ in consumer:
                left -= 1
                if left <= 0:
                    break
        read = count / (time.perf_counter() - started)
    return [
        row("asyncio produce, p50", median(times) * 1e6, "us"),
        row("asyncio send one by one", sent, "msgs/s"),
        row("asyncio consume one by one", read, "msgs/s"),
    ]


if __name__ == "__main__":
    print(show(run()))
