"""Records that are refused: the same verdict on every protocol, the records named, nothing written."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.world import World
from tests.unit.gateways.test_partial_failures import (
    Scenario,
    answer_of,
    kafka_connection,
    native_connection,
)
from tests.unit.storage.batches import batch, poison

from flymq.broker.broker import Broker
from flymq.gateways.kafka import produce as kafka_produce
from flymq.gateways.kafka.errors import ErrorCode
from flymq.gateways.native import records as native
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.errors import KeyRequired
from flymq.record.batch import encode_batch
from flymq.record.compression import Compression
from flymq.wire.kafka.apis import Api
from flymq.wire.kafka.codec import encode_response
from flymq.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from flymq.wire.native.messages import records as wire


def in_world(scenario: Scenario) -> None:
    """Run a scenario with the topics `orders` and `prices`, which is compacted."""

    async def live() -> None:
        world = World(quick_disk=True)
        node = await world.start()
        await node.admin.create("orders", partitions=1)
        await node.admin.create("prices", partitions=1, settings={"cleanup.policy": "compact"})
        await scenario(world, node)
        for topic in ("orders", "prices"):
            assert world.partition(topic, 0).high_watermark == 0
        await world.close()

    run(live())


async def ask_kafka(node: Broker, topic: str, sent: bytes) -> Any:
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, memoryview(sent))])]
    asked = ProduceRequest(acks=1, topic_data=data)
    response = await answer_of(kafka_produce.produce(kafka_connection(node), asked, 9))
    for version in range(3, 10):
        assert encode_response(Api.PRODUCE, version, 1, response)
    return response.responses[0].partition_responses[0]


async def ask_native(node: Broker, topic: str, sent: bytes) -> Any:
    asked = wire.ProduceBatch(partitions=[wire.PartitionBatches(topic, 0, sent)], acks=Acks.LEADER)
    response = await answer_of(native.produce_batch(native_connection(node), asked))
    return response.partitions[0]


def test_noise_is_refused_on_every_protocol() -> None:
    async def scenario(_: World, node: Broker) -> None:
        part = await ask_kafka(node, "orders", poison())
        assert part.error_code == ErrorCode.INVALID_RECORD
        assert [each.batch_index for each in part.record_errors] == [0]
        assert (await ask_native(node, "orders", poison())).error.code == "INVALID_RECORD"

    in_world(scenario)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_records_without_a_key_are_named_one_by_one_on_a_compacted_topic(compression: Compression) -> None:
    async def scenario(_: World, node: Broker) -> None:
        entries = [(b"k", b"v" * 200), (None, b"v" * 200), (b"k", b"v" * 200), (None, b"v" * 200)]
        sent = bytes(encode_batch(entries, compression=compression))
        part = await ask_kafka(node, "prices", sent)
        assert part.error_code == ErrorCode.INVALID_RECORD
        assert [each.batch_index for each in part.record_errors] == [1, 3]
        assert all("need a key" in each.batch_index_error_message for each in part.record_errors)
        error = (await ask_native(node, "prices", sent)).error
        assert error.code == "KEY_REQUIRED"
        assert "1, 3" in error.message

    in_world(scenario)


def test_a_single_record_without_a_key_is_refused_on_a_compacted_topic() -> None:
    async def scenario(_: World, node: Broker) -> None:
        with pytest.raises(KeyRequired):
            native.produce(native_connection(node), wire.Produce(topic="prices", value=b"v"))

    in_world(scenario)


def test_a_wrong_checksum_stays_a_corrupt_message() -> None:
    async def scenario(_: World, node: Broker) -> None:
        torn = bytearray(batch("one"))
        torn[-1] ^= 1
        part = await ask_kafka(node, "orders", bytes(torn))
        assert (part.error_code, part.record_errors) == (ErrorCode.CORRUPT_MESSAGE, [])

    in_world(scenario)


def test_records_with_a_time_too_far_ahead_are_named_one_by_one() -> None:
    async def scenario(_: World, node: Broker) -> None:
        now_ms = node.clock.now_ms()
        entries = [(b"k", b"v", (), time) for time in (now_ms, now_ms + 3_700_000, -1, now_ms + 3_800_000)]
        sent = bytes(encode_batch(entries))
        part = await ask_kafka(node, "orders", sent)
        assert part.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [each.batch_index for each in part.record_errors] == [1, 3]
        assert (await ask_native(node, "orders", sent)).error.code == "INVALID_TIMESTAMP"

    in_world(scenario)
