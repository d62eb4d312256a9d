"""Producers and consumers when a leader dies, goes silent, or its successor has a shorter log."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.client.fake_brokers import FakeBrokers

from flymq.client.aio.client import AsyncFlyMQClient
from flymq.model.errors import BrokerUnavailable, FlyMQError, NotLeader, OffsetOutOfRange
from flymq.record.batch import encode_batch
from flymq.record.header import check_batch
from flymq.record.record import Record
from flymq.wire.native.messages.fields import Failure, Message
from flymq.wire.native.messages.records import (
    AT_EARLIEST,
    Fetch,
    FetchAnswer,
    FetchedPartition,
    ListOffsets,
    ListOffsetsAnswer,
    OffsetFound,
    PartitionAppended,
    ProduceBatch,
    ProduceBatchAnswer,
)
from flymq.wire.native.messages.transactions import InitProducer, InitProducerAnswer

HOUR_MS = 3_600_000


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


class Log:
    """Partition 0 of `orders`, on whichever broker leads it."""

    def __init__(self, count: int = 3) -> None:
        self.brokers = FakeBrokers(count, self.answer)
        self.appended: list[tuple[int, int, int]] = []  # broker, producer id and base sequence of each batch
        self.fetched: list[tuple[int, int, int]] = []  # broker, offset and leader epoch of each request
        self.values: list[bytes] = []
        self.values_when_listed: list[bytes] | None = None  # what is there when a client asks for the end
        self.lost_answers: set[int] = set()  # brokers that append but do not say so

    def answer(self, broker: int, request: Message) -> Message | FlyMQError | None:
        match request:
            case InitProducer():
                return InitProducerAnswer(7, 0)
            case ProduceBatch():
                return self._append(broker, request)
            case Fetch():
                return self._fetch(broker, request)
            case ListOffsets():
                at = request.partitions[0].at
                if self.values_when_listed is not None:
                    self.values, self.values_when_listed = self.values_when_listed, None
                offset = 0 if at == AT_EARLIEST else len(self.values)
                return ListOffsetsAnswer(partitions=[OffsetFound("orders", 0, offset)])
        raise AssertionError(request)

    def _append(self, broker: int, request: ProduceBatch) -> Message | None:
        [part] = request.partitions
        header = check_batch(part.batches)
        self.appended.append((broker, header.producer_id, header.base_sequence))
        if broker in self.lost_answers:
            return None
        error = None if self.brokers.leaders[0][0] == broker else Failure.of(NotLeader())
        appended = PartitionAppended("orders", 0, base_offset=header.base_sequence, error=error)
        return ProduceBatchAnswer(partitions=[appended])

    def _fetch(self, broker: int, request: Fetch) -> Message | None:
        [part] = request.partitions
        self.fetched.append((broker, part.offset, part.leader_epoch))
        answer = FetchedPartition("orders", 0, high_watermark=len(self.values))
        if self.brokers.leaders[0][0] != broker:
            answer.error = Failure.of(NotLeader())
        elif part.offset > len(self.values):
            answer.error = Failure.of(OffsetOutOfRange())
        elif part.offset == len(self.values):
            return None  # a long poll
        else:
            records = [Record(None, value, (), 0, 0) for value in self.values[part.offset :]]
            batch = encode_batch(records, timestamp_ms=0)
            batch[:8] = part.offset.to_bytes(8, "big")
            answer.batches = memoryview(batch)
        return FetchAnswer(partitions=[answer])

    @asynccontextmanager
    async def client(self, **settings: Any) -> AsyncIterator[AsyncFlyMQClient]:
        async with self.brokers.running():
            addresses = ["{}:{}".format(*address[:2]) for address in self.brokers.addresses]
            client = AsyncFlyMQClient(addresses, **{"retry_backoff_ms": 1, **settings})
            try:
                yield client
            finally:
                client.abort()


async def test_a_batch_in_flight_to_a_leader_that_dies_goes_to_the_next_one_with_the_same_sequence_number():
    log = Log()
    async with log.client() as client:
        producer = client.producer()
        await producer.produce("orders", b"first")
        log.lost_answers.add(0)
        second = await producer.send("orders", b"second")
        third = await producer.send("orders", b"third")
        await until(lambda: len(log.appended) == 2)
        log.brokers.leaders = [(1, 1)]
        log.brokers.kill(0)
        await second
        await third
    assert log.appended[:2] == [(0, 7, 0), (0, 7, 1)]
    assert log.appended[2:] == [(1, 7, 1)] or log.appended[2:] == [(1, 7, 1), (1, 7, 2)]


async def test_a_batch_in_flight_to_a_leader_that_went_silent_goes_to_the_next_one():
    log = Log()
    async with log.client(request_timeout_ms=HOUR_MS, delivery_timeout_ms=HOUR_MS) as client:
        await client.produce("orders", b"first")
        log.brokers.silent.add(0)
        log.brokers.leaders = [(1, 1)]
        await client.produce("orders", b"second")  # would wait for an hour
    assert log.appended == [(0, 7, 0), (1, 7, 1)]


async def test_delivery_timeout_holds_before_the_topic_is_known():
    log = Log(1)
    async with log.client(delivery_timeout_ms=200, request_timeout_ms=HOUR_MS, retry_backoff_max_ms=50) as client:
        await client.connect()
        log.brokers.kill(0)
        with pytest.raises(BrokerUnavailable):
            await client.produce("orders", b"value")


async def test_delivery_timeout_holds_while_the_leader_is_silent():
    log = Log(1)
    async with log.client(delivery_timeout_ms=200, request_timeout_ms=HOUR_MS) as client:
        await client.produce("orders", b"first")
        log.brokers.silent.add(0)
        with pytest.raises(FlyMQError):
            await client.produce("orders", b"second")


async def test_a_consumer_follows_a_leader_that_dies():
    log = Log()
    log.values = [b"0", b"1"]
    async with log.client() as client:
        consumer = client.consumer("orders")
        read = [record.value for record in await consumer.poll(HOUR_MS)]
        log.brokers.leaders = [(1, 1)]
        log.values += [b"2", b"3"]
        log.brokers.kill(0)
        while len(read) < 4:
            read += [record.value for record in await consumer.poll(HOUR_MS)]
    assert read == [b"0", b"1", b"2", b"3"]
    assert log.fetched[-1] in [(1, 2, 1), (1, 4, 1)], "with the leader epoch, which the broker checks"


async def test_a_consumer_follows_a_leader_that_went_silent():
    log = Log()
    log.values = [b"0", b"1"]
    async with log.client(request_timeout_ms=HOUR_MS) as client:
        consumer = client.consumer("orders", fetch_wait_ms=1)
        read = [record.value for record in await consumer.poll(HOUR_MS)]
        log.brokers.silent.add(0)
        log.brokers.leaders = [(1, 1)]
        log.values += [b"2"]
        read += [record.value for record in await consumer.poll(HOUR_MS)]
    assert read == [b"0", b"1", b"2"]


async def test_a_new_leader_whose_log_is_still_shorter_resets_nothing():
    log = Log()
    log.values = [b"0", b"1", b"2"]
    async with log.client() as client:
        consumer = client.consumer("orders", start="earliest")
        read = [record.value for record in await consumer.poll(HOUR_MS)]
        log.brokers.leaders = [(1, 1)]
        log.values = [b"0"]
        log.brokers.kill(0)
        await until(lambda: any(broker == 1 and offset == 3 for broker, offset, _ in log.fetched))
        log.values = [b"0", b"1", b"2", b"3"]
        read += [record.value for record in await consumer.poll(HOUR_MS)]
    assert read == [b"0", b"1", b"2", b"3"]


async def test_a_position_that_the_leader_has_found_again_meanwhile_is_kept():
    log = Log()
    log.values = [b"0", b"1", b"2"]
    async with log.client() as client:
        consumer = client.consumer("orders", start="earliest")
        read = [record.value for record in await consumer.poll(HOUR_MS)]
        log.values, log.values_when_listed = [b"0"], [b"0", b"1", b"2", b"3"]
        log.brokers.leaders = [(1, 1)]
        log.brokers.kill(0)
        read += [record.value for record in await consumer.poll(HOUR_MS)]
    assert read == [b"0", b"1", b"2", b"3"]


async def test_a_log_that_has_lost_its_end_is_read_on_from_there_and_not_from_the_start(caplog):
    log = Log()
    log.values = [b"0", b"1", b"2"]
    async with log.client() as client:
        consumer = client.consumer("orders", start="earliest")
        read = [record.value for record in await consumer.poll(HOUR_MS)]
        log.brokers.leaders = [(1, 1)]
        log.values = [b"0"]
        log.brokers.kill(0)
        await until(lambda: consumer.position("orders", 0) == 1)
        log.values += [b"new"]
        log.brokers.kill(1)
        log.brokers.leaders = [(2, 2)]
        read += [record.value for record in await consumer.poll(HOUR_MS)]
    assert read == [b"0", b"1", b"2", b"new"]
    assert "has lost its last 2 offsets" in caplog.text
