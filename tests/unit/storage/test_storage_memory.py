from __future__ import annotations

import pytest
from tests.unit.storage.batches import NOW_MS, append, batch, idempotent, settings, values

from flymq.model.errors import OffsetOutOfRange
from flymq.record.header import split_batches
from flymq.storage.memory_log import MemoryLog


def test_the_oldest_batches_go_when_the_memory_is_full() -> None:
    log = MemoryLog("orders-0", settings(memory_bytes=4096))
    append(log, *[batch(f"{number:03d}" * 30) for number in range(100)])
    kept = values(log)
    assert kept == [f"{number:03d}" * 30 for number in range(100 - len(kept), 100)]
    assert 4096 * 0.9 < log.size <= 4096
    assert log.start_offset == 100 - len(kept)
    with pytest.raises(OffsetOutOfRange):
        log.read(log.start_offset - 1, bytes_max=1)


def test_a_batch_larger_than_the_memory_stays_until_the_next_one() -> None:
    log = MemoryLog("orders-0", settings(memory_bytes=1024))
    append(log, batch("small"), batch("x" * 5000))
    assert values(log) == ["x" * 5000]
    append(log, batch("small"))
    assert values(log) == ["small"]


def test_repeats_are_recognised_and_everything_is_durable_at_once() -> None:
    log = MemoryLog("orders-0", settings())
    append(log, idempotent(1, 0))
    assert log.append(idempotent(1, 0), leader_epoch=0, now_ms=NOW_MS).repeated
    assert log.durable_offset == log.end_offset == 1


def test_retention_applies_to_memory_too() -> None:
    log = MemoryLog("orders-0", settings(retention_ms=1000, retention_bytes=200))
    append(log, *[batch("x", at_ms=NOW_MS + n) for n in range(10)])
    assert log.retain(NOW_MS) is None
    assert log.size >= 200 > log.size - len(batch("x"))
    log.retain(NOW_MS + 5000)
    assert values(log) == []
    assert append(log, batch("y")) == [10]


def test_a_read_gives_whole_batches_within_its_bound() -> None:
    log = MemoryLog("orders-0", settings())
    append(log, *[batch("x" * 100)] * 4)
    found = log.read(1, bytes_max=2 * len(batch("x" * 100)) + 1)
    assert found is not None
    assert [header.base_offset for _, header in split_batches(found.read())] == [1, 2]


def test_a_closed_log_holds_no_memory() -> None:
    log = MemoryLog("orders-0", settings())
    append(log, batch("a"))
    log.close()
    assert log.read(0, bytes_max=1) is None
