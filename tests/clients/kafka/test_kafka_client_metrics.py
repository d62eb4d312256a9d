"""Real clients push their metrics, and the broker shows them to Prometheus (KIP-714)."""

import itertools
import re
import time
import urllib.request
from importlib import import_module
from typing import Any

from confluent_kafka import Consumer, Producer
from kio.schema.errors import ErrorCode
from tests.clients.kafka.raw import RawKafka

CLIENT_METRICS = 16
SET, DELETE = 0, 1


def schema(api: str, version: int) -> tuple[Any, Any]:
    return import_module(f"kio.schema.{api}.v{version}.request"), import_module(f"kio.schema.{api}.v{version}.response")


def alter(port: int, name: str, settings: dict[str, str | None]) -> ErrorCode:
    request, response = schema("incremental_alter_configs", 1)
    configs = tuple(
        request.AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in settings.items()
    )
    resource = request.AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    with RawKafka(port) as raw:
        asked = request.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        (told,) = raw.ask(asked, response.IncrementalAlterConfigsResponse).responses
    assert isinstance(told.error_code, ErrorCode)
    return told.error_code


def subscriptions(port: int) -> list[str]:
    request, response = schema("list_config_resources", 0)
    with RawKafka(port) as raw:
        told = raw.ask(request.ListConfigResourcesRequest(), response.ListConfigResourcesResponse)
    return [each.resource_name for each in told.config_resources]


def page(address: str, path: str = "/metrics/detailed") -> str:
    with urllib.request.urlopen(f"http://{address}{path}") as response:
        text = response.read().decode()
    assert isinstance(text, str)
    return text


def wait_for(address: str, *patterns: str) -> str:
    deadline_s = time.monotonic() + 60
    while True:
        text = page(address)
        if all(re.search(pattern, text) for pattern in patterns):
            return text
        missing = [pattern for pattern in patterns if not re.search(pattern, text)]
        assert time.monotonic() < deadline_s, (missing, [line for line in text.splitlines() if "kafka_client" in line])
        time.sleep(0.1)


def check_types(text: str) -> None:
    """Each metric of clients has one type."""
    named = re.findall(r"^# TYPE (kafka_client_\S+) (\S+)$", text, re.MULTILINE)
    assert named
    assert len({name for name, _ in named}) == len(named)


def test_librdkafka_pushes_its_metrics_until_it_closes(broker, topic):
    assert (
        alter(broker.port, topic, {"metrics": "*", "interval.ms": "300", "match": f"client_id=rd-{topic}"})
        is ErrorCode.none
    )
    settings = {"bootstrap.servers": broker.address, "client.id": f"rd-{topic}"}
    producer = Producer(settings)
    producer.produce(topic, b"tea")
    producer.flush(20)
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    who = f'client_id="rd-{topic}"'
    for _ in itertools.count():
        consumer.poll(0.1)
        producer.poll(0)
        if "kafka_client_consumer" in page(broker.address) and "kafka_client_producer" in page(broker.address):
            break
    text = wait_for(broker.address, rf"kafka_client_producer_\w+\{{{who}", rf"kafka_client_consumer_\w+\{{{who}")
    check_types(text)
    assert "flymq_client_metrics_clients" in page(broker.address, "/metrics")
    consumer.close()
    assert topic in subscriptions(broker.port)
    alter(broker.port, topic, {"metrics": None, "interval.ms": None, "match": None})
    assert topic not in subscriptions(broker.port)
