"""Groups and transactions as programs use them, through the SDK: beside the same work without them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.figures import figure
from benchmarks.measurement import Load, load_row, timed
from benchmarks.processes import Measured, broker
from benchmarks.row import Row, row
from flymq import Consumer, ConsumerRecord, FlyMQClient

VALUE = b"x" * 100
_PARTITIONS = 4
_BATCH = 10_000
Work = Callable[[], object]


def run(quick: bool = False) -> list[Row]:
    count, rounds = (40_000, 1) if quick else (500_000, 3)
    with broker() as ours, FlyMQClient(f"127.0.0.1:{ours.port}") as client:
        return [
            *_consuming(client, ours, count, rounds),
            *_joining(client, rounds),
            *_writing(client, ours, count, rounds),
        ]


def _timed(ours: Measured, messages: int, work: Work) -> Load:
    def clocked() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return timed(ours, messages, clocked)


# --- reading --------------------------------------------------------------------------------------------------------


def _consuming(client: FlyMQClient, ours: Measured, count: int, rounds: int) -> list[Row]:
    client.create_topic("read", _PARTITIONS)
    for _ in range(count // _BATCH):
        client.produce_batch("read", [VALUE] * _BATCH)
    loads: dict[str, list[Load]] = {"alone": [], "group": [], "committing": []}
    for number in range(rounds):
        loads["alone"].append(_timed(ours, count, partial(_read, client.consumer("read"), count)))
        for way, commits in (("group", False), ("committing", True)):
            consumer = client.consumer("read", group=f"{way}-{number}")
            left = count - len(_first(consumer))
            loads[way].append(_timed(ours, left, partial(_read, consumer, left, commits)))
    alone = loads["alone"]
    return [
        load_row("SDK, consume without a group", alone),
        load_row("SDK, consume in a group, commits now and then", loads["group"], peer="no group", beside=alone),
        load_row("SDK, consume in a group, commit every batch", loads["committing"], peer="no group", beside=alone),
    ]


def _first(consumer: Consumer) -> list[ConsumerRecord]:
    """Return the first records: the group has formed, and reading alone is left to measure."""
    while not (records := consumer.poll(timeout_ms=1000)):
        pass
    return records


def _read(consumer: Consumer, count: int, commit: bool = False) -> None:
    with consumer:
        for batch in _until(consumer.batches(), count):
            if commit and batch:
                consumer.commit()


def _until(batches: Iterator[list[ConsumerRecord]], count: int) -> Iterator[list[ConsumerRecord]]:
    for batch in batches:
        count -= len(batch)
        yield batch
        if count <= 0:
            return


def _joining(client: FlyMQClient, rounds: int) -> list[Row]:
    """How long a new consumer waits for its first message: as the first of a group, and as a second member."""
    client.create_topic("join", _PARTITIONS)
    client.produce_batch("join", [VALUE] * 100)
    first_ms, second_ms = [], []
    for number in range(rounds):
        with client.consumer("join", group=f"join-{number}") as first:
            first_ms.append(_ms(partial(next, iter(first))))
            with client.consumer("join", group=f"join-{number}") as second:
                second_ms.append(_ms(partial(_until_shared, second, first)))
    return [
        row("group of one: from start to the first message", figure(first_ms), "ms"),
        row("second member: from start to a shared assignment", figure(second_ms), "ms"),
    ]


def _until_shared(second: Consumer, first: Consumer) -> None:
    second.start()
    while not second.assignment() or len(first.assignment()) == _PARTITIONS:
        first.poll(timeout_ms=1)


def _ms(work: Work) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


# --- transactions ---------------------------------------------------------------------------------------------------


def _writing(client: FlyMQClient, ours: Measured, count: int, rounds: int) -> list[Row]:
    """Messages in transactions, and the same batches with acks=all: both wait for the disk."""
    client.create_topic("written", _PARTITIONS)
    rows = []
    for size in (100, 1_000, 10_000)[: rounds + 1]:
        repeats = max(2, min(50, count // size // 2))
        messages = [VALUE] * size
        exact, plain = [], []
        for _ in range(rounds):
            exact.append(_timed(ours, repeats * size, partial(_in_transactions, client, messages, repeats)))
            plain.append(_timed(ours, repeats * size, partial(_with_acks_all, client, messages, repeats)))
        name = f"SDK, transactions of {size:,} messages"
        rows.append(load_row(name, exact, peer="acks=all, no transaction", beside=plain))
    return rows


def _in_transactions(client: FlyMQClient, messages: list[bytes], repeats: int) -> None:
    for _ in range(repeats):
        with client.transaction() as transaction:
            for message in messages:
                transaction.send("written", message)


def _with_acks_all(client: FlyMQClient, messages: list[bytes], repeats: int) -> None:
    with client.producer(acks="all") as producer:
        for _ in range(repeats):
            for message in messages:
                producer.send("written", message)
            producer.flush()
