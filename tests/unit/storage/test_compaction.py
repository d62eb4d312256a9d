"""Compaction keeps the last value of each key, and nothing a reader or a producer still needs is lost."""

from typing import Any

from tests.unit.storage.logs import NOW_MS, append, checkpoint, records, small_log

from flymq.host.simulated_disk import SimulatedDisk
from flymq.model.delivery import CleanupPolicy
from flymq.record.batch import encode_batch
from flymq.record.control import Marker, MarkerType, encode_marker
from flymq.storage import compaction
from flymq.storage.log import Log

DAY_MS = 24 * 60 * 60 * 1000


def compacted_log(disk: SimulatedDisk) -> Log:
    return small_log(disk, cleanup_policy=CleanupPolicy.COMPACT, min_cleanable_ratio_percent=0)


def compact(log: Log, now_ms: int = NOW_MS) -> compaction.CompactionPlan | None:
    """Make everything so far ready for compaction, and run it."""
    log.roll()
    checkpoint(log)
    plan = compaction.plan(log, now_ms)
    if plan is not None:
        compaction.finish(log, plan, plan.run())
    return plan


def pairs(log: Log) -> list[tuple[Any, Any, int]]:
    return [(record.key, record.value, record.offset) for record in records(log)]


def end_transaction(log: Log, kind: MarkerType, producer_id: int) -> None:
    marker = encode_marker(Marker(kind, producer_id, 0, 0, NOW_MS))
    log.append_marker(marker, leader_epoch=0, now_ms=NOW_MS)


def produce(log: Log, key: bytes, value: bytes, producer_id: int, sequence: int) -> None:
    batch = encode_batch(
        [(key, value)],
        timestamp_ms=NOW_MS,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    log.append(batch, leader_epoch=0, now_ms=NOW_MS)


def test_the_last_value_of_each_key_stays_with_its_offset_and_in_order():
    disk = SimulatedDisk()
    log = compacted_log(disk)
    for number in range(30):
        append(log, b"%d" % number, key=b"key-%d" % (number % 3))
    assert compact(log) is not None
    expected = [(b"key-0", b"27", 27), (b"key-1", b"28", 28), (b"key-2", b"29", 29)]
    assert pairs(log) == expected
    assert log.end_offset == 30
    log.close()
    assert pairs(compacted_log(disk)) == expected


def test_records_without_a_key_stay():
    log = compacted_log(SimulatedDisk())
    for number in range(5):
        append(log, b"%d" % number)
    compact(log)
    assert [record[1] for record in pairs(log)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_tombstone_stays_for_its_time_and_then_goes():
    log = compacted_log(SimulatedDisk())
    append(log, b"value", key=b"gone")
    log.append(encode_batch([(b"gone", None)], timestamp_ms=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    append(log, b"other", key=b"stays")
    compact(log)
    assert pairs(log) == [(b"gone", None, 1), (b"stays", b"other", 2)]
    append(log, b"newer", key=b"stays")
    compact(log, NOW_MS + 2 * DAY_MS)
    assert pairs(log) == [(b"stays", b"newer", 3)]


def test_aborted_records_go_and_do_not_push_out_committed_ones():
    log = compacted_log(SimulatedDisk())
    produce(log, b"k", b"committed", producer_id=1, sequence=0)
    end_transaction(log, MarkerType.COMMIT, 1)
    produce(log, b"k", b"aborted", producer_id=2, sequence=0)
    end_transaction(log, MarkerType.ABORT, 2)
    compact(log)
    assert [(key, value) for key, value, _ in pairs(log)] == [(b"k", b"committed")]
    assert log.aborted_between(0, log.end_offset) == []


def test_nothing_from_the_first_open_transaction_on_is_touched():
    log = compacted_log(SimulatedDisk())
    produce(log, b"k", b"open", producer_id=1, sequence=0)
    for number in range(20):
        append(log, b"%d" % number * 40, key=b"k")
    compact(log)
    assert len(pairs(log)) == 21
    assert log.producers.first_open_offset == 0


def test_the_last_batch_of_a_producer_still_tells_repeats_apart():
    disk = SimulatedDisk()
    log = compacted_log(disk)
    identity = {"producer_id": 7, "producer_epoch": 0}
    append(log, b"old", key=b"k", base_sequence=0, **identity)
    append(log, b"new", key=b"k")
    compact(log)
    log.close()
    again = compacted_log(disk)
    assert append(again, b"old", key=b"k", base_sequence=0, **identity) == 0
    assert [value for _, value, _ in pairs(again)] == [b"new"]


def test_too_little_change_is_left_alone():
    log = small_log(SimulatedDisk(), cleanup_policy=CleanupPolicy.DELETE)
    append(log, b"a", key=b"k")
    append(log, b"b", key=b"k")
    assert compact(log) is None
