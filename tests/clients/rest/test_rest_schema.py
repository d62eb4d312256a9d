"""The broker answers as its own description says, whatever is asked: no 5xx, no answer that is not described."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from flymq.gateways.rest.schema.operation_table import api_document
from flymq.testing import TestBroker, running_broker

document = json.loads(api_document())
# Schemathesis does not know how to write lines; test_rest_records.py does.
del document["paths"]["/api/v1/topics/{topic}/records"]["post"]["requestBody"]["content"]["application/x-ndjson"]
# A tail has no end, so it cannot be called and looked at.
schema = schemathesis.openapi.from_dict(document).exclude(operation_id="tail_records")

# What is well formed may still be wrong: an offset that is not there, a name that is not allowed.
NOT_ASKED: list[Any] = [positive_data_acceptance]

NOT_AGAIN = ["delete_topic", "delete_group", "delete_consumer", "create_consumer"]
"""What would take away, or slow down, what the others use."""

bounded = settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    """A broker that lets nobody wait for long."""
    with running_broker(settings={"limits.fetch_wait_ms_max": 20}) as running:
        yield running


@pytest.fixture(scope="module")
def known(broker: TestBroker) -> Iterator[dict[str, object]]:
    """Return the names of things that exist, for the parameters of a path."""
    base = f"http://127.0.0.1:{broker.port}/api/v1"
    found = {"topic": "orders", "partition": 0, "group": "billing", "broker": 0, "transaction": "none"}
    with httpx.Client(base_url=base) as client:
        client.post("/topics", json={"name": "orders", "partitions": 2})
        client.post("/topics/orders/records", json={"records": [{"value": 1, "partition": 0}]})
        created = client.post("/groups/billing/consumers", json={"topics": ["orders"]}).json()
        yield {**found, "consumer": created["id"]}


@schema.parametrize()
@bounded
def test_every_answer_is_described(case: schemathesis.Case[Any], broker: TestBroker) -> None:
    case.call_and_validate(base_url=f"http://127.0.0.1:{broker.port}", timeout=10, excluded_checks=NOT_ASKED)


@schema.include(path_regex="{").exclude(operation_id=NOT_AGAIN).parametrize()
@bounded
def test_every_answer_about_what_exists_is_described(
    case: schemathesis.Case[Any], broker: TestBroker, known: dict[str, object]
) -> None:
    case.path_parameters = {name: known[name] for name in case.path_parameters or {}}
    case.call_and_validate(base_url=f"http://127.0.0.1:{broker.port}", timeout=10, excluded_checks=NOT_ASKED)
