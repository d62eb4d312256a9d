from __future__ import annotations

from typing import Any

import pytest
from tests.unit.storage.batches import (
    NOW_MS,
    append,
    append_unchecked,
    batch,
    checkpoint,
    committed_values,
    end_transaction,
    open_simulated,
    records,
    reopen,
    runs,
    settings,
)

from flymq.host.simulated_disk import SimulatedDisk
from flymq.host.tasks import run_steps_here
from flymq.model.errors import PartitionOffline
from flymq.record.batch import encode_batch
from flymq.record.control import MarkerType
from flymq.record.header import parse_header, renew_checksum
from flymq.storage.compaction import compactor
from flymq.storage.compaction.compactor import CompactionResult
from flymq.storage.log import Log
from flymq.storage.recovery.checkpoint import CHECKPOINT_NAME, COMPACTED_NAME

KEEP_MS = 1000


def open_compacted(**changes: Any) -> tuple[SimulatedDisk, Log]:
    defaults = {"cleanup_policy": "compact", "delete_retention_ms": KEEP_MS, "min_cleanable_dirty_ratio": 0.0}
    return open_simulated(settings(**{**defaults, **changes}))


def seal(log: Log) -> None:
    """Bring everything into reach of compaction."""
    log.roll()
    checkpoint(log)


def compact(log: Log, now_ms: int = NOW_MS) -> CompactionResult:
    plan = compactor.plan(log, now_ms)
    assert plan is not None
    result = plan.run()
    run_steps_here(compactor.finish(log, plan, result))
    return result


def content(log: Log) -> list[tuple[int, str, str | None]]:
    return [
        (record.offset, (record.key or b"").decode(), record.value.decode() if record.value is not None else None)
        for record in records(log)
    ]


def test_the_last_value_of_each_key_stays_at_its_offset_and_in_order() -> None:
    _, log = open_compacted()
    for number, key in enumerate("abcabac"):
        append(log, batch(f"{number}", key=key))
    seal(log)
    result = compact(log)
    assert content(log) == [(4, "b", "4"), (5, "a", "5"), (6, "c", "6")]
    assert result.bytes_after < result.bytes_before
    assert log.end_offset == 7
    assert append(log, batch("next", key="a")) == [7]


def test_a_batch_keeps_only_the_records_that_count() -> None:
    _, log = open_compacted()
    log.append(
        bytes(encode_batch([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], timestamp_ms=NOW_MS)),
        leader_epoch=0,
        now_ms=NOW_MS,
    )
    append(log, batch("2", key="b"))
    seal(log)
    compact(log)
    assert content(log) == [(2, "a", "2"), (3, "b", "2")]


def test_records_without_a_key_from_before_the_topic_was_compacted_stay() -> None:
    _, log = open_compacted()
    compacted, log.config = log.config, settings(cleanup_policy="delete")
    append(log, batch("1"), batch("2"))
    log.config = compacted
    append(log, batch("3", key="a"), batch("4", key="a"))
    seal(log)
    compact(log)
    assert content(log) == [(0, "", "1"), (1, "", "2"), (3, "a", "4")]


def test_a_tombstone_hides_older_values_and_stays_for_its_retention() -> None:
    _, log = open_compacted()
    append(log, batch("1", key="a"), batch(None, key="a"), batch("1", key="b"))
    seal(log)
    compact(log)
    assert content(log) == [(1, "a", None), (2, "b", "1")]
    append(log, batch("2", key="b"))
    seal(log)
    compact(log, NOW_MS + KEEP_MS - 1)
    assert content(log) == [(1, "a", None), (3, "b", "2")]
    append(log, batch("3", key="b"))
    seal(log)
    compact(log, NOW_MS + KEEP_MS)
    assert content(log) == [(4, "b", "3")]


def test_a_value_written_after_a_tombstone_stays() -> None:
    _, log = open_compacted()
    append(log, batch("1", key="a"), batch(None, key="a"), batch("2", key="a"))
    seal(log)
    compact(log)
    assert content(log) == [(2, "a", "2")]


def test_the_active_segment_is_not_touched() -> None:
    _, log = open_compacted()
    append(log, batch("1", key="a"), batch("2", key="a"))
    seal(log)
    append(log, batch("3", key="a"), batch("4", key="a"))
    compact(log)
    assert content(log) == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]


def test_what_is_not_safe_on_the_disk_is_not_touched() -> None:
    _, log = open_compacted()
    append(log, batch("1", key="a"))
    log.roll()
    assert compactor.plan(log, NOW_MS) is None


