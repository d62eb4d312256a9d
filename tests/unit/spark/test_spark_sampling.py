"""What a topic's values are made of is learned from its last records."""

from __future__ import annotations

from flymq import FlyMQClient
from flymq.spark.sampling import infer_schema, sample
from flymq.testing import TestBroker


def test_the_fields_of_json_values_are_learned_from_all_partitions(flymq_broker: TestBroker) -> None:
    with FlyMQClient(flymq_broker.address) as client:
        client.create_topic("orders", 2)
        client.produce("orders", '{"user": "ann", "amount": 1}', partition=0)
        client.produce("orders", '{"user": "bob", "amount": 1.5, "note": null}', partition=1)
        assert infer_schema(client, "orders") == "`user` STRING, `amount` DOUBLE, `note` STRING"


def test_values_that_are_no_json_have_no_fields(flymq_broker: TestBroker) -> None:
    with FlyMQClient(flymq_broker.address) as client:
        client.create_topic("texts", 2)
        assert infer_schema(client, "texts") is None
        client.produce("texts", "plain", key="k")
        client.produce("texts", None)
        assert infer_schema(client, "texts") is None
        assert sample(client, "texts") == ([b"k"], [b"plain"])
