"""Produce and fetch, as the protocol has them."""

import threading
from urllib.request import urlopen

import msgspec
import pytest
from benchmarks.raw_client import RawClient

from flymq.model.delivery import Acks, Isolation
from flymq.record.batch import encode_batch
from flymq.record.reading import parse_records
from flymq.wire.native.codec import encode_request
from flymq.wire.native.framing import HEADER, MAGIC, VERSION
from flymq.wire.native.messages.push import Credit, Deliver, PushPartition, StartPush, StopPush
from flymq.wire.native.messages.records import (
    AT_EARLIEST,
    AT_LATEST,
    AT_MAX_TIMESTAMP,
    Consume,
    DeleteRecords,
    DeleteRecordsPartition,
    Fetch,
    FetchPartition,
    ListOffsets,
    OffsetQuery,
    PartitionBatches,
    Produce,
    ProduceBatch,
)
from flymq.wire.native.messages.session import Done, ErrorAnswer, Ping
from flymq.wire.native.messages.topics import AddPartitions, AlterTopic, CreateTopic, DeleteTopic, DescribeTopic
from flymq.wire.native.messages.transactions import InitProducer
from flymq.wire.native.opcodes import Opcode


def create(client, topic="t", partitions=1, **settings):
    client.ask(CreateTopic(topic=topic, partitions=partitions, settings=settings))


def produce(client, *values, topic="t", partition=0, acks=Acks.LEADER, timestamp_ms=1000):
    batch = encode_batch([(None, value) for value in values], timestamp_ms=timestamp_ms)
    answer = client.ask(ProduceBatch(partitions=[PartitionBatches(topic, partition, batch)], acks=acks))
    return answer.partitions[0]


def fetch(client, offset=0, *, topic="t", partition=0, **options):
    answer = client.ask(Fetch(partitions=[FetchPartition(topic, partition, offset)], **options))
    part = answer.partitions[0]
    return [record.value for record in parse_records(part.batches, start_offset=offset, aborted=part.aborted)]


def test_a_record_is_read_back_with_key_headers_and_time(client):
    create(client)
    sent = Produce(topic="t", key=b"k", value=b"v", headers=[("h", b"1"), ("n", None)], timestamp=1234)
    answer = client.ask(sent)
    record = client.ask(Consume(topic="t", partition=answer.partition, offset=answer.offset))
    assert (bytes(record.key), bytes(record.value), record.timestamp) == (b"k", b"v", 1234)
    assert [(name, value and bytes(value)) for name, value in record.headers] == [("h", b"1"), ("n", None)]


def test_the_same_key_always_meets_the_same_partition_and_no_key_takes_turns(client):
    create(client, partitions=3)
    keyed = {client.ask(Produce(topic="t", key=b"user-1", value=b"v")).partition for _ in range(5)}
    turns = {client.ask(Produce(topic="t", value=b"v")).partition for _ in range(6)}
    assert len(keyed) == 1
    assert turns == {0, 1, 2}


def test_records_keep_their_order_and_a_fetch_may_start_in_the_middle_of_a_batch(client):
    create(client)
    produce(client, b"0", b"1", b"2")
    produce(client, b"3", b"4")
    assert fetch(client, 0) == [b"0", b"1", b"2", b"3", b"4"]
    assert fetch(client, 2) == [b"2", b"3", b"4"]


def test_every_acks_level_stores_and_all_but_none_answer(client):
    create(client)
    batch = encode_batch([(None, b"NONE")])
    client.socket.sendall(
        encode_request(ProduceBatch(partitions=[PartitionBatches("t", 0, batch)], acks=Acks.NONE))
        + encode_request(Produce(topic="t", value=b"NONE", acks=Acks.NONE))
        + encode_request(Produce(topic="t", value=b"lost", partition=77, acks=Acks.NONE))
    )
    for acks in (Acks.LEADER, Acks.ALL):
        assert produce(client, acks.name.encode(), acks=acks).error is None
    assert fetch(client) == [b"NONE", b"NONE", b"LEADER", b"ALL"]


def test_every_persistence_level_stores_and_serves(client):
    for level in ("memory", "disk", "fsync"):
        create(client, level, persistence=level)
        assert produce(client, b"a", topic=level).base_offset == 0
        assert fetch(client, topic=level) == [b"a"]


def test_a_fetch_at_the_end_waits_until_a_record_comes(flymq_broker, client):
    create(client)
    other = RawClient(flymq_broker.port)
    client.socket.sendall(
        encode_request(Fetch(id=9, partitions=[FetchPartition("t", 0, 0)], max_wait_ms=10_000, min_bytes=1))
    )
    # The waiting request does not block a later one on the same connection.
    assert isinstance(client.ask(Ping(id=10)), Done)
    produce(other, b"late")
    answer = client.receive()
    assert answer.id == 9
    assert [record.value for record in parse_records(answer.partitions[0].batches)] == [b"late"]
    other.close()


