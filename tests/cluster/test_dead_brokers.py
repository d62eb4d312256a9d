"""Three brokers as processes, with leases that outlast the test: whoever is killed is replaced all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster.brokers import Brokers

import flymq
from flymq.cluster.image import Image

LEASE_MS = 600_000


@pytest.fixture
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path_factory.mktemp("c"), settings={"cluster.session_timeout_ms": LEASE_MS})
    try:
        yield brokers
    finally:
        brokers.close()


def test_a_killed_leader_that_is_the_controller_is_replaced_without_its_leases(patient: Brokers) -> None:
    with flymq.FlyMQClient(patient.addresses, acks="all") as client:
        client.admin.create_topic("orders", partitions=6, replication_factor=3)
        patient.until_in_sync("orders")
        seat = patient.store.image.members.controller
        assert seat is not None
        patient[seat.broker_id].kill()

        def is_replaced(image: Image) -> bool:
            members, states = image.members, image.get("orders").partitions
            is_governed = members.controller is not None and members.controller.broker_id != seat.broker_id
            return is_governed and all(state.leader not in (-1, seat.broker_id) for state in states)

        patient.store.until(is_replaced, "others lead and govern")
        assert seat.broker_id not in patient.store.image.members.live
        client.produce("orders", b"goes on")
        patient[seat.broker_id].start()
        patient.until_in_sync("orders")
