"""Producer and consumer with the class and property names of Kafka's Java client, for those who know them.

Properties are those of Kafka's clients (`bootstrap.servers`, `group.id`, `linger.ms`, …). An unsupported property is
rejected by name, not silently ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any

from flymq.client import serializers
from flymq.client.appender import Headers
from flymq.client.deliveries import Delivery, OnDelivery
from flymq.client.records import ConsumerRecord
from flymq.client.sync.client import FlyMQClient
from flymq.client.sync.consumer import Consumer
from flymq.model.errors import InvalidSetting, NotSubscribed
from flymq.model.names import TopicPartition

Properties = Mapping[str, Any]

_MISSING: Any = object()
_SERIALIZERS: dict[str, serializers.Serializer | None] = {
    "StringSerializer": serializers.to_text,
    "ByteArraySerializer": None,
    "BytesSerializer": None,
    "JsonSerializer": serializers.to_json,
}
_DESERIALIZERS: dict[str, serializers.Deserializer | None] = {
    "StringDeserializer": serializers.from_text,
    "ByteArrayDeserializer": None,
    "BytesDeserializer": None,
    "JsonDeserializer": serializers.from_json,
}


def _named(known: Mapping[str, Any]) -> Callable[[str, Any], Any]:
    """Return a parser of serializers: a function, or the name of a Kafka class, with or without its package."""

    def parse(name: str, value: Any) -> Any:
        if callable(value):
            return value
        short = str(value).rpartition(".")[2]
        if short not in known:
            raise InvalidSetting(f"{name} takes a function or one of {', '.join(known)}, not {value!r}")
        return known[short]

    return parse


def _int(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InvalidSetting(f"{name} takes a whole number, not {value!r}") from None


def _bool(name: str, value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise InvalidSetting(f"{name} takes true or false, not {value!r}")
    return str(value).lower() == "true"


def _as_is(name: str, value: Any) -> Any:
    return value


Parser = Callable[[str, Any], Any]

_CONNECTION: dict[str, tuple[str, Parser]] = {
    "bootstrap.servers": ("bootstrap_servers", _as_is),
    "client.id": ("client_id", _as_is),
    "request.timeout.ms": ("request_timeout_ms", _int),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", _int),
    "retry.backoff.ms": ("retry_backoff_ms", _int),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", _int),
    "metadata.max.age.ms": ("metadata_max_age_ms", _int),
    "security.protocol": ("tls_enabled", lambda name, value: str(value).upper() in ("SSL", "SASL_SSL")),
    "sasl.username": ("username", _as_is),
    "sasl.password": ("password", _as_is),
    "ssl.ca.location": ("tls_ca_file", _as_is),
    "ssl.certificate.location": ("tls_cert_file", _as_is),
    "ssl.key.location": ("tls_key_file", _as_is),
}
_PRODUCER: dict[str, tuple[str, Parser]] = {
    "acks": ("acks", _as_is),
    "batch.size": ("batch_bytes_max", _int),
    "buffer.memory": ("buffer_bytes_max", _int),
    "compression.type": ("compression", _as_is),
    "delivery.timeout.ms": ("delivery_timeout_ms", _int),
    "enable.idempotence": ("idempotent", _bool),
    "linger.ms": ("linger_ms", lambda name, value: float(_int(name, value))),
    "retries": ("retries", _int),
    "key.serializer": ("key_serializer", _named(_SERIALIZERS)),
    "value.serializer": ("value_serializer", _named(_SERIALIZERS)),
    "partitioner": ("partitioner", _as_is),
}
_CONSUMER: dict[str, tuple[str, Parser]] = {
    "auto.offset.reset": ("start", _as_is),
    "enable.auto.commit": ("auto_commit", _bool),
    "auto.commit.interval.ms": ("auto_commit_interval_ms", _int),
    "fetch.max.bytes": ("fetch_bytes_max", _int),
    "fetch.max.wait.ms": ("fetch_wait_ms", _int),
    "fetch.min.bytes": ("fetch_bytes_min", _int),
    "group.instance.id": ("instance_id", _as_is),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", _int),
    "isolation.level": ("isolation", _as_is),
    "max.partition.fetch.bytes": ("partition_bytes_max", _int),
    "max.poll.interval.ms": ("rebalance_timeout_ms", _int),
    "max.poll.records": ("poll_records_max", _int),
    "session.timeout.ms": ("session_timeout_ms", _int),
    "key.deserializer": ("key_deserializer", _named(_DESERIALIZERS)),
    "value.deserializer": ("value_deserializer", _named(_DESERIALIZERS)),
    "group.id": ("group", _as_is),
}


def _translate(properties: Properties, *tables: Mapping[str, tuple[str, Parser]]) -> list[dict[str, Any]]:
    """Return the settings of each table that the properties set."""
    found: list[dict[str, Any]] = [{} for _ in tables]
    for name, value in properties.items():
        for at, table in enumerate(tables):
            if name in table:
                setting, parse = table[name]
                found[at][setting] = parse(name, value)
                break
        else:
            known = sorted(key for table in tables for key in table)
            raise InvalidSetting(f"there is no property {name!r}", hint=f"Known: {', '.join(known)}.")
    return found


class ProducerRecord:
    """A record to be sent: ProducerRecord(topic, value) or ProducerRecord(topic, key, value)."""

    __slots__ = ("headers", "key", "partition", "timestamp", "topic", "value")

    def __init__(
        self,
        topic: str,
        key: Any = None,
        value: Any = _MISSING,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
    ) -> None:
        self.topic = topic
        self.key: Any = None if value is _MISSING else key
        self.value: Any = key if value is _MISSING else value
        self.partition = partition
        self.headers = headers
        self.timestamp = timestamp

    def __repr__(self) -> str:
        return f"ProducerRecord(topic={self.topic!r}, key={self.key!r}, value={self.value!r})"


class MessageProducer:
    """Sends records. Takes a mapping of Kafka's producer properties."""

    def __init__(self, properties: Properties | None = None) -> None:
        connection, producer = _translate(properties or {}, _CONNECTION, _PRODUCER)
        self._client = FlyMQClient(**connection, **producer)

    def send(self, record: ProducerRecord, callback: OnDelivery | None = None) -> Delivery:
        """Add a record to a batch; the delivery, or the callback, gets its partition and offset."""
        return self._client.default_producer().send(
            record.topic,
            record.value,
            record.key,
            partition=record.partition,
            headers=record.headers,
            timestamp=record.timestamp,
            on_delivery=callback,
        )

    def flush(self) -> None:
        """Wait until everything sent is acknowledged."""
        self._client.flush()

    def close(self) -> None:
        """Flush, then disconnect."""
        self._client.close()

    def __enter__(self) -> MessageProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class MessageConsumer:
    """Reads topics as a member of a consumer group. Takes a mapping of Kafka's consumer properties."""

    def __init__(self, properties: Properties | None = None) -> None:
        connection, consumer = _translate(properties or {}, _CONNECTION, _CONSUMER)
        self._settings = consumer
        self._client = FlyMQClient(**connection)
        self._consumer: Consumer | None = None

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Subscribe to these topics, replacing the current subscription."""
        names = [topics] if isinstance(topics, str) else list(topics)
        self.unsubscribe()
        self._consumer = self._client.consumer(*names, **self._settings)

    def unsubscribe(self) -> None:
        """Leave the group and stop reading."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def poll(self, timeout: float | timedelta = 1000) -> list[ConsumerRecord]:
        """Return the next records; wait up to `timeout`, in milliseconds or as a timedelta, for the first."""
        timeout_ms = timeout.total_seconds() * 1000 if isinstance(timeout, timedelta) else timeout
        return self._subscribed().poll(timeout_ms)

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the group's offsets: those given, or of everything polled so far."""
        self._subscribed().commit(offsets)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue with the record at `offset`."""
        self._subscribed().seek(*partition, offset)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions assigned to this consumer."""
        return self._subscribed().assignment()

    def close(self) -> None:
        """Commit, leave the group, disconnect."""
        self._client.close()

    def __enter__(self) -> MessageConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _subscribed(self) -> Consumer:
        if self._consumer is None:
            raise NotSubscribed
        return self._consumer
