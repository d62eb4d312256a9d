"""The coordinator of a group knows the lag, and resets offsets, in partitions that other brokers lead."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import httpx
from tests.cluster.brokers import WITHIN_S, Brokers

from flymq import FlyMQClient
from flymq.client.aio.connection import connect
from flymq.client.metrics import Counters
from flymq.client.settings import ConnectionConfig
from flymq.host.network import SystemNetwork
from flymq.model.coordinators import CoordinatorKind
from flymq.wire.native.messages import groups as wire
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.records import AT_EARLIEST, OffsetQuery

M = TypeVar("M", bound=Message)


def ask(brokers: Brokers, broker: int, request: Message, answer: type[M]) -> M:
    """Ask one broker, without the SDK's help."""

    async def asked() -> M:
        where = "127.0.0.1", brokers[broker].port
        connection = await connect(where, ConnectionConfig(client_id="test"), Counters(), SystemNetwork())
        try:
            return await connection.request(request, answer, WITHIN_S)
        finally:
            connection.close()

    return asyncio.run(asked())


def test_the_coordinator_knows_the_lag_and_resets_offsets_wherever_partitions_are_led(cluster: Brokers) -> None:
    with FlyMQClient(cluster.addresses, acks="all") as client:
        client.create_topic("lagging", partitions=6, replication_factor=1)
        for number in range(6):
            client.produce_batch("lagging", [b"a", b"b", b"c"], partition=number)
        client.admin.reset_offsets("readers", "lagging", dict.fromkeys(range(6), 1))
    found = wire.FindCoordinator(kind=CoordinatorKind.GROUP, key="readers")
    coordinator = ask(cluster, 1, found, wire.FindCoordinatorAnswer).broker
    assert {cluster.leader_of("lagging", number) for number in range(6)} == {1, 2, 3}

    described = ask(cluster, coordinator, wire.DescribeGroup(group="readers"), wire.DescribeGroupAnswer)
    assert [(part.offset, part.end_offset, part.lag) for part in described.positions] == [(1, 3, 2)] * 6
    with httpx.Client(base_url=f"http://{cluster[coordinator].address}/api/v1", timeout=WITHIN_S) as http:
        shown: Any = http.get("/groups/readers").json()
        assert shown["lag"] == 12
        body = {"offsets": [{"topic": "lagging", "partition": number, "offset": 2} for number in range(6)]}
        answer: Any = http.post("/groups/readers/reset", json=body).json()
        assert [each.get("error") for each in answer["offsets"]] == [None] * 6
        too_far = {"offsets": [{"topic": "lagging", "partition": number, "offset": 4} for number in range(6)]}
        answer = http.post("/groups/readers/reset", json=too_far).json()
        assert [each["error"]["code"] for each in answer["offsets"]] == ["OFFSET_OUT_OF_RANGE"] * 6
        assert http.get("/groups/readers").json()["lag"] == 6

    queries = [OffsetQuery("lagging", number, AT_EARLIEST) for number in range(6)]
    reset = ask(cluster, coordinator, wire.ResetOffsets(group="readers", partitions=queries), wire.ResetOffsetsAnswer)
    assert [(part.offset, part.error) for part in reset.partitions] == [(0, None)] * 6
