"""Records gather into batches, one of each partition on its way, within a bound of bytes."""

import pytest

from flymq.client.accumulator import Accumulator, BufferFull, TopicQueues
from flymq.host.clock import ManualClock
from flymq.model.errors import ClientClosed


class Setting:
    """An accumulator on a clock that stands still, and a count of how often it woke its client."""

    def __init__(self, *, partitions: int = 2, batch_bytes: int = 100, buffer_bytes: int = 1000, linger_s: float = 0):
        self.clock = ManualClock()
        self.wakes = 0
        self.accumulator = Accumulator(
            batch_bytes_max=batch_bytes,
            buffer_bytes_max=buffer_bytes,
            linger_s=linger_s,
            now_s=self.clock.monotonic_s,
            wake=self._wake,
        )
        self.topic: TopicQueues = self.accumulator.set_topic("t", partitions, message_bytes_max=1 << 20)

    def _wake(self) -> None:
        self.wakes += 1

    def add(self, value: str, partition: int | None = 0, size: int = 10):
        delivery = self.accumulator.add(self.topic, partition, (None, value), size)
        return delivery.batch, delivery.index

    def ready(self):
        return self.accumulator.take_ready(self.clock.monotonic_s())[0]

    def next_s(self):
        return self.accumulator.take_ready(self.clock.monotonic_s())[1]


def values(batch) -> list[str]:
    return [value for _, value in batch.records]


def test_at_rest_a_record_goes_at_once():
    setting = Setting()
    batch, index = setting.add("a")
    assert index == 0
    assert [ready for _, ready in setting.ready()] == [batch]


def test_records_gather_behind_the_batch_that_is_on_its_way():
    setting = Setting()
    setting.add("a")
    [(queue, first)] = setting.ready()
    for value in "bcd":
        setting.add(value)
    assert setting.ready() == []
    setting.accumulator.finish(queue, first)
    [(_, second)] = setting.ready()
    assert values(second) == ["b", "c", "d"]


def test_partitions_do_not_wait_for_each_other():
    setting = Setting()
    setting.add("a", partition=0)
    setting.ready()
    setting.add("b", partition=1)
    assert [values(batch) for _, batch in setting.ready()] == [["b"]]


def test_the_client_is_woken_only_when_there_is_something_new_to_send():
    setting = Setting()
    setting.add("a")
    setting.add("b")
    assert setting.wakes == 1
    setting.ready()
    setting.add("c")
    assert setting.wakes == 1, "the answer to the batch on its way wakes the client anyway"


def test_a_full_batch_is_followed_by_another_in_the_same_order():
    setting = Setting(batch_bytes=25)
    for value in "abcde":
        setting.add(value)
    sent = []
    while ready := setting.ready():
        [(queue, batch)] = ready
        sent += values(batch)
        setting.accumulator.finish(queue, batch)
    assert sent == list("abcde")


def test_records_without_a_partition_go_round_robin_batch_by_batch():
    setting = Setting(partitions=3)
    first, _ = setting.add("a", partition=None)
    same, _ = setting.add("b", partition=None)
    assert same is first
    setting.ready()
    later = [setting.add("c", partition=None)[0].partition]
    setting.ready()
    later.append(setting.add("d", partition=None)[0].partition)
    assert [first.partition, *later] == [0, 1, 2]


def test_a_lingering_batch_goes_when_its_time_has_come():
    setting = Setting(linger_s=0.05)
    setting.add("a")
    assert setting.ready() == []
    assert setting.next_s() == pytest.approx(0.05)
    setting.clock.move(ms=50)
    assert len(setting.ready()) == 1


def test_a_full_batch_does_not_linger():
    setting = Setting(batch_bytes=25, linger_s=60)
    for value in "abc":
        setting.add(value)
    assert [values(batch) for _, batch in setting.ready()] == [["a", "b"]]


def test_a_flush_lets_nothing_linger():
    setting = Setting(linger_s=60)
    setting.add("a")
    setting.accumulator.begin_flush()
    assert len(setting.ready()) == 1
    setting.accumulator.end_flush()


def test_a_batch_to_be_tried_again_stays_before_all_others_of_its_partition():
    setting = Setting()
    setting.add("a")
    [(queue, first)] = setting.ready()
    setting.add("b")
    setting.accumulator.put_back(queue, retry_at_s=1.0)
    assert setting.ready() == []
    assert setting.next_s() == 1.0
    setting.clock.move(ms=1000)
    assert [batch for _, batch in setting.ready()] == [first]
    assert values(first) == ["a"], "nothing joins a batch that was sent"


def test_a_full_buffer_refuses_until_a_batch_is_done():
    setting = Setting(buffer_bytes=25)
    setting.add("a")
    setting.add("b")
    with pytest.raises(BufferFull):
        setting.add("c")
    told = []
    setting.accumulator.on_room(10, lambda: told.append("room"))
    assert told == []
    [(queue, batch)] = setting.ready()
    setting.accumulator.finish(queue, batch)
    assert told == ["room"]
    setting.add("c")


def test_a_record_larger_than_the_buffer_passes_when_the_buffer_is_empty():
    setting = Setting(buffer_bytes=25)
    setting.add("huge", size=1000)
    with pytest.raises(BufferFull):
        setting.add("a")


def test_a_closed_accumulator_takes_nothing_and_wakes_those_who_wait():
    setting = Setting(buffer_bytes=10)
    setting.add("a")
    told = []
    setting.accumulator.on_room(10, lambda: told.append("woken"))
    setting.accumulator.close()
    assert told == ["woken"]
    with pytest.raises(ClientClosed):
        setting.add("b")
    assert len(setting.ready()) == 1, "what was taken before is still sent"


def test_whoever_asks_for_room_that_is_there_is_told_at_once():
    told = []
    Setting().accumulator.on_room(10, lambda: told.append("room"))
    assert told == ["room"]


def test_a_ready_made_batch_queues_behind_what_waits_and_nothing_joins_it():
    setting = Setting()
    setting.add("a")
    setting.accumulator.add_batch(setting.topic, 0, [(None, "b"), (None, "c")], size=20)
    setting.add("d")
    sent = []
    while ready := setting.ready():
        [(queue, batch)] = ready
        sent.append(values(batch))
        setting.accumulator.finish(queue, batch)
    assert sent == [["a"], ["b", "c"], ["d"]]


def test_a_topic_that_grows_gets_more_queues_and_keeps_what_it_has():
    setting = Setting(partitions=1)
    batch, _ = setting.add("a")
    setting.accumulator.set_topic("t", 3, message_bytes_max=1 << 20)
    setting.add("b", partition=2)
    assert {ready.partition for _, ready in setting.ready()} == {0, 2}
    assert batch in setting.accumulator.pending()


def test_a_topics_own_limit_makes_batches_smaller():
    setting = Setting(batch_bytes=1000)
    setting.accumulator.set_topic("t", 2, message_bytes_max=15)
    first, _ = setting.add("a")
    second, _ = setting.add("b")
    assert second is not first