def test_a_fetch_returns_empty_when_its_time_is_over(client):
    create(client)
    assert fetch(client, max_wait_ms=20) == []


def test_a_fetch_waits_for_its_minimum_of_bytes(flymq_broker, client):
    create(client)
    other = RawClient(flymq_broker.port)
    query = Fetch(id=1, partitions=[FetchPartition("t", 0, 0)], max_wait_ms=10_000, min_bytes=3000)
    client.socket.sendall(encode_request(query))
    for _ in range(3):
        produce(other, b"x" * 1000)
    assert len(parse_records(client.receive().partitions[0].batches)) == 3
    other.close()


def test_a_waiting_fetch_learns_that_its_topic_was_deleted(flymq_broker, client):
    create(client)
    other = RawClient(flymq_broker.port)
    client.socket.sendall(encode_request(Fetch(id=1, partitions=[FetchPartition("t", 0, 0)], max_wait_ms=60_000)))
    assert isinstance(client.ask(Ping(id=2)), Done)
    other.ask(DeleteTopic(topic="t"))
    assert client.receive().partitions[0].error.code == "TOPIC_NOT_FOUND"
    other.close()


def test_an_offset_outside_the_log_is_an_error_that_says_what_is_there(client):
    create(client)
    produce(client, b"a")
    answer = client.ask(Fetch(partitions=[FetchPartition("t", 0, 99)]))
    assert answer.partitions[0].error.code == "OFFSET_OUT_OF_RANGE"
    assert "0 to 1" in answer.partitions[0].error.message


def test_offsets_are_found_by_position_and_by_time(client):
    create(client)
    for time_ms in (1000, 2000, 3000):
        produce(client, b"v", timestamp_ms=time_ms)
    queries = [AT_EARLIEST, AT_LATEST, AT_MAX_TIMESTAMP, 1500, 3000, 3001]
    answer = client.ask(ListOffsets(partitions=[OffsetQuery("t", 0, at) for at in queries]))
    assert [found.offset for found in answer.partitions] == [0, 3, 2, 1, 2, -1]


def test_deleted_records_are_gone_and_the_rest_stays(client):
    create(client)
    produce(client, b"0", b"1", b"2")
    answer = client.ask(DeleteRecords(partitions=[DeleteRecordsPartition("t", 0, 2)]))
    assert answer.partitions[0].log_start_offset == 2
    assert fetch(client, 2) == [b"2"]
    assert client.ask(Fetch(partitions=[FetchPartition("t", 0, 0)])).partitions[0].error.code == "OFFSET_OUT_OF_RANGE"


def test_a_batch_sent_twice_by_an_idempotent_producer_is_stored_and_counted_once(client, flymq_broker):
    create(client)
    producer = client.ask(InitProducer())
    batch = encode_batch(
        [(None, b"once")], producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=0
    )
    request = ProduceBatch(partitions=[PartitionBatches("t", 0, batch)])
    assert [client.ask(request).partitions[0].base_offset for _ in range(3)] == [0, 0, 0]
    assert fetch(client) == [b"once"]
    page = urlopen(f"http://{flymq_broker.address}/metrics").read().decode()
    assert 'flymq_messages_in_total{protocol="native"} 1\n' in page


def test_two_producers_never_get_the_same_id(client):
    assert len({client.ask(InitProducer()).producer_id for _ in range(20)}) == 20


def test_large_answers_leave_whole_and_in_order(client):
    create(client, **{"max.message.bytes": 4 << 20})
    values = [bytes([number]) * (1 << 20) for number in range(4)]
    for value in values:
        produce(client, value)
    for number in (0, 2):
        client.socket.sendall(
            encode_request(
                Fetch(id=number, partitions=[FetchPartition("t", 0, number, max_bytes=2 << 20)], max_bytes=2 << 20)
            )
        )
    client.socket.sendall(encode_request(Ping(id=77)))
    got = [client.receive() for _ in range(3)]
    assert [answer.id for answer in got] == [0, 2, 77]
    assert parse_records(got[0].partitions[0].batches)[0].value == values[0]
    assert parse_records(got[1].partitions[0].batches)[0].value == values[2]


