"""Consume, transform, produce: exactly once, though the broker and the client are killed again and again."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka
import pytest
from tests.broker_process import BrokerProcess, kill
from tests.clients.kafka import kafkajs
from tests.clients.kafka.peers import PEERS, WAIT_S, Row

COUNT = 300

PROGRAMS = Path(__file__).parent / "transformers"
PYTHON = [sys.executable, "-W", "ignore"]
CLIENTS = {
    "librdkafka": [*PYTHON, PROGRAMS / "librdkafka.py"],
    "aiokafka": [*PYTHON, PROGRAMS / "aiokafka_client.py"],
    "kafka-python": [*PYTHON, PROGRAMS / "kafka_python.py"],
}
QUICK = {"groups.consumer_heartbeat_ms": 100, "groups.consumer_session_timeout_ms": 1_500}


def start_client(command: Sequence[object], broker: BrokerProcess, protocol: str) -> subprocess.Popen[str]:
    arguments = [*map(str, command), broker.address, "source", "target", protocol]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def wait_for_a_commit(client: subprocess.Popen[str]) -> int:
    """Return how far the client has come."""
    assert client.stdout is not None
    line = client.stdout.readline()
    assert line, "the client gave up"
    return int(line)


def check_exactly_once(broker: BrokerProcess, start: Callable[[], subprocess.Popen[str]]) -> None:
    """Let a client copy a topic while it and the broker are killed."""
    # The client never outlives the broker here: librdkafka (2.16) may wait for a coordinator it knew before for ever.
    PEERS["librdkafka"].write(broker.address, "source", [Row(None, b"%d" % number) for number in range(COUNT)])
    client = start()
    try:
        for is_broker_killed in (False, True):
            assert wait_for_a_commit(client) < COUNT - 1
            if is_broker_killed:
                broker.kill()
            kill(client)
            if is_broker_killed:
                broker.start()
            client = start()
        while wait_for_a_commit(client) < COUNT - 1:
            continue
    finally:
        kill(client)
    values = [row.value for row in PEERS["librdkafka"].read(broker.address, "target", COUNT, committed=True)]
    assert values == [b"%d" % number for number in range(COUNT)]
    outsider = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": "transform"})
    (committed,) = outsider.committed([confluent_kafka.TopicPartition("source", 0)], timeout=WAIT_S)
    assert committed.offset == COUNT
    outsider.close()


@pytest.mark.shows("exactly once though broker and client are killed", by="client")
@pytest.mark.parametrize(
    ("client", "protocol"),
    [("librdkafka", "classic"), ("librdkafka", "consumer"), ("aiokafka", "classic"), ("kafka-python", "classic")],
)
def test_every_record_is_transformed_once_though_broker_and_client_are_killed(tmp_path, client, protocol):
    broker = BrokerProcess(tmp_path, QUICK)
    try:
        check_exactly_once(broker, lambda: start_client(CLIENTS[client], broker, protocol))
    finally:
        broker.kill()


@pytest.mark.shows("exactly once though broker and client are killed", client="KafkaJS")
def test_kafkajs_transforms_every_record_once_though_broker_and_client_are_killed(tmp_path, node_modules):
    broker = BrokerProcess(tmp_path, QUICK)
    try:
        check_exactly_once(broker, lambda: kafkajs.start(node_modules, "transform", broker.address, "source", "target"))
    finally:
        broker.kill()


def test_a_producer_that_outlives_the_broker_finishes_or_repeats_its_transaction(tmp_path):
    broker = BrokerProcess(tmp_path)
    try:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.address,
                "transactional.id": "survivor",
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        producer.init_transactions(WAIT_S)
        for number in range(4):
            while True:
                producer.begin_transaction()
                producer.produce("target", b"%d" % number, partition=0)
                if number == 2 and broker.restarts == 0:
                    assert producer.flush(WAIT_S) == 0
                    broker.kill()
                    broker.start()
                try:
                    producer.commit_transaction(WAIT_S)
                    break
                except confluent_kafka.KafkaException as error:
                    assert error.args[0].txn_requires_abort(), error
                    producer.abort_transaction(WAIT_S)
        values = [row.value for row in PEERS["librdkafka"].read(broker.address, "target", 4, committed=True)]
        assert values == [b"0", b"1", b"2", b"3"]
        assert broker.restarts == 1
    finally:
        broker.kill()
