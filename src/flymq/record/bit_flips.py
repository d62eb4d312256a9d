"""Find the one flipped bit of a damaged batch.

The CRC is linear: flipping a bit changes the checksum by a value that depends only on how far the bit is from the end.
So the difference between the checksum that is there and the one that should be tells which bit it was.
"""

from __future__ import annotations

from flymq.record.checksum import crc32c
from flymq.record.header import ATTRIBUTES_AT, CRC_AT, Buffer

_POLYNOMIAL = 0x82F63B78  # CRC32C, bits reversed


def find_flipped_bit(batch: Buffer) -> tuple[int, int] | None:
    """Return (byte, bit) whose flip makes the checksum of a whole batch right; None when there is none.

    It looks at the checksum and what it covers. Takes about 0.1 µs for each bit, so a second for a batch of a megabyte.
    """
    covered = batch[ATTRIBUTES_AT:]
    difference = crc32c(covered) ^ int.from_bytes(batch[CRC_AT:ATTRIBUTES_AT])
    if difference == 0:
        return None
    if difference.bit_count() == 1:  # the stored checksum itself, which is big-endian
        bit = difference.bit_length() - 1
        return ATTRIBUTES_AT - 1 - bit // 8, bit % 8
    syndrome = _POLYNOMIAL  # of the last bit
    for distance in range(8 * len(covered)):
        if syndrome == difference:
            return len(batch) - 1 - distance // 8, 7 - distance % 8
        syndrome = syndrome >> 1 ^ (_POLYNOMIAL if syndrome & 1 else 0)
    return None
