"""A fetch of many partitions takes memory until it is complete: what one connection can have of it is limited."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import CoroutineType
from typing import Any

import pytest
from tests.unit.broker.world import World
from tests.unit.gateways.test_partial_failures import answer_of, in_world, kafka_connection, native_connection

from flymq.broker.broker import Broker
from flymq.gateways.connection import FETCHED_AT_ONCE_MAX
from flymq.gateways.kafka.errors import ErrorCode
from flymq.gateways.kafka.fetch import fetch
from flymq.gateways.kafka.fetch_session import PARTITIONS_MAX
from flymq.gateways.native import records as native
from flymq.model.errors import InvalidRequest
from flymq.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from flymq.wire.native.messages import records as wire

_SESSION_VERSION = 12


def request(numbers: Sequence[int], *, epoch: int = -1, session: int = 0, wait_ms: int = 0) -> FetchRequest:
    partitions = [FetchPartition(number, partition_max_bytes=1 << 20) for number in numbers]
    topics = [FetchTopic("orders", partitions=partitions)]
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, session_id=session, session_epoch=epoch, topics=topics
    )


async def fetched(result: Any) -> Any:
    return await result if isinstance(result, CoroutineType) else await answer_of(result)


def test_a_partition_that_is_named_many_times_is_read_once() -> None:
    async def scenario(_: World, node: Broker) -> None:
        response = await fetched(fetch(kafka_connection(node), request([0, 1, 0, 0, 1]), _SESSION_VERSION))
        assert [part.partition_index for part in response.responses[0].partitions] == [0, 1]
        twice = wire.Fetch([wire.FetchPartition("orders", 0, 0), wire.FetchPartition("orders", 0, 7)])
        with pytest.raises(InvalidRequest, match="more than once"):
            native.fetch(native_connection(node), twice)

    in_world(scenario)


def test_a_session_cannot_grow_beyond_what_one_request_may_have() -> None:
    async def scenario(_: World, node: Broker) -> None:
        connection = kafka_connection(node)
        half = PARTITIONS_MAX // 2
        opened = await fetched(fetch(connection, request(range(half), epoch=0), _SESSION_VERSION))
        more = request(range(half, 2 * half + 1), epoch=1, session=opened.session_id)
        refused = await fetched(fetch(connection, more, _SESSION_VERSION))
        assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the client opens another one"
        assert connection.fetch_session is None

    in_world(scenario)


def test_requests_wait_behind_fetches_of_very_many_partitions() -> None:
    async def scenario(_: World, node: Broker) -> None:
        connection = kafka_connection(node)
        half = FETCHED_AT_ONCE_MAX // 2
        first = asyncio.ensure_future(fetch(connection, request(range(half)), _SESSION_VERSION))  # type: ignore[arg-type]
        assert not connection.must_stop
        second = asyncio.ensure_future(fetch(connection, request(range(half)), _SESSION_VERSION))  # type: ignore[arg-type]
        assert connection.must_stop
        assert connection._is_blocked()
        await asyncio.gather(first, second)
        assert not connection._is_blocked()

    in_world(scenario)
