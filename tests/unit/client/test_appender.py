"""In the caller's thread a record becomes bytes, gets its partition and joins a batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.client import serializers
from flymq.client.accumulator import Accumulator
from flymq.client.appender import RecordAppender
from flymq.client.encryption import KEY_HEADER, Cipher
from flymq.client.settings import ProducerConfig
from flymq.model.errors import PartitionNotFound, SerializationFailed
from flymq.record.batch import encode_batch
from flymq.record.partitioning import partition_for_key


def appender(partitions: int = 4, cipher: Cipher | None = None, batch_bytes: int = 1 << 20, **settings):
    accumulator = Accumulator(
        batch_bytes_max=batch_bytes, buffer_bytes_max=1 << 30, linger_s=0, now_s=lambda: 0.0, wake=lambda: None
    )
    return RecordAppender(accumulator, ProducerConfig(**settings), cipher), accumulator.set_topic(
        "t", partitions, 1 << 20
    )


def append(value, key=None, **more):
    settings = {name: more.pop(name) for name in ("value_serializer", "key_serializer", "partitioner") if name in more}
    entry, topic = appender(**settings)
    delivery = entry.append(topic, value, key, **more)
    return delivery.batch, delivery.batch.records[delivery.index]


def test_text_and_bytes_need_no_serializer():
    assert append("text", key="key")[1][:2] == (b"key", b"text")
    assert append(bytearray(b"v"))[1][:2] == (None, b"v")
    assert append(None, key=b"k")[1][:2] == (b"k", None)
    assert append(b"v", key="k")[1] == (b"k", b"v")


def test_anything_else_needs_one():
    with pytest.raises(SerializationFailed, match="int is neither bytes nor str"):
        append(42)


def test_a_serializer_makes_the_bytes():
    assert append({"a": 1}, value_serializer=serializers.to_json)[1][:2] == (None, b'{"a":1}')


def test_records_of_one_key_go_to_the_partition_every_kafka_client_would_choose():
    for key in (b"user-1", b"user-2", b"user-3"):
        assert append(b"v", key=key)[0].partition == partition_for_key(key, 4)


def test_the_caller_may_choose_the_partition():
    assert append(b"v", key=b"k", partition=3)[0].partition == 3


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_the_topic_does_not_have_is_refused(partition):
    with pytest.raises(PartitionNotFound, match="0 to 3"):
        append(b"v", partition=partition)


def test_a_partitioner_of_the_users_own_chooses():
    assert append(b"v", key=b"k", partitioner=lambda topic, key, value, count: count - 1)[0].partition == 3


def test_headers_and_time_travel_with_the_record():
    assert append(b"v", headers=[("trace", "1"), ("none", None)], timestamp_ms=5)[1] == (
        None,
        b"v",
        (("trace", b"1"), ("none", None)),
        5,
    )


def test_headers_may_be_a_mapping():
    assert append(b"v", headers={"trace": "1"})[1][2] == (("trace", b"1"),)


@pytest.mark.parametrize(
    "wrong", [{"headers": [(b"trace", b"1")]}, {"headers": {"n": 1}}, {"timestamp_ms": 1.5}, {"timestamp_ms": 1 << 63}]
)
def test_what_no_batch_can_hold_is_refused_in_the_callers_thread(wrong):
    with pytest.raises(SerializationFailed):
        append(b"v", **wrong)


def test_a_message_of_a_batch_is_a_value_or_a_pair():
    entry, topic = appender()
    with pytest.raises(ValueError, match="too many values"):
        entry.split(topic, [(b"key", b"value", b"more")], None)


def test_an_encrypted_record_carries_the_id_of_its_key():
    entry, topic = appender(cipher=Cipher(bytes(32)))
    delivery = entry.append(topic, b"secret", headers=[("trace", b"1")])
    [(_, value, headers)] = delivery.batch.records
    assert b"secret" not in value
    assert [name for name, _ in headers] == ["trace", KEY_HEADER]


messages = st.lists(
    st.tuples(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=60)) | st.binary(max_size=60),
    max_size=60,
)


@given(messages, st.integers(1, 5), st.integers(30, 400))
def test_sharing_out_loses_nothing_keeps_order_and_agrees_with_one_by_one(sent, partitions, batch_bytes):
    entry, topic = appender(partitions, batch_bytes=batch_bytes)
    split = entry.split(topic, sent, None)
    pairs = [message if isinstance(message, tuple) else (None, message) for message in sent]
    expected: dict[int | None, list[object]] = {}
    for key, value in pairs:
        expected.setdefault(None if key is None else partition_for_key(key, partitions), []).append((key, value))
    got: dict[int | None, list[object]] = {}
    for batch in split.planned:
        got.setdefault(batch.partition, []).extend(batch.records)
        assert batch.size_bytes <= batch_bytes or len(batch.records) == 1
    assert got == expected
    assert len(split.chosen) == len(sent)


def test_a_batch_for_one_partition_goes_there_whatever_its_keys():
    entry, topic = appender()
    split = entry.split(topic, [("a", b"1"), ("b", "2")], 2)
    assert [(batch.partition, batch.records) for batch in split.planned] == [(2, [(b"a", b"1"), (b"b", b"2")])]


def test_the_headers_of_encrypted_records_count_when_batches_are_cut():
    entry, topic = appender(partitions=1, cipher=Cipher(bytes(32)), batch_bytes=4000)
    planned = entry.split(topic, [None, *[b"v"] * 200], 0).planned
    assert sum(len(batch.records) for batch in planned) == 201
    assert max(len(encode_batch(batch.records)) for batch in planned) <= 4000
