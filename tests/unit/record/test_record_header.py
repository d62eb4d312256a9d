"""The 61 bytes in front of a batch: what they say, what is refused, what the broker writes into them."""

from __future__ import annotations

import pytest

from flymq.model.errors import CorruptBatch, InvalidBatch, UnsupportedBatchVersion
from flymq.record import codec
from flymq.record.batch import encode_batch, parse_batch
from flymq.record.header import (
    HEADER_SIZE,
    MAGIC_AT,
    assign,
    check_batch,
    parse_header,
    renew_checksum,
    set_log_append_time,
    split_batches,
)

pytestmark = pytest.mark.usefixtures("twin")


@pytest.fixture
def batch() -> bytearray:
    return encode_batch([(b"k", b"one"), (b"k", b"two"), (None, None)], timestamp_ms=1_000)


def test_a_header_says_what_the_batch_holds() -> None:
    batch = encode_batch(
        [(b"k", b"v", (), 5_000), (b"k", b"w", (), 4_000)],
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        transactional=True,
    )
    header = check_batch(batch)
    assert header.size == len(batch)
    assert (header.record_count, header.last_offset_delta) == (2, 1)
    assert (header.base_timestamp, header.max_timestamp) == (5_000, 5_000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert header.last_sequence == 41
    assert header.is_transactional
    assert not header.is_control
    assert header.leader_epoch == -1


def test_a_batch_without_a_producer_has_no_sequence(batch: bytearray) -> None:
    header = parse_header(batch)
    assert not header.has_producer
    assert header.last_sequence == -1


def test_a_sequence_wraps_to_zero_after_the_highest_number() -> None:
    header = parse_header(encode_batch([(None, b"")] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def test_an_assigned_batch_is_its_other_bytes_behind_sixteen_new_ones(batch: bytearray) -> None:
    received = bytes(batch)
    assigned, header = codec.assign_batch(memoryview(b"12345" + received), 5, 1 << 40, 9)
    assert check_batch(assigned + received[len(assigned) :]) == header
    assert (header.base_offset, header.leader_epoch, header.record_count) == (1 << 40, 9, 3)


def test_giving_a_batch_its_offset_and_epoch_leaves_the_checksum_right(batch: bytearray) -> None:
    assign(batch, 0, base_offset=1 << 40, leader_epoch=9)
    header = check_batch(batch)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 9)
    assert header.next_offset == (1 << 40) + 3


def test_the_time_of_appending_becomes_the_time_of_every_record(batch: bytearray) -> None:
    set_log_append_time(batch, 0, parse_header(batch), 9_999)
    assert check_batch(batch).has_log_append_time
    assert [record.timestamp_ms for record in parse_batch(batch)] == [9_999] * 3


@pytest.mark.parametrize("position", [21, 40, 57, 61, -1])
def test_a_batch_with_a_flipped_bit_is_refused(batch: bytearray, position: int) -> None:
    batch[position] ^= 0x10
    with pytest.raises(CorruptBatch):
        check_batch(batch)


def test_a_batch_that_is_cut_off_is_refused(batch: bytearray) -> None:
    for size in (0, 1, HEADER_SIZE - 1, HEADER_SIZE, len(batch) - 1):
        with pytest.raises(InvalidBatch):
            check_batch(batch[:size])


@pytest.mark.parametrize("magic", [0, 1])
def test_the_old_message_formats_are_named_in_the_refusal(batch: bytearray, magic: int) -> None:
    batch[MAGIC_AT] = magic
    with pytest.raises(UnsupportedBatchVersion):
        parse_header(batch)
    with pytest.raises(UnsupportedBatchVersion):
        parse_header(batch[: HEADER_SIZE - 1])


def test_an_unknown_magic_is_refused(batch: bytearray) -> None:
    batch[MAGIC_AT] = 3
    with pytest.raises(InvalidBatch):
        parse_header(batch)


@pytest.mark.parametrize(("position", "size"), [(0, 8), (8, 4), (23, 4), (57, 4)])
def test_a_negative_offset_length_delta_or_count_is_refused(batch: bytearray, position: int, size: int) -> None:
    batch[position : position + size] = b"\xff" * size
    renew_checksum(batch, 0, len(batch))
    with pytest.raises(InvalidBatch):
        parse_header(batch)


def test_a_run_is_split_into_its_whole_batches(batch: bytearray) -> None:
    run = bytes(batch) * 3
    assert [position for position, _ in split_batches(run)] == [0, len(batch), 2 * len(batch)]
    assert [position for position, _ in split_batches(run[:-1])] == [0, len(batch)]
    assert list(split_batches(run[: HEADER_SIZE - 1])) == []
