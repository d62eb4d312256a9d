"""Kafka Streams with `group.protocol=streams` (KIP-1071), exactly once."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.kafka.peers import WAIT_S

from flymq import FlyMQClient
from flymq.testing import running_broker

QUICK = {
    "groups.consumer_heartbeat_ms": 100,
    "groups.consumer_session_timeout_ms": 5_000,
    "groups.streams_standby_replicas": 1,
}


class Instance:
    """One process of the application."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program

    def ask(self) -> tuple[str, int, int, str]:
        """Return its state, its active and standby tasks, and how Admin sees the group."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write("tasks\n")
        self._program.stdin.flush()
        answer = self._program.stdout.readline()
        assert answer, "it has ended"
        state, active, standby, group = answer.rstrip().split(" ", 3)
        return state, int(active), int(standby), group

    def kill(self) -> None:
        self._program.kill()

    def quit(self) -> int:
        self._program.communicate("quit\n")
        return self._program.returncode


def wait_for(*instances: Instance, active: int, standby: int, members: int) -> None:
    """Wait until each instance has as many active tasks, and all together as many standby tasks."""
    while True:
        found = [instance.ask() for instance in instances]
        each = {(state, tasks, group) for state, tasks, _, group in found}
        if each == {("RUNNING", active, f"Stable {members} 2")} and sum(row[2] for row in found) == standby:
            return


@pytest.fixture
def address() -> Iterator[str]:
    with running_broker(settings=QUICK) as broker:
        yield broker.address


def write(address: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    for number in range(400):
        producer.produce(topic, value=f"word{number % 8}", key=str(number))
    assert producer.flush(WAIT_S) == 0


def read_counts(consumer: confluent_kafka.Consumer, counts: Counter[str], total: int) -> None:
    """Read on until all words are counted. Every count comes once: one that was there would be a word counted twice."""
    while counts.total() < total:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"only {counts.total()} of {total} words are counted"
        assert message.error() is None
        word, count = message.key().decode(), int(message.value())
        assert count > counts[word]
        counts[word] = count
    assert counts.total() == total


@pytest.mark.timeout(400)  # two Java programs start, on a busy machine too
@pytest.mark.shows("Kafka Streams: group.protocol=streams", client="Java")
def test_an_application_of_kafka_streams_counts_every_word_once_while_its_instances_come_and_are_killed(
    address, kafka4, tmp_path
):
    topic = "words"
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in (topic, f"{topic}-counted")]).values():
        future.result()
    settings = {"group.id": "check", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, **settings})
    consumer.subscribe([f"{topic}-counted"])
    counts: Counter[str] = Counter()
    with ExitStack() as stack:

        def start(name: str) -> Instance:
            return Instance(stack.enter_context(kafka4.start("StreamsCount", address, topic, tmp_path / name)))

        first = start("first")
        write(address, topic)
        read_counts(consumer, counts, 400)
        wait_for(first, active=4, standby=0, members=2)
        second = start("second")
        wait_for(first, second, active=2, standby=2, members=4)
        write(address, topic)
        read_counts(consumer, counts, 800)
        first.kill()
        write(address, topic)
        wait_for(second, active=4, standby=0, members=2)
        read_counts(consumer, counts, 1200)
        consumer.close()
        assert second.quit() == 0
    with FlyMQClient(address) as client:
        assert client.admin.describe_group(topic).state == "empty"
    assert sorted(name for name in admin.list_topics(timeout=WAIT_S).topics if name.startswith(f"{topic}-")) == [
        "words-counted",
        "words-counts-changelog",
        "words-counts-repartition",
    ]
