"""Single requests of Kafka's protocol to one broker, which no client sends to the wrong one by itself."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

from tests.clients.kafka.raw import RawKafka


def _schema(api: str, version: int) -> tuple[Any, Any]:
    return import_module(f"kio.schema.{api}.v{version}.request"), import_module(f"kio.schema.{api}.v{version}.response")


def metadata(port: int, *names: str) -> Any:
    """Return the metadata of some topics."""
    ask, answer = _schema("metadata", 12)
    topics = tuple(ask.MetadataRequestTopic(topic_id=None, name=name) for name in names)
    request = ask.MetadataRequest(
        topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    return _send(port, request, answer.MetadataResponse)


def produce(port: int, topic_id: UUID, batch: bytes) -> Any:
    """Produce to partition 0, with acks=all."""
    ask, answer = _schema("produce", 13)
    part = ask.PartitionProduceData(index=0, records=batch)
    topic = ask.TopicProduceData(topic_id=topic_id, partition_data=(part,))
    request = ask.ProduceRequest(transactional_id=None, acks=-1, timeout=timedelta(seconds=10), topic_data=(topic,))
    return _send(port, request, answer.ProduceResponse)


def fetch(port: int, topic_id: UUID, *, offset: int = 0, rack: str = "", **fields: Any) -> Any:
    """Fetch from partition 0, without waiting."""
    ask, answer = _schema("fetch", 17)
    part = ask.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **fields)
    topic = ask.FetchTopic(topic_id=topic_id, partitions=(part,))
    request = ask.FetchRequest(
        max_wait=timedelta(0), min_bytes=0, topics=(topic,), forgotten_topics_data=(), rack_id=rack
    )
    return _send(port, request, answer.FetchResponse)


def _send(port: int, request: Any, response: type) -> Any:
    with RawKafka(port) as client:
        return client.ask(request, response)
