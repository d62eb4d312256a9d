"""The partition of a key, which all clients must agree on."""

from __future__ import annotations

import random
from types import ModuleType

from aiokafka.partitioner import murmur2 as kafka_murmur2

from flymq.record.partitioning import partition_for_key


def test_keys_hash_as_in_other_clients(twin: ModuleType) -> None:
    chance = random.Random(7)
    for size in [*range(70), 1_000, 4_097]:
        key = chance.randbytes(size)
        assert twin.murmur2(key) == kafka_murmur2(key) & 0xFFFFFFFF
        assert twin.murmur2(memoryview(key)) == twin.murmur2(bytearray(key)) == twin.murmur2(key)


def test_a_key_always_goes_to_the_same_partition() -> None:
    keys = (b"", b"a", b"ab", b"abc", b"123456789", b"\0 ")
    partitions_in_java = [681, 524, 434, 107, 566, 742]
    assert [partition_for_key(key, 1000) for key in keys] == partitions_in_java
