"""Properties of Kafka's clients become settings; one that means nothing here is refused."""

import pytest

from flymq import MessageConsumer, MessageProducer, ProducerRecord, serializers
from flymq.client.kafka_style import _CONNECTION, _CONSUMER, _PRODUCER, _translate
from flymq.model.errors import InvalidSetting, NotSubscribed

KAFKA_PACKAGE = "org.apache.kafka.common.serialization."


def test_producer_properties_become_settings():
    connection, producer = _translate(
        {
            "bootstrap.servers": "localhost:9092",
            "key.serializer": KAFKA_PACKAGE + "StringSerializer",
            "value.serializer": "JsonSerializer",
            "acks": "all",
            "linger.ms": "5",
            "compression.type": "lz4",
            "enable.idempotence": "true",
        },
        _CONNECTION,
        _PRODUCER,
    )
    assert connection == {"bootstrap_servers": "localhost:9092"}
    assert producer == {
        "key_serializer": serializers.to_text,
        "value_serializer": serializers.to_json,
        "acks": "all",
        "linger_ms": 5.0,
        "compression": "lz4",
        "idempotent": True,
    }


def test_consumer_properties_become_settings():
    _, consumer = _translate(
        {"group.id": "g", "value.deserializer": KAFKA_PACKAGE + "StringDeserializer", "enable.auto.commit": False},
        _CONNECTION,
        _CONSUMER,
    )
    assert consumer == {"group": "g", "value_deserializer": serializers.from_text, "auto_commit": False}


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"bootstrap.server": "x"}, "bootstrap.server"),
        ({"linger.ms": "soon"}, "linger.ms"),
        ({"enable.idempotence": "maybe"}, "enable.idempotence"),
        ({"value.serializer": "my.Serializer"}, "value.serializer"),
    ],
)
def test_a_wrong_property_is_named(properties, named):
    with pytest.raises(InvalidSetting, match=named):
        MessageProducer(properties)


def test_a_serializer_may_be_a_function():
    [producer] = _translate({"value.serializer": str.encode}, _PRODUCER)
    assert producer == {"value_serializer": str.encode}


def test_a_record_is_made_with_or_without_a_key():
    keyed, bare = ProducerRecord("topic", "key1", "Hello"), ProducerRecord("topic", "Hello")
    assert (keyed.topic, keyed.key, keyed.value) == ("topic", "key1", "Hello")
    assert (bare.key, bare.value) == (None, "Hello")
    assert ProducerRecord("topic", "key", None).value is None


def test_a_consumer_that_reads_nothing_says_what_to_do():
    with MessageConsumer({"group.id": "g"}) as consumer, pytest.raises(NotSubscribed) as refusal:
        consumer.poll()
    assert "subscribe" in refusal.value.hint