def test_pushed_batches_come_as_far_as_the_credit_goes(client):
    create(client)
    for number in range(10):
        produce(client, b"%d" % number * 1000)
    client.ask(StartPush(subscription=4, partitions=[PushPartition("t", 0, 0)], credit_bytes=1, max_bytes=1))
    first = client.receive()
    assert isinstance(first, Deliver)
    assert first.subscription == 4
    assert [record.offset for record in parse_records(first.partitions[0].batches)] == [0]
    # Nothing more comes without credit: the next frame is the answer to this ping.
    assert isinstance(client.ask(Ping()), Done)
    client.socket.sendall(encode_request(Credit(subscription=4, credit_bytes=1100)))
    assert [record.offset for record in parse_records(client.receive().partitions[0].batches)] == [1]
    assert isinstance(client.ask(StopPush(subscription=4)), Done)


def test_push_delivers_records_as_they_are_produced(flymq_broker, client):
    create(client)
    other = RawClient(flymq_broker.port)
    client.ask(StartPush(subscription=1, partitions=[PushPartition("t", 0, 0)], credit_bytes=1 << 20))
    for value in (b"a", b"b"):
        produce(other, value)
        assert [record.value for record in parse_records(client.receive().partitions[0].batches)] == [value]
    other.close()


def test_more_partitions_and_other_settings_take_effect_at_once(client):
    create(client)
    client.ask(AddPartitions(topic="t", partitions=3))
    client.ask(AlterTopic(topic="t", settings={"max.message.bytes": 1000}))
    described = client.ask(DescribeTopic(topic="t"))
    assert len(described.partitions) == 3
    assert described.settings["max.message.bytes"] == 1000
    assert described.overrides == ["max.message.bytes"]
    assert produce(client, b"x" * 2000, partition=2).error.code == "MESSAGE_TOO_LARGE"


def test_topics_are_refused_for_the_right_reason(client):
    create(client)
    codes = [
        client.ask(CreateTopic(topic="t")).code,
        client.ask(CreateTopic(topic="a/b")).code,
        client.ask(CreateTopic(topic="x", partitions=100_000)).code,
        client.ask(CreateTopic(topic="x", replication_factor=3)).code,
        client.ask(CreateTopic(topic="x", settings={"retention.sm": 1})).code,
        client.ask(AddPartitions(topic="t", partitions=1)).code,
        client.ask(DeleteTopic(topic="missing")).code,
    ]
    assert codes == [
        "TOPIC_EXISTS",
        "INVALID_TOPIC_NAME",
        "INVALID_PARTITIONS",
        "INVALID_REPLICATION_FACTOR",
        "INVALID_SETTING",
        "INVALID_PARTITIONS",
        "TOPIC_NOT_FOUND",
    ]


def test_a_deleted_topic_made_again_is_empty(client):
    create(client)
    produce(client, b"old")
    client.ask(DeleteTopic(topic="t"))
    create(client)
    assert fetch(client) == []


def test_many_clients_produce_at_once_and_nothing_is_lost(flymq_broker, client):
    create(client)

    def run(number: int) -> None:
        other = RawClient(flymq_broker.port)
        for at in range(50):
            produce(other, b"%d-%d" % (number, at), acks=Acks.ALL)
        other.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = fetch(client, isolation=Isolation.READ_UNCOMMITTED)
    assert sorted(values) == sorted(b"%d-%d" % (number, at) for number in range(4) for at in range(50))
    for number in range(4):
        mine = [value for value in values if value.startswith(b"%d-" % number)]
        assert mine == [b"%d-%d" % (number, at) for at in range(50)]


def test_an_error_names_what_is_wrong_with_a_position(client):
    create(client)
    answer = client.ask(ListOffsets(partitions=[OffsetQuery("t", 0, -9)]))
    assert not isinstance(answer, ErrorAnswer)
    assert answer.partitions[0].error.code == "OFFSET_OUT_OF_RANGE"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"topic": "t", "data": b"v"}, "data"),
        ({"topic": "t"}, "value"),
        ({"topic": "t", "value": b"v", "keys": b"k"}, "keys"),
    ],
)
def test_a_misspelled_or_missing_field_is_refused_and_nothing_is_written(client, payload, reason):
    create(client)
    frame = msgspec.msgpack.encode({"id": 7, **payload})
    client.socket.sendall(HEADER.pack(MAGIC, VERSION, Opcode.PRODUCE, len(frame)) + frame)
    answer = client.receive()
    assert isinstance(answer, ErrorAnswer)
    assert (answer.id, answer.code) == (7, "INVALID_REQUEST")
    assert reason in answer.message
    assert fetch(client) == []


def test_an_explicit_nil_is_a_tombstone(client):
    create(client)
    client.ask(Produce(topic="t", key=b"k", value=None))
    assert fetch(client) == [None]
