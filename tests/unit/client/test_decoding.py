"""Fetched batches become records; one that cannot be read is named and does not take others with it."""

import pytest
from tests.unit.storage.batches import batch, poison

from flymq.client import serializers
from flymq.client.cursor import FetchedRun
from flymq.client.decoding import Decoder
from flymq.client.encryption import Cipher
from flymq.model.errors import CorruptBatch, DeserializationFailed, NotEncrypted, UnreadableBatch
from flymq.record.batch import encode_batch
from flymq.record.header import assign, parse_header
from flymq.record.reading import intact_part


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


def run_of_batches(*batches: bytes) -> FetchedRun:
    placed, offset = bytearray(), 0
    for each in map(bytearray, batches):
        assign(each, 0, base_offset=offset, leader_epoch=0)
        offset = parse_header(each).next_offset
        placed += each
    return FetchedRun(memoryview(bytes(placed)), 0, offset, ())


def torn() -> bytes:
    changed = bytearray(batch("torn"))
    changed[-1] ^= 1
    return bytes(changed)


@pytest.mark.parametrize(("bad", "length"), [(poison(3), 3), (torn(), 1)], ids=["noise", "wrong checksum"])
@pytest.mark.parametrize("decoder", [Decoder(), Decoder(value_deserializer=bytes.decode)], ids=["plain", "with values"])
def test_records_before_a_batch_that_cannot_be_decoded_are_handed_out_first_and_those_after_it_later(
    bad, length, decoder
):
    run = run_of_batches(batch("a", "b"), batch("c"), bad, batch("d"))
    records, rest = decoder.decode("t", 7, run)
    assert [record.offset for record in records] == [0, 1, 2]
    assert rest is not None
    with pytest.raises(UnreadableBatch, match="t-7 at offset 3: the batch cannot be decoded") as refusal:
        decoder.decode("t", 7, rest)
    error = refusal.value
    assert (error.topic, error.partition, error.offset, error.next_offset) == ("t", 7, 3, 3 + length)
    records, rest = decoder.decode("t", 7, run._replace(start_offset=error.next_offset))
    assert [record.offset for record in records] == [3 + length]
    assert rest is None


def test_the_batches_before_a_header_that_is_none_are_kept():
    good = batch("a")
    broken = bytearray(batch("b"))
    broken[16] = 9
    kept, fault = intact_part(good + bytes(broken))
    assert bytes(kept) == good
    assert fault is not None
    assert "magic 9" in fault.message
    assert not isinstance(fault, CorruptBatch)
    assert intact_part(good) == (memoryview(good), None)
