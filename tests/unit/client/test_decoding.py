"""Fetched batches become records; one that cannot be read is named and does not take others with it."""

import pytest

from flymq.client import serializers
from flymq.client.cursor import FetchedRun
from flymq.client.decoding import Decoder
from flymq.client.encryption import Cipher
from flymq.model.errors import DeserializationFailed, NotEncrypted
from flymq.record.batch import encode_batch


def run_of(*values: bytes, start_offset: int = 0) -> FetchedRun:
    batch = encode_batch([(b"k", value) for value in values], timestamp_ms=77)
    return FetchedRun(memoryview(batch), start_offset, len(values), ())


def test_records_have_their_place_time_key_and_value():
    [record], rest = Decoder().decode("t", 3, run_of(b"v"))
    assert (record.topic, record.partition, record.offset, record.timestamp) == ("t", 3, 0, 77)
    assert (record.key, record.value, record.headers) == (b"k", b"v", ())
    assert rest is None


def test_a_run_may_start_in_the_middle_of_a_batch():
    records, _ = Decoder().decode("t", 0, run_of(b"a", b"b", b"c", start_offset=1))
    assert [record.value for record in records] == [b"b", b"c"]


def test_values_are_deserialized():
    [record], _ = Decoder(value_deserializer=serializers.from_json).decode("t", 0, run_of(b'{"a": 1}'))
    assert record.value == {"a": 1}


def test_records_before_an_unreadable_one_are_handed_out_first():
    decoder = Decoder(value_deserializer=serializers.from_json)
    records, rest = decoder.decode("t", 0, run_of(b"1", b"2", b"broken", b"4"))
    assert [record.value for record in records] == [1, 2]
    assert rest is not None
    with pytest.raises(DeserializationFailed, match="t-0 at offset 2") as refusal:
        decoder.decode("t", 0, rest)
    error = refusal.value
    assert (error.topic, error.partition, error.offset) == ("t", 0, 2)
    assert (error.key, error.value) == (b"k", b"broken")


def test_a_plain_record_is_unreadable_for_a_client_that_encrypts():
    with pytest.raises(NotEncrypted, match="at offset 0"):
        Decoder(Cipher(bytes(32))).decode("t", 0, run_of(b"plain"))
