"""Consume, transform, produce: exactly once, though the broker and the client are killed again and again."""

import subprocess
import sys

import confluent_kafka
from tests.clients.kafka.broker_process import BrokerProcess, kill
from tests.clients.kafka.peers import PEERS, WAIT_S, Row

COUNT = 400

CLIENT = """
import sys, confluent_kafka
address, source, target = sys.argv[1:]
common = {"bootstrap.servers": address, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}
consumer = confluent_kafka.Consumer({
    **common, "group.id": "transform", "auto.offset.reset": "earliest", "enable.auto.commit": False,
    "isolation.level": "read_committed", "session.timeout.ms": 1500, "heartbeat.interval.ms": 100,
})
producer = confluent_kafka.Producer({**common, "transactional.id": "transform"})
producer.init_transactions(30)
consumer.subscribe([source])
while True:
    messages = [message for message in consumer.consume(10, 0.1) if message.error() is None]
    if not messages:
        continue
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, message.value(), partition=0)
    position = confluent_kafka.TopicPartition(source, 0, messages[-1].offset() + 1)
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    print(messages[-1].offset(), flush=True)
"""


def start_client(broker: BrokerProcess) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CLIENT, broker.address, "source", "target"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def wait_for_a_commit(client: subprocess.Popen[str]) -> int:
    """Return how far the client has come."""
    assert client.stdout is not None
    line = client.stdout.readline()
    assert line, "the client gave up"
    return int(line)


def test_every_record_is_transformed_once_though_broker_and_client_are_killed(tmp_path):
    # The client never outlives the broker here: librdkafka (2.16) may wait for a coordinator it knew before for ever.
    broker = BrokerProcess(tmp_path)
    client = None
    try:
        PEERS["librdkafka"].write(broker.address, "source", [Row(None, b"%d" % number) for number in range(COUNT)])
        client = start_client(broker)
        for is_broker_killed in (False, True, True):
            assert wait_for_a_commit(client) < COUNT - 1
            if is_broker_killed:
                broker.kill()
            kill(client)
            if is_broker_killed:
                broker.start()
            client = start_client(broker)
        while wait_for_a_commit(client) < COUNT - 1:
            continue
        values = [row.value for row in PEERS["librdkafka"].read(broker.address, "target", COUNT, committed=True)]
        assert values == [b"%d" % number for number in range(COUNT)]
        outsider = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": "transform"})
        (committed,) = outsider.committed([confluent_kafka.TopicPartition("source", 0)], timeout=WAIT_S)
        assert committed.offset == COUNT
        outsider.close()
    finally:
        if client is not None:
            kill(client)
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
