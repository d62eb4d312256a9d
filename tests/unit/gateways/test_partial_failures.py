"""A request for several partitions: each succeeds or fails on its own. And where the first record's epoch is told."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.service.transactions import ProducerIdentity
from flymq.gateways.budget import BufferBudget
from flymq.gateways.connection import AnswerLater, ConnectionLimits, SharedByConnections
from flymq.gateways.kafka import offsets as kafka_offsets
from flymq.gateways.kafka import produce as kafka_produce
from flymq.gateways.kafka import transactions as kafka_transactions
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode
from flymq.gateways.native import records as native
from flymq.gateways.native.connection import NativeConnection
from flymq.host.tasks import run_steps_here
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.wire.kafka.messages import list_offsets as kafka_listing
from flymq.wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from flymq.wire.kafka.messages.end_txn import EndTxnRequest
from flymq.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from flymq.wire.native.messages import records as wire

Scenario = Callable[[World, Broker], Awaitable[None]]
OTHER = 7
"""Another broker."""
FAILED = "NOT_LEADER"


def in_world(scenario: Scenario) -> None:
    """Run a scenario with the topic `orders`, of three partitions."""

    async def live() -> None:
        world = World(quick_disk=True)
        node = await world.start()
        await node.admin.create("orders", partitions=3, settings={"persistence": "disk"})
        await scenario(world, node)
        await world.close()

    run(live())


def shared(node: Broker) -> SharedByConnections:
    requests = node.service.accounts.requests
    return SharedByConnections(node.clock, BufferBudget(1 << 20), ConnectionLimits(), requests)


def native_connection(node: Broker) -> NativeConnection:
    return NativeConnection(node.service, shared(node), {})


def kafka_connection(node: Broker) -> KafkaConnection:
    return KafkaConnection(node.service, shared(node), {})


async def answer_of(result: Any) -> Any:
    """Return an answer, now or when it is there."""
    if isinstance(result, AnswerLater):
        return result.answer(await result.awaited)
    return result


def a_batch() -> bytes:
    return bytes(encode_batch([(None, b"value")]))


def batches(*partitions: int) -> list[wire.PartitionBatches]:
    return [wire.PartitionBatches("orders", number, a_batch()) for number in partitions]


def codes(parts: list[Any]) -> dict[int, str | None]:
    return {part.partition: None if part.error is None else part.error.code for part in parts}


# --- native


def test_a_batch_for_a_partition_led_elsewhere_does_not_fail_the_others() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.elect(TopicPartition("orders", 1), OTHER)
        request = wire.ProduceBatch(batches(0, 1, 2), acks=Acks.ALL)
        answer = await answer_of(native.produce_batch(native_connection(node), request))
        assert codes(answer.partitions) == {0: None, 1: FAILED, 2: None}
        assert [part.base_offset for part in answer.partitions] == [0, -1, 0]

    in_world(scenario)


def test_a_batch_whose_fsync_fails_does_not_fail_the_others() -> None:
    async def scenario(world: World, node: Broker) -> None:
        world.disk.fail_next("sync", f"{node.image.get('orders').topic_id.hex}/1/", errno.EIO)
        request = wire.ProduceBatch(batches(0, 1, 2), acks=Acks.ALL)
        answer = await answer_of(native.produce_batch(native_connection(node), request))
        assert codes(answer.partitions) == {0: None, 1: "FSYNC_FAILED", 2: None}
        assert answer.partitions[1].base_offset == -1

    in_world(scenario)


def test_a_fetch_from_a_partition_led_elsewhere_gives_the_records_of_the_others() -> None:
    async def scenario(world: World, node: Broker) -> None:
        for number in range(3):
            world.partition("orders", number).append(a_batch(), Acks.LEADER)
        await world.elect(TopicPartition("orders", 1), OTHER)
        wanted = [wire.FetchPartition("orders", number, 0) for number in range(3)]
        pieces = await answer_of(native.fetch(native_connection(node), wire.Fetch(wanted, max_wait_ms=60_000)))
        slices = [piece for piece in pieces if hasattr(piece, "offsets")]
        assert [piece.offsets for piece in slices] == [1, 1]

    in_world(scenario)


def test_an_offset_that_cannot_be_found_does_not_hide_the_others() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.elect(TopicPartition("orders", 1), OTHER)
        queries = [wire.OffsetQuery("orders", number) for number in (0, 1, 2, 9)]
        answer = await native.list_offsets(native_connection(node), wire.ListOffsets(queries))
        assert codes(answer.partitions) == {0: None, 1: FAILED, 2: None, 9: "PARTITION_NOT_FOUND"}
        assert [part.offset for part in answer.partitions] == [0, -1, 0, -1]

    in_world(scenario)


def test_records_that_cannot_be_deleted_do_not_keep_the_others() -> None:
    async def scenario(world: World, node: Broker) -> None:
        for number in range(3):
            world.partition("orders", number).append(a_batch(), Acks.LEADER)
        await world.elect(TopicPartition("orders", 1), OTHER)
        parts = [wire.DeleteRecordsPartition("orders", number, -1) for number in range(3)]
        answer = await native.delete_records(native_connection(node), wire.DeleteRecords(parts))
        assert codes(answer.partitions) == {0: None, 1: FAILED, 2: None}
        assert [world.partition("orders", number).start_offset for number in (0, 2)] == [1, 1]

    in_world(scenario)


# --- Kafka


def kafka_request(*partitions: int) -> ProduceRequest:
    data = [PartitionProduceData(number, a_batch()) for number in partitions]
    return ProduceRequest(
        acks=Acks.ALL.value, timeout_ms=1_000, topic_data=[TopicProduceData("orders", partition_data=data)]
    )


def kafka_codes(response: Any) -> list[int]:
    return [part.error_code for topic in response.responses for part in topic.partition_responses]


def test_kafka_a_batch_whose_fsync_fails_does_not_fail_the_others() -> None:
    async def scenario(world: World, node: Broker) -> None:
        world.disk.fail_next("sync", f"{node.image.get('orders').topic_id.hex}/1/", errno.EIO)
        response = await answer_of(kafka_produce.produce(kafka_connection(node), kafka_request(0, 1, 2), 9))
        assert kafka_codes(response) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]

    in_world(scenario)


def test_kafka_a_batch_for_a_partition_led_elsewhere_does_not_fail_the_others() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.elect(TopicPartition("orders", 1), OTHER)
        response = await answer_of(kafka_produce.produce(kafka_connection(node), kafka_request(0, 1, 2), 9))
        assert kafka_codes(response) == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]

    in_world(scenario)


def test_kafka_a_commit_whose_fsync_fails_is_sent_again_since_its_outcome_is_unknown() -> None:
    async def scenario(world: World, node: Broker) -> None:
        connection = kafka_connection(node)
        producer = await node.service.transactions.init(connection.caller, "payments", 60_000)
        name = TopicPartition("orders", 0)
        await answer_of(kafka_transactions.add_partitions_to_txn(connection, added(producer, name), 3))
        world.partition("orders").append(a_batch(), Acks.LEADER)
        world.disk.fail_next("sync", f"{node.image.get('orders').topic_id.hex}/0/", errno.EIO)
        request = EndTxnRequest("payments", producer.producer_id, producer.epoch, committed=True)
        response = await kafka_transactions.end_txn(connection, request, 3)
        assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    in_world(scenario)


def added(producer: ProducerIdentity, name: TopicPartition) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name.topic, [name.partition])]
    return AddPartitionsToTxnRequest("payments", producer.producer_id, producer.epoch, topics)


# --- the epoch of the first record


def test_the_start_of_a_log_has_the_epoch_that_wrote_its_first_record_for_native_and_kafka_alike() -> None:
    async def scenario(world: World, node: Broker) -> None:
        name = TopicPartition("orders", 0)
        world.partition("orders").append(a_batch(), Acks.LEADER)
        await world.elect(name, world.broker_id)
        world.partition("orders").append(a_batch(), Acks.LEADER)
        assert await earliest(node) == {"native": (0, 0), "kafka": (0, 0), "kafka local": (0, 0)}
        run_steps_here(world.partition("orders").delete_before(1))
        assert await earliest(node) == {"native": (1, 1), "kafka": (1, 1), "kafka local": (1, 1)}

    in_world(scenario)


async def earliest(node: Broker) -> dict[str, tuple[int, int]]:
    """Return offset and epoch of the start of orders-0, as each protocol tells it."""
    query = wire.ListOffsets([wire.OffsetQuery("orders", 0, wire.AT_EARLIEST)])
    (part,) = (await native.list_offsets(native_connection(node), query)).partitions
    found = {"native": (part.offset, part.leader_epoch)}
    for label, timestamp in (("kafka", -2), ("kafka local", kafka_offsets.EARLIEST_LOCAL)):
        request = kafka_listing.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[kafka_listing.ListOffsetsTopic("orders", [kafka_listing.ListOffsetsPartition(0, -1, timestamp)])],
        )
        (topic,) = (await kafka_offsets.list_offsets(kafka_connection(node), request, 8)).topics
        found[label] = (topic.partitions[0].offset, topic.partitions[0].leader_epoch)
    return found
