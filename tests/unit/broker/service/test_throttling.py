"""Quotas: who produces or fetches more than its quota is throttled, under the name that says most about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.service.caller import Caller
from flymq.broker.service.members import PartTaken
from flymq.broker.service.records import Fetched, FetchFrom, FetchQuery, NewRecord
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks, Isolation
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch

ORDERS = TopicPartition("orders", 0)
QUOTA = 1_000
Verb = Callable[[Broker, Caller], Awaitable[int]]
"""Moves 5,000 bytes; returns for how many milliseconds the client is throttled."""


async def produce(node: Broker, caller: Caller) -> int:
    batch = encode_batch([(None, bytes(5 * QUOTA))])
    return node.service.records.produce(caller, [(*ORDERS, batch)], Acks.LEADER).throttle_ms


async def publish(node: Broker, caller: Caller) -> int:
    published, _ = node.service.records.publish(caller, "orders", NewRecord(None, bytes(5 * QUOTA)), Acks.LEADER)
    return published.throttle_ms


async def fetch(node: Broker, caller: Caller) -> int:
    fetched = node.service.records.fetch(caller, FetchQuery([FetchFrom(ORDERS, 0, 1 << 20)]))
    assert isinstance(fetched, Fetched) and fetched.reads[0].length > 5 * QUOTA
    return fetched.throttle_ms


async def take(node: Broker, caller: Caller) -> int:
    """Read records as REST does."""
    reader = node.service.members.reader(caller, Isolation.READ_COMMITTED)
    reader.positions[ORDERS] = 0
    taken = await reader.take(limit=100, bytes_max=1 << 20, wait_ms=0)
    assert isinstance(taken.parts[0], PartTaken)
    return taken.throttle_ms


SAME = [
    (Caller("kafka", "10.0.0.1", "app", "ann"), Caller("rest", "10.0.0.2", "other app", "ann")),
    (Caller("kafka", "10.0.0.1", "app"), Caller("native", "10.0.0.2", "app")),
    (Caller("kafka", "10.0.0.1"), Caller("rest", "10.0.0.1")),
]
DIFFERENT = [
    (Caller("kafka", "10.0.0.1", "app", "ann"), Caller("kafka", "10.0.0.1", "app", "bob")),
    (Caller("kafka", "10.0.0.1", "app"), Caller("kafka", "10.0.0.1", "other app")),
    (Caller("kafka", "10.0.0.1"), Caller("kafka", "10.0.0.2")),
]
NAMED_BY = ["principal", "client id", "address"]


async def throttled(node: Broker, verb: Verb, *callers: Caller) -> list[int]:
    return [await verb(node, caller) for caller in callers]


def in_world(scenario: Callable[[Broker], Awaitable[None]], quotas: tuple[int, int]) -> None:
    async def live() -> None:
        world = World(quick_disk=True, quotas=quotas)
        node = await world.start()
        await node.admin.create("orders", partitions=1, settings={"persistence": "disk"})
        world.partition("orders").append(encode_batch([(None, bytes(5 * QUOTA))]), Acks.LEADER)
        await scenario(node)
        await world.close()

    run(live())


VERBS: dict[Verb, tuple[int, int]] = {produce: (QUOTA, 0), publish: (QUOTA, 0), fetch: (0, QUOTA), take: (0, QUOTA)}


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
@pytest.mark.parametrize("callers", SAME, ids=NAMED_BY)
def test_clients_of_one_name_pay_from_one_account(verb: Verb, callers: tuple[Caller, Caller]) -> None:
    async def scenario(node: Broker) -> None:
        first, second = await throttled(node, verb, *callers)
        assert 4_000 <= first < 4_200
        assert 9_000 <= second < 9_400

    in_world(scenario, VERBS[verb])


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
@pytest.mark.parametrize("callers", DIFFERENT, ids=NAMED_BY)
def test_clients_of_other_names_do_not(verb: Verb, callers: tuple[Caller, Caller]) -> None:
    async def scenario(node: Broker) -> None:
        first, second = await throttled(node, verb, *callers)
        assert first == second
        assert 4_000 <= first < 4_200

    in_world(scenario, VERBS[verb])


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_without_a_quota_nobody_is_throttled(verb: Verb) -> None:
    async def scenario(node: Broker) -> None:
        assert await throttled(node, verb, *SAME[0]) == [0, 0]

    in_world(scenario, (0, 0))


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_the_quota_of_producing_is_not_that_of_fetching(verb: Verb) -> None:
    async def scenario(node: Broker) -> None:
        assert await throttled(node, verb, *SAME[0]) == [0, 0]

    produce_quota, fetch_quota = VERBS[verb]
    in_world(scenario, (fetch_quota, produce_quota))
