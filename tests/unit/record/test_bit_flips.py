"""The one flipped bit of a batch is found by its checksum."""

from __future__ import annotations

import random

from flymq.record.batch import encode_batch
from flymq.record.bit_flips import find_flipped_bit
from flymq.record.header import CRC_AT


def a_batch() -> bytearray:
    return bytearray(encode_batch([(b"key", bytes(50)), (None, b"value" * 20)], timestamp_ms=1_700_000_000_000))


def test_every_bit_under_the_checksum_is_found() -> None:
    for byte in range(CRC_AT, len(a_batch())):
        for bit in range(8):
            batch = a_batch()
            batch[byte] ^= 1 << bit
            assert find_flipped_bit(batch) == (byte, bit)


def test_a_whole_batch_has_no_flipped_bit() -> None:
    assert find_flipped_bit(a_batch()) is None


def test_other_damage_is_not_taken_for_a_flipped_bit() -> None:
    chance = random.Random(1)
    for _ in range(200):
        batch = a_batch()
        start = chance.randrange(CRC_AT, len(batch) - 8)
        batch[start : start + 8] = chance.randbytes(8)
        assert find_flipped_bit(batch) is None