def test_nothing_from_the_first_open_transaction_on_is_touched() -> None:
    _, log = open_compacted()
    append(log, batch("1", key="a"), batch("2", key="a"))
    seal(log)
    append(log, batch("3", key="b", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    append(log, batch("4", key="a"), batch("5", key="a"))
    seal(log)
    compact(log)
    assert content(log) == [(1, "a", "2"), (2, "b", "3"), (3, "a", "4"), (4, "a", "5")]


def in_transaction(log: Log, producer_id: int, sequence: int, key: str, value: str) -> None:
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
    append(log, batch(value, key=key, **fields))


def test_aborted_records_go_and_do_not_hide_older_values() -> None:
    _, log = open_compacted()
    append(log, batch("kept", key="a"))
    in_transaction(log, 1, 0, "a", "aborted")
    end_transaction(log, 1, MarkerType.ABORT)
    in_transaction(log, 1, 1, "b", "committed")
    end_transaction(log, 1, MarkerType.COMMIT)
    seal(log)
    compact(log)
    assert [value for _, _, value in content(log)] == ["kept", "committed"]
    assert committed_values(log) == ["kept", "committed"]
    assert log.aborted_between(0, log.end_offset) == []


def test_markers_go_once_nothing_of_their_transaction_is_left() -> None:
    disk, log = open_compacted()
    in_transaction(log, 1, 0, "a", "1")
    end_transaction(log, 1, MarkerType.COMMIT)
    in_transaction(log, 2, 0, "b", "1")
    end_transaction(log, 2, MarkerType.COMMIT)
    for number in range(5):
        now_ms = NOW_MS + number * 2 * KEEP_MS
        in_transaction(log, 3, number, "a", f"later {number}")
        end_transaction(log, 3, MarkerType.COMMIT)
        log.producers.expire(now_ms if number == 2 else 0)  # the first two are forgotten: nobody needs their batches
        seal(log)
        compact(log, now_ms)
    headers = [parse_header(run) for run in runs(log)]
    assert [(each.producer_id, each.is_control) for each in headers] == [
        (2, False),
        (2, True),
        (3, False),
        (3, True),
    ]
    assert committed_values(log) == ["1", "later 4"]
    assert committed_values(reopen(disk, log.config)) == ["1", "later 4"]


def test_the_last_batch_of_a_producer_stays_even_without_records() -> None:
    disk, log = open_compacted()
    append(log, batch("1", key="a", producer_id=1, producer_epoch=0, base_sequence=0), batch("2", key="a"))
    seal(log)
    compact(log)
    assert content(log) == [(1, "a", "2")]
    for path in disk.paths():
        if path.suffix == ".producers":
            disk.remove(path)
    log = reopen(disk, log.config)
    repeated = log.append(
        batch("1", key="a", producer_id=1, producer_epoch=0, base_sequence=0), leader_epoch=0, now_ms=NOW_MS
    )
    assert (repeated.repeated, repeated.base_offset) == (True, 0)


def test_small_segments_become_one_and_reads_go_on_across() -> None:
    disk, log = open_compacted(segment_bytes=1024)
    append(log, *[batch("x" * 300, key=f"{number % 4}") for number in range(20)])
    seal(log)
    compact(log)
    emptied = len(log.segments)
    append(log, batch("y", key="0"))
    seal(log)
    compact(log)
    assert len(log.segments) < emptied / 2
    assert [offset for offset, _, _ in content(log)] == [17, 18, 19, 20]
    assert content(reopen(disk, log.config)) == content(log)
    found = run_steps_here(log.find_time(NOW_MS))
    assert found is not None
    assert found.offset == 17


def test_a_second_run_waits_until_enough_has_changed() -> None:
    _, log = open_compacted(min_cleanable_dirty_ratio=0.5, segment_bytes=4096)
    append(log, *[batch("x" * 1000, key=f"{number}") for number in range(12)])
    seal(log)
    compact(log)
    append(log, batch("x" * 1000, key="0"))
    seal(log)
    assert compactor.plan(log, NOW_MS) is None
    append(log, *[batch("x" * 1000, key=f"{number}") for number in range(12)])
    seal(log)
    compact(log)
    keys = [key for _, key, _ in content(log)]
    assert sorted(keys) == sorted(set(keys))


def test_a_record_stays_out_of_reach_for_the_lag_it_was_given() -> None:
    _, log = open_compacted(min_compaction_lag_ms=500)
    append(log, batch("1", key="a"), batch("2", key="a"))
    seal(log)
    assert compactor.plan(log, NOW_MS + 499) is None
    compact(log, NOW_MS + 500)
    assert content(log) == [(1, "a", "2")]


def test_a_record_that_waited_too_long_is_compacted_though_little_has_changed() -> None:
    _, log = open_compacted(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=500, segment_bytes=4096)
    append(log, *[batch("x" * 1000, key=f"{number}") for number in range(12)])
    seal(log)
    compact(log, NOW_MS)
    append(log, batch("new", key="0"))
    compactor.roll_late(log, NOW_MS + 499)
    assert log.segments[-1].size
    compactor.roll_late(log, NOW_MS + 500)
    assert not log.segments[-1].size
    checkpoint(log)
    assert compactor.plan(log, NOW_MS + 499) is None
    compact(log, NOW_MS + 500)
    assert [(offset, key) for offset, key, _ in content(log)][-1] == (12, "0")
    assert len(content(log)) == 12


def test_where_memory_for_keys_runs_out_the_next_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compactor, "KEYS_MAX", 5)
    _, log = open_compacted(segment_bytes=1024)
    append(log, *[batch("x" * 300, key=f"{number % 10}") for number in range(40)])
    seal(log)
    reached = []
    while (plan := compactor.plan(log, NOW_MS)) is not None:
        run_steps_here(compactor.finish(log, plan, plan.run()))
        reached.append(log.compacted.end_offset)
    assert len(reached) > 2
    assert reached == sorted(set(reached))
    assert [key for _, key, _ in content(log)] == [f"{number}" for number in range(10)]


def test_a_batch_that_cannot_be_unpacked_is_left_as_it_is() -> None:
    _, log = open_compacted()
    broken = bytearray(batch("1", key="a"))
    broken[-8:] = b"\xff" * 8
    renew_checksum(broken, 0, len(broken))
    append(log, batch("0", key="a"))
    append_unchecked(log, bytes(broken))
    append(log, batch("2", key="a"))
    seal(log)
    compact(log)
    stored = runs(log)
    assert [parse_header(run).base_offset for run in stored] == [1, 2]
    assert stored[0][21:] == bytes(broken)[21:]


def test_a_failure_in_mid_swap_takes_the_log_offline_and_opening_mends_it() -> None:
    disk, log = open_compacted()
    append(log, batch("1", key="a"), batch("2", key="a"))
    seal(log)
    plan = compactor.plan(log, NOW_MS)
    assert plan is not None
    result = plan.run()
    disk.fail_next("rename", ".swap", 5)
    with pytest.raises(Exception, match="EIO"):
        run_steps_here(compactor.finish(log, plan, result))
    with pytest.raises(PartitionOffline):
        append(log, batch("3", key="a"))
    log = reopen(disk, log.config)
    assert content(log) == [(1, "a", "2")]
    assert append(log, batch("3", key="a")) == [2]


def test_compaction_and_retention_together_let_emptied_segments_go() -> None:
    _, log = open_compacted(cleanup_policy="compact,delete", segment_bytes=1024, retention_ms=10)
    append(log, *[batch("x" * 900, key="a", at_ms=NOW_MS) for _ in range(3)])
    append(log, batch("y" * 900, key="b", at_ms=NOW_MS + 100))
    seal(log)
    compact(log)
    assert [segment.size for segment in log.segments][:2] == [0, 0]
    removal = log.retain(NOW_MS + 105)
    assert removal is not None
    removal()
    assert [key for _, key, _ in content(log)] == ["b"]


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_lost_note_of_compaction_costs_a_compaction_and_no_record(is_gone: bool) -> None:
    disk, log = open_compacted()
    for key in "abcab":
        append(log, batch(key, key=key))
        seal(log)
    compact(log)
    append(log, batch("d", key="d"))
    kept = content(log)
    note = log.directory / COMPACTED_NAME
    if is_gone:
        disk.remove(note)
    else:
        for position in (1, disk.size(note) // 2 + 1):
            disk.flip_bit(note, position)
    disk.remove(log.directory / CHECKPOINT_NAME)
    assert content(reopen(disk, log.config)) == kept


def test_readers_see_the_old_or_the_new_batches_while_files_are_exchanged() -> None:
    _, log = open_compacted(segment_bytes=1 << 10)
    count = 300  # so many segments that most are closed again after they were read
    for number in range(count):
        append(log, batch(f"{number}" * 30, key=f"{number % 3}"))
    seal(log)
    before = content(log)
    plan = compactor.plan(log, NOW_MS)
    assert plan is not None
    result = plan.run()
    assert len(result.groups) > 20
    for work in compactor.finish(log, plan, result):
        assert set(before[count - 3 :]) <= set(content(log)) <= set(before)
        assert work is not None
        work()  # as a thread does it, before the loop goes on
        assert set(before[count - 3 :]) <= set(content(log)) <= set(before)
        (offset,) = append(log, batch("new", key="new"))
        before.append((offset, "new", "new"))
    assert content(log) == before[count - 3 :]


def test_few_segments_become_one_at_a_time() -> None:
    _, log = open_compacted(segment_bytes=1 << 14)
    for number in range(100):
        append(log, batch(f"{number}", key=f"{number}"))
        log.roll()
    checkpoint(log)
    result = compact(log)
    assert [len(group) for group in result.groups] == [32, 32, 32, 4]
    assert len(content(log)) == 100
