"""The samples of the SDK's guide run as they are printed."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

import flymq
from flymq import FlyMQClient, MessageConsumer, MessageProducer, ProducerRecord, generate_key
from flymq.testing import TestBroker, running_broker

SCENARIOS = """
# Scenario 1: User activity stream (ordering per user)
client.produce("user-events", event_data, key=f"user-{user_id}")

# Scenario 2: Log aggregation (no ordering needed)
client.produce("logs", log_data)  # Round-robin distribution

# Scenario 3: Financial transactions (strict ordering)
client.create_topic("transactions", partitions=1)  # Single partition
client.produce("transactions", txn_data)
"""

BOTH_LAYERS = """
# Both layers active
client = FlyMQClient(
    "broker:9092",
    tls_enabled=True,           # Transport encryption
    encryption_key=secret_key    # Message encryption
)
"""

STRATEGIES = """
# Strategy 1: Batch operations
messages = []
for i in range(1000):
    messages.append((f"key-{i}", f"data-{i}".encode()))
client.produce_batch("topic", messages)

# Strategy 2: Connection pooling
pool = FlyMQClientPool(size=10)
with pool.get_client() as client:
    client.produce("topic", data)

# Strategy 3: Async processing
import asyncio
async def process():
    async with AsyncFlyMQClient() as client:
        await client.produce("topic", data)
"""


@pytest.fixture
def names(flymq_broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the samples take for granted: the names of the package, a client, some data and a broker to reach."""
    monkeypatch.setenv("FLYMQ_BOOTSTRAP", flymq_broker.address)
    with FlyMQClient() as client:
        yield {
            "FlyMQClientPool": flymq.FlyMQClientPool,
            "AsyncFlyMQClient": flymq.AsyncFlyMQClient,
            "client": client,
            "user_id": 7,
            "event_data": b"login",
            "log_data": b"a line",
            "txn_data": b"100 to Ada",
            "data": b"some data",
        }


def test_the_scenarios_of_partitioning(names):
    exec(SCENARIOS, names)
    client = names["client"]
    assert client.list_topics() == ["logs", "transactions", "user-events"]
    [partition] = client.admin.describe_topic("transactions").partitions
    assert partition.end_offset == 1


def test_the_strategies_of_optimization(names):
    client = names["client"]
    exec(STRATEGIES, names)
    names["asyncio"].run(names["process"]())
    assert sum(client.admin.latest_offsets("topic").values()) == 1002
    names["pool"].close()


def test_both_layers_of_encryption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("broker").private_key_and_cert_chain_pem.write_to_path(tmp_path / "broker.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    pem = str(tmp_path / "broker.pem")
    with running_broker(settings={"tls.cert_file": pem, "tls.key_file": pem}) as broker:
        resolve = socket.getaddrinfo

        def resolve_broker(host: Any, port: Any, *args: Any, **more: Any) -> Any:
            """Stand in for the name server: `broker` is this machine."""
            found = (broker.host, broker.port) if (host, port) == ("broker", 9092) else (host, port)
            return resolve(*found, *args, **more)

        monkeypatch.setattr(socket, "getaddrinfo", resolve_broker)
        names: dict[str, Any] = {"FlyMQClient": FlyMQClient, "secret_key": generate_key()}
        exec(BOTH_LAYERS, names)
        with names["client"] as client:
            assert client.produce("secrets", b"psst") == 0
            assert client.consume("secrets", 0).value == b"psst"


def test_the_flow_of_a_message(names):
    """`produce` returns an offset, `consume` takes one and returns the message."""
    client = names["client"]
    client.create_topic("orders", partitions=1)
    offset = client.produce("orders", b"tea")
    assert client.consume("orders", offset).value == b"tea"


def test_the_quick_start_of_those_who_come_from_kafka(flymq_broker: TestBroker):
    props = {
        "bootstrap.servers": flymq_broker.address,
        "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
    }
    with MessageProducer(props) as producer:
        record = ProducerRecord("test-topic", "key1", "Hello World!")
        producer.send(record)

    props = {
        "bootstrap.servers": flymq_broker.address,
        "group.id": "test-group",
        "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
        "value.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
    }
    with MessageConsumer(props) as consumer:
        consumer.subscribe(["test-topic"])
        received: list[tuple[object, object]] = []
        while not received:
            for record in consumer.poll(100):  # type: ignore[assignment]  # the name is the sample's
                received.append((record.key, record.value))
        consumer.commit()
    assert received == [("key1", "Hello World!")]
