"""The SDK from one Python process, 100-byte messages, against a broker in another process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median

from benchmarks.processes import broker
from benchmarks.row import Row, row, show
from flymq import AsyncFlyMQClient, Consumer, FlyMQClient

VALUE = b"x" * 100
PARTITIONS = 4
_SETTINGS = {"retention.bytes": 2 << 30}


def run(quick: bool = False) -> list[Row]:
    count = 200_000 if quick else 1_000_000
    with broker() as measured, FlyMQClient(f"127.0.0.1:{measured.port}") as client:
        return [
            *_produce(client, count, rounds=1 if quick else 3),
            *_consume(client, count, rounds=1 if quick else 3),
            *_latency(client, 500 if quick else 3000),
            *asyncio.run(_async_rows(measured.port, count)),
        ]


def _rate(count: int, work: Callable[[], None], rounds: int) -> float:
    """Return the best of several rounds: on a shared machine the slower ones measure the neighbours."""
    best = 0.0
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        best = max(best, count / (time.perf_counter() - started))
    return best


def _produce(client: FlyMQClient, count: int, rounds: int) -> list[Row]:
    client.create_topic("sdk-produce", PARTITIONS, settings=_SETTINGS)

    def batches(size: int, key: Callable[[int], str | None]) -> Callable[[], None]:
        messages = [(key(n), VALUE) for n in range(size)]

        def work() -> None:
            for _ in range(count // size):
                client.produce_batch("sdk-produce", messages)

        return work

    def one_by_one() -> None:
        with client.producer() as producer:
            for _ in range(count):
                producer.send("sdk-produce", VALUE)

    def with_key() -> None:
        with client.producer() as producer:
            for n in range(count):
                producer.send("sdk-produce", VALUE, f"key-{n}")

    return [
        row(
            "produce_batch of 10,000 values",
            _rate(count, batches(10_000, lambda n: None), rounds),
            "msgs/s",
            target=">= 1 M",
        ),
        row(
            "produce_batch of 10,000, text keys", _rate(count, batches(10_000, lambda n: f"key-{n}"), rounds), "msgs/s"
        ),
        row("produce_batch of 1,000, text keys", _rate(count, batches(1_000, "key-{}".format), rounds), "msgs/s"),
        row("send one by one", _rate(count, one_by_one, rounds), "msgs/s", target=">= 250 k"),
        row("send one by one, text keys", _rate(count, with_key, rounds), "msgs/s"),
    ]


def _consume(client: FlyMQClient, count: int, rounds: int) -> list[Row]:
    client.create_topic("sdk-consume", PARTITIONS, settings=_SETTINGS)
    for _ in range(count // 10_000):
        client.produce_batch("sdk-consume", [(f"key-{n}", VALUE) for n in range(10_000)])

    def reading(read: Callable[[Consumer], None]) -> Callable[[], None]:
        def work() -> None:
            with client.consumer("sdk-consume") as consumer:
                read(consumer)

        return work

    def in_batches(consumer: Consumer) -> None:
        left = count
        for batch in consumer.batches():
            left -= len(batch)
            if left <= 0:
                return

    def one_by_one(consumer: Consumer) -> None:
        left = count
        for _ in consumer:
            left -= 1
            if left <= 0:
                return

    return [
        row("consume in batches", _rate(count, reading(in_batches), rounds), "msgs/s", target=">= 1.5 M"),
        row("consume one by one", _rate(count, reading(one_by_one), rounds), "msgs/s", target=">= 500 k"),
    ]


def _latency(client: FlyMQClient, count: int) -> list[Row]:
    client.create_topic("sdk-latency", 1)
    times = []
    for _ in range(count):
        started = time.perf_counter()
        client.produce("sdk-latency", VALUE)
        times.append(time.perf_counter() - started)
    times.sort()
    return [
        row("blocking produce, p50", median(times) * 1e6, "us"),
        row("blocking produce, p99", times[int(len(times) * 0.99)] * 1e6, "us"),
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
