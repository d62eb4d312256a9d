"""What becomes of a record is known for its whole batch, and told to whoever waits in whatever way."""

import asyncio
import pickle
import threading

import pytest

from flymq.client.deliveries import Batch, BatchResult, Delivery
from flymq.client.records import RecordMetadata
from flymq.model.errors import FlyMQError, RequestTimedOut, TopicNotFound


def batch_of(count: int, partition: int = 0) -> Batch:
    batch = Batch("orders", partition, opened_s=0.0, records=[(None, b"v")] * count)
    batch.count = count
    return batch


def test_each_record_of_a_batch_has_its_own_offset():
    batch = batch_of(3)
    deliveries = [Delivery(batch, index) for index in range(3)]
    batch.succeed(base_offset=100, timestamp=7)
    assert [delivery.result() for delivery in deliveries] == [100, 101, 102]


def test_the_place_of_a_record_is_its_offset_and_more():
    place = RecordMetadata(5, "orders", 2, 1234)
    assert place == 5
    assert place + 1 == 6
    assert (place.offset, place.topic, place.partition, place.timestamp) == (5, "orders", 2, 1234)
    assert f"{place}" == str(place) == "5"
    assert pickle.loads(pickle.dumps(place)).topic == "orders"


def test_an_error_is_raised_for_each_record():
    batch = batch_of(1)
    batch.fail(TopicNotFound("gone"))
    with pytest.raises(TopicNotFound, match="gone"):
        Delivery(batch, 0).result()
    assert isinstance(Delivery(batch, 0).exception(), TopicNotFound)


def test_a_thread_can_wait_for_its_record():
    batch = batch_of(1)
    results = []
    thread = threading.Thread(target=lambda: results.append(Delivery(batch, 0).result(timeout_s=30)))
    thread.start()
    batch.succeed(9, -1)
    thread.join()
    assert results == [9]


def test_waiting_has_a_limit():
    with pytest.raises(RequestTimedOut):
        Delivery(batch_of(1), 0).result(timeout_s=0.001)


async def test_a_task_can_wait_for_its_record():
    batch = batch_of(2)
    waiting = asyncio.ensure_future(_wait(Delivery(batch, 1)))
    await asyncio.sleep(0)
    batch.succeed(9, -1)
    assert await waiting == 10


async def test_a_task_can_wait_for_a_record_that_another_thread_settles():
    batch = batch_of(1)
    threading.Thread(target=lambda: batch.succeed(4, -1)).start()
    assert await Delivery(batch, 0) == 4


async def _wait(delivery: Delivery) -> RecordMetadata:
    return await delivery


def test_callbacks_get_the_place_or_the_reason():
    told = []
    good, bad = batch_of(1), batch_of(1)
    for batch in (good, bad):
        Delivery(batch, 0).add_callback(lambda place, error: told.append((place, error)))
    error = TopicNotFound()
    good.succeed(1, -1)
    bad.fail(error)
    Delivery(good, 0).add_callback(lambda place, error: told.append((place, error)))
    assert told == [(1, None), (None, error), (1, None)]


def test_a_callback_that_fails_keeps_nobody_else_from_being_told(caplog):
    batch = batch_of(2)
    told = []

    def fails(place: RecordMetadata | None, error: FlyMQError | None) -> None:
        raise ZeroDivisionError

    Delivery(batch, 0).add_callback(fails)
    Delivery(batch, 1).add_callback(lambda place, error: told.append(place))
    batch.succeed(7, -1)
    assert told == [8]
    assert "ZeroDivisionError" in caplog.text


def test_without_acknowledgement_the_offset_is_unknown():
    batch = batch_of(2)
    batch.succeed(-1, -1)
    assert Delivery(batch, 1).result() == -1


def test_results_of_a_batch_call_come_in_the_order_of_the_call():
    first, second, third = batch_of(2, partition=0), batch_of(1, partition=0), batch_of(1, partition=1)
    result = BatchResult([0, 1, 0, 0], [(0, first), (0, second), (1, third)])
    first.succeed(10, -1)
    second.succeed(50, -1)
    third.succeed(7, -1)
    assert [(place.partition, place.offset) for place in result] == [(0, 10), (1, 7), (0, 11), (0, 50)]
    assert result[-1] == 50
    assert result[1:3] == [7, 11]
    assert len(result) == 4
