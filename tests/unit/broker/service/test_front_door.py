"""The front door: every verb knows who asks, and nobody changes the broker's own topics."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator

import pytest
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.state_log import OFFSETS, TRANSACTIONS
from flymq.broker.service.brokers import OtherBrokers
from flymq.broker.service.caller import Caller
from flymq.broker.service.client_metrics import ClientMetrics
from flymq.broker.service.cluster_state import ClusterStates
from flymq.broker.service.coordinators import Coordinators
from flymq.broker.service.forwarding import Forwarding
from flymq.broker.service.gate import Gate, Operation, Resource
from flymq.broker.service.groups import Groups
from flymq.broker.service.members import Members
from flymq.broker.service.peer_transactions import PeerTransactions
from flymq.broker.service.records import NewRecord, Records
from flymq.broker.service.service import Service
from flymq.broker.service.settings import Settings
from flymq.broker.service.topics import Topics
from flymq.broker.service.transactions import ProducerIdentity, Transactions
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.errors import FlyMQError, TopicIsInternal, TopicNotFound
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch

CALLER = Caller("test")
VERBS = (
    Topics,
    Records,
    Groups,
    Transactions,
    Members,
    Settings,
    ClientMetrics,
    Coordinators,
    PeerTransactions,
    OtherBrokers,
    ClusterStates,
    Forwarding,
)
WITHOUT_CALLER = {
    # whether a call goes to another broker
    "Forwarding.is_elsewhere",
    "Forwarding.close",
    # what the service's own parts ask each other
    "Records.choose_partition",
    "Groups.subscribed",
    "Groups.to_values",
    "Groups.listen",
    "Groups.stop_listening",
    "Members.renamed",
    "Members.drop",
    # `is_missing` tells what `create_missing` is then asked for, and a member knows its caller
    "Records.is_missing",
    "Members.get",
    # parts of a push whose caller was checked, and the broker's own page of metrics
    "ClientMetrics.read",
    "ClientMetrics.failed",
    "ClientMetrics.series",
    # called by the image, not by a client
    "Records.topic_deleted",
    "Members.topic_deleted",
}


def verbs() -> Iterator[tuple[str, list[str]]]:
    for each in VERBS:
        for name, verb in inspect.getmembers(each, inspect.isfunction):
            if not name.startswith("_"):
                yield f"{each.__name__}.{name}", list(inspect.signature(verb).parameters)


def test_every_verb_takes_its_caller_first() -> None:
    without = {name for name, parameters in verbs() if parameters[1:2] != ["caller"]}
    assert without == WITHOUT_CALLER


def test_every_part_of_the_service_with_verbs_is_looked_at() -> None:
    others = {"Cluster", "Access", "Accounts"}  # addresses, logins, counters
    parts = {part if isinstance(part, str) else part.__name__ for part in Service.__annotations__.values()}
    assert parts == {each.__name__ for each in VERBS} | others


@pytest.mark.parametrize("operation", Operation)
def test_the_gate_lets_internal_topics_be_read_and_described_and_nothing_else(operation: Operation) -> None:
    harmless = {
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.CLUSTER_ACTION,
    }
    if operation in harmless:
        Gate().check(CALLER, operation, Resource.TOPIC, OFFSETS)
        return
    with pytest.raises(TopicIsInternal):
        Gate().check(CALLER, operation, Resource.TOPIC, OFFSETS)


def test_an_internal_topic_is_not_created_on_first_use() -> None:
    """As a topic that is not there: Kafka's tools ask for names of Kafka's own internal topics."""

    async def live() -> None:
        world = World(quick_disk=True)
        node = await world.start()
        with pytest.raises(TopicNotFound):
            await node.service.topics.get_or_create(CALLER, "__new")
        await world.close()

    run(live())


@pytest.mark.parametrize("operation", Operation)
def test_a_group_may_be_called_as_it_likes(operation: Operation) -> None:
    Gate().check(CALLER, operation, Resource.GROUP, OFFSETS)


def a_batch() -> bytes:
    return bytes(encode_batch([(b"key", b"value")]))


async def produce(node: Broker, name: TopicPartition) -> None:
    (part,) = node.service.records.produce(CALLER, [(*name, a_batch())], Acks.ALL).parts
    assert isinstance(part, FlyMQError)
    raise part


async def publish(node: Broker, name: TopicPartition) -> None:
    node.service.records.publish(CALLER, name.topic, NewRecord(b"key", b"value"), Acks.ALL, partition=name.partition)


async def produce_in_transaction(node: Broker, name: TopicPartition) -> None:
    identity = await node.service.transactions.init(CALLER, "pay", 10_000)
    node.service.transactions.begin(CALLER, "pay", identity)
    batch = encode_batch(
        [(b"key", b"value")],
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=0,
        transactional=True,
    )
    produced = node.service.records.produce(CALLER, [(*name, batch)], Acks.ALL, transactional_id="pay")
    (part,) = produced.parts
    assert isinstance(part, FlyMQError)
    raise part


async def add_to_transaction(node: Broker, name: TopicPartition) -> None:
    identity = await node.service.transactions.init(CALLER, "pay", 10_000)
    node.service.transactions.begin(CALLER, "pay", identity)
    node.service.transactions.add(CALLER, "pay", identity, partitions=[name])


async def check_partitions(node: Broker, name: TopicPartition) -> None:
    raise node.service.transactions.check_partitions(CALLER, [name])[name]


async def delete_records(node: Broker, name: TopicPartition) -> None:
    await node.service.records.delete(CALLER, name, -1)


async def abort_in_partition(node: Broker, name: TopicPartition) -> None:
    await node.service.transactions.abort_in_partition(CALLER, name, ProducerIdentity(1, 0), coordinator_epoch=0)


async def check_writable(node: Broker, name: TopicPartition) -> None:
    node.service.records.check_writable(CALLER, name.topic)


async def create(node: Broker, name: TopicPartition) -> None:
    await node.service.topics.create(CALLER, name.topic)


async def alter(node: Broker, name: TopicPartition) -> None:
    await node.service.topics.alter(CALLER, name.topic, {"retention.ms": 1})


async def add_partitions(node: Broker, name: TopicPartition) -> None:
    await node.service.topics.add_partitions(CALLER, name.topic, 10)


async def delete(node: Broker, name: TopicPartition) -> None:
    await node.service.topics.delete(CALLER, name.topic)


CHANGES = (
    produce,
    publish,
    produce_in_transaction,
    add_to_transaction,
    check_partitions,
    delete_records,
    abort_in_partition,
    check_writable,
    create,
    alter,
    add_partitions,
    delete,
)


@pytest.mark.parametrize("topic", [OFFSETS, TRANSACTIONS])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_no_verb_changes_an_internal_topic(
    change: Callable[[Broker, TopicPartition], Awaitable[None]], topic: str
) -> None:
    async def live() -> None:
        world = World(quick_disk=True)
        node = await world.start()
        before = [(each.name, each.log.start_offset, each.log.config) for each in node.replicas]
        with pytest.raises(FlyMQError) as refused:
            await change(node, TopicPartition(topic, 0))
        assert isinstance(refused.value, TopicIsInternal)
        await asyncio.sleep(0)
        assert [(each.name, each.log.start_offset, each.log.config) for each in node.replicas] == before
        assert "__new" not in node.image
        await world.close()

    run(live())


def test_topics_that_are_created_on_first_use_are_never_internal() -> None:
    async def live() -> None:
        world = World(quick_disk=True)
        node = await world.start()
        await node.service.records.create_missing(CALLER, ["__new"])
        assert "__new" not in node.image and not node.service.records.is_missing("__new")
        await world.close()

    run(live())
