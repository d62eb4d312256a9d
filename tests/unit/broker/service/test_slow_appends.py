"""Large compressed batches are checked away from the event loop, and keep their place in the order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.unit.broker.world import World
from tests.unit.gateways.test_partial_failures import kafka_connection
from tests.unit.storage.batches import NOW_MS, batch, idempotent, with_payload

from flymq.broker.broker import Broker
from flymq.broker.service.caller import Caller
from flymq.broker.service.records import NewRecord, Produced, View
from flymq.broker.service.slow_appends import WAITING_BYTES_MAX
from flymq.gateways.kafka import produce as kafka_produce
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.errors import FlyMQError, InvalidRecord
from flymq.record.batch import encode_batch
from flymq.record.compression import Compression, compress
from flymq.record.header import split_batches
from flymq.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Scenario = Callable[[World, Broker], Awaitable[None]]
CALLER = Caller("native")


def in_world(scenario: Scenario) -> None:
    async def live() -> None:
        world = World(quick_disk=True)
        node = await world.start()
        await node.admin.create("orders", partitions=2)
        await scenario(world, node)
        await world.close()

    run(live())


def large(letter: bytes, **fields: Any) -> bytes:
    """A small batch that unpacks to 3 MB."""
    records = [(b"k", letter * 1_000)] * 3_000
    return bytes(encode_batch(records, timestamp_ms=NOW_MS, compression=Compression.ZSTD, **fields))


def large_noise() -> bytes:
    return with_payload(large(b"x"), bytes(compress(b"\xff" * 3_000_000, Compression.ZSTD)))


def produce(node: Broker, *batches: bytes, partition: int = 0, acks: Acks = Acks.LEADER) -> Produced:
    return node.service.records.produce(CALLER, [("orders", partition, each) for each in batches], acks)


def bases(produced: Produced) -> list[int | str]:
    return [part.code if isinstance(part, FlyMQError) else part.base_offset for part in produced.parts]


async def decided(produced: Produced) -> list[int | str]:
    assert produced.decided is not None
    await produced.decided
    return bases(produced)


def test_a_large_batch_is_appended_later_and_the_small_ones_after_it_follow() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = produce(node, large(b"a"))
        second = produce(node, batch("small"), large(b"b"), batch("last"))
        assert world.partition("orders", 0).log.end_offset == 0
        assert await decided(second) == [3_000, 3_001, 6_001]
        assert bases(first) == [0]
        assert produce(node, batch("at once")).decided is None
        assert [record.value for record in world.read("orders", 0)][-2:] == [b"last", b"at once"]

    in_world(scenario)


def test_other_partitions_do_not_wait() -> None:
    async def scenario(_: World, node: Broker) -> None:
        waiting = produce(node, large(b"a"))
        assert bases(produce(node, batch("small"), partition=1)) == [0]
        await decided(waiting)

    in_world(scenario)


def test_a_refused_batch_leaves_the_others_in_order() -> None:
    async def scenario(world: World, node: Broker) -> None:
        produced = produce(node, large(b"a"), large_noise(), large(b"b"), batch("last"))
        assert await decided(produced) == [0, InvalidRecord.code, 3_000, 6_000]
        assert world.partition("orders", 0).high_watermark == 6_001
        failures = node.service.accounts.requests.failures
        assert failures["native", InvalidRecord.code] == 1

    in_world(scenario)


def test_an_idempotent_producer_keeps_its_sequence_and_its_repeats_are_recognised() -> None:
    async def scenario(world: World, node: Broker) -> None:
        sent = large(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
        first, second = produce(node, sent), produce(node, idempotent(1, 3_000))
        again = produce(node, sent)
        assert await decided(again) == [0]
        assert (bases(first), bases(second)) == ([0], [3_000])
        assert world.partition("orders", 0).high_watermark == 3_001

    in_world(scenario)


def test_the_acknowledgement_waits_for_the_disk() -> None:
    async def scenario(world: World, node: Broker) -> None:
        assert await decided(produce(node, large(b"a"), acks=Acks.ALL)) == [0]
        log = world.partition("orders", 0).log
        assert log.durable_offset == log.end_offset == 3_000

    in_world(scenario)


def test_the_records_are_counted_when_they_are_written() -> None:
    async def scenario(_: World, node: Broker) -> None:
        produced = produce(node, large(b"a"))
        traffic = node.service.accounts.traffic
        assert "native" not in traffic.by_protocol()
        await decided(produced)
        assert traffic.by_protocol()["native"].records_in == 3_000

    in_world(scenario)


def test_many_batches_at_once_are_checked_up_to_a_limit_and_the_rest_later() -> None:
    async def scenario(world: World, node: Broker) -> None:
        records = [(b"k", b"v" * 1_000)] * 900
        sent = bytes(encode_batch(records, timestamp_ms=NOW_MS, compression=Compression.ZSTD))
        produced = [produce(node, sent, partition=number % 2) for number in range(10)]
        at_once = [each for each in produced if each.decided is None]
        assert len(at_once) == 4
        assert produced[:4] == at_once
        for each in produced[4:]:
            await decided(each)
        assert [bases(each) for each in produced] == [[900 * (number // 2)] for number in range(10)]
        assert produce(node, sent).decided is None
        assert world.partition("orders", 0).log.end_offset == 5_400

    in_world(scenario)


def test_clients_are_throttled_while_too_much_waits() -> None:
    async def scenario(_: World, node: Broker) -> None:
        huge = batch("x" * (9 << 20))  # refused, but only in its turn
        produced = [produce(node, huge) for _ in range(WAITING_BYTES_MAX // len(huge) + 2)]
        assert produced[0].throttle_ms == 0
        assert produced[-1].throttle_ms > 0
        await decided(produced[-1])
        assert produce(node, batch("small")).throttle_ms == 0

    in_world(scenario)


def test_a_late_error_ends_the_connection_of_a_kafka_client_that_expects_no_answer() -> None:
    async def scenario(_: World, node: Broker) -> None:
        connection = kafka_connection(node)
        data = [TopicProduceData("orders", partition_data=[PartitionProduceData(0, memoryview(large_noise()))])]
        assert kafka_produce.produce(connection, ProduceRequest(acks=0, topic_data=data), 9) is None
        assert not connection._ends_when_sent
        await decided(produce(node, batch("behind it")))
        assert connection._ends_when_sent

    in_world(scenario)


def stored_codecs(world: World) -> list[Compression]:
    read = world.partition("orders", 0).read(0, bytes_max=1 << 30, view=View.UNCOMMITTED)
    assert read.slice is not None
    return [Compression(header.compression) for _, header in split_batches(read.slice.read())]


def test_a_batch_is_compressed_again_away_from_the_loop_and_keeps_its_place_in_the_order() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await node.admin.alter("orders", {"compression.type": "zstd"})
        fitting = bytes(encode_batch([(b"k", b"b" * 500)], timestamp_ms=NOW_MS, compression=Compression.ZSTD))
        first = produce(node, batch("a" * 500))
        second = produce(node, fitting)
        assert world.partition("orders", 0).log.end_offset == 0
        assert await decided(second) == [1]
        assert bases(first) == [0]
        assert produce(node, fitting).decided is None
        assert stored_codecs(world) == [Compression.ZSTD] * 3
        assert [record.value for record in world.read("orders", 0)][:2] == [b"a" * 500, b"b" * 500]

    in_world(scenario)


def test_a_single_record_is_compressed_too_and_its_answer_has_its_offset() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await node.admin.alter("orders", {"compression.type": "lz4"})
        await decided(produce(node, batch("before" * 100)))
        record = NewRecord(b"k", b"v" * 1_000)
        published, written = node.service.records.publish(CALLER, "orders", record, Acks.LEADER, partition=0)
        assert written is not None
        await written
        assert published.offset == 1
        assert stored_codecs(world) == [Compression.LZ4] * 2

    in_world(scenario)


def test_what_is_refused_in_the_thread_is_told_to_the_producer() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await node.admin.alter("orders", {"compression.type": "gzip"})
        late = encode_batch([(b"k", b"v")], timestamp_ms=node.clock.now_ms() + 10**10)
        assert await decided(produce(node, bytes(late))) == ["INVALID_TIMESTAMP"]
        assert world.partition("orders", 0).log.end_offset == 0

    in_world(scenario)
