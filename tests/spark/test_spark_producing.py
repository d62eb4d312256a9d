"""What a task writes survives a broker that restarts in between, and goes when the task gives up. No Spark needed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from flymq import FlyMQClient
from flymq.spark.broker_connection import connect
from flymq.spark.options import WriteOptions, parse_write_options
from flymq.spark.sink.producing import AttemptProducer
from flymq.testing import TestBroker, running_broker
from flymq.wire.native.messages.session import Done
from flymq.wire.native.messages.transactions import AttemptToCommit, CommitAttempts


def options_for(broker: TestBroker, topic: str) -> WriteOptions:
    return parse_write_options({"bootstrapServers": broker.address, "topic": topic, "batchBytes": "1000"})


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [f"{number:05}" * 10 for number in range(first, first + count)]})


def test_a_broker_that_restarts_while_a_task_writes_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with running_broker(tmp_path) as first:
        with FlyMQClient(first.address) as client:
            client.create_topic("lasting", partitions=2)
        options = options_for(first, "lasting")
        connection = connect(options.connection(), expects_broker=True)
        producer = AttemptProducer(connection, options, transactional_id="query:0:task", first_turn=0)
        producer.write(rows(0, 500))
    with running_broker(tmp_path, {"listener.port": first.port}), FlyMQClient(first.address) as client:
        producer.write(rows(500, 500))
        producer.finish()
        identity = producer.identity
        assert identity is not None
        attempt = AttemptToCommit("query:0:task", identity.producer_id, identity.producer_epoch)
        connection.run(connection.cluster.ask(CommitAttempts(query="query", batch=0, attempts=[attempt]), Done))
        found = [record.value for partition in (0, 1) for record in client.fetch("lasting", partition)]
    assert sorted(found) == [b"%05d" % number * 10 for number in range(1000)]


def test_a_task_that_gives_up_leaves_nothing_behind(broker: TestBroker, client: FlyMQClient, topic: str) -> None:
    options = options_for(broker, topic)
    producer = AttemptProducer(connect(options.connection()), options, transactional_id=f"{topic}:0:x", first_turn=0)
    producer.write(rows(0, 100))
    producer.abort()
    offset = client.produce(topic, "after", partition=0)
    assert client.consume(topic, offset).value == b"after"
    assert [record.value for record in client.fetch(topic, 0)] == [b"after"]
