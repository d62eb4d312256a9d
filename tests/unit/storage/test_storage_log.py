from __future__ import annotations

import pytest
from tests.unit.storage.batches import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    checkpoint,
    idempotent,
    open_simulated,
    records,
    reopen,
    settings,
    sync,
    values,
)

from flymq.host.disk import SystemDisk
from flymq.host.tasks import run_steps_here
from flymq.model.errors import EmptyBatch, InvalidBatch, MessageTooLarge, OffsetOutOfRange, UnsupportedCompression
from flymq.record.header import assign, parse_header, renew_checksum
from flymq.storage.log import Log
from flymq.storage.recovery.open_log import open_log
from flymq.storage.retention import count_expired


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# --- append


def test_an_append_returns_the_offsets_its_records_got() -> None:
    _, log = open_simulated()
    first = log.append(batch("a", "b"), leader_epoch=3, now_ms=NOW_MS)
    second = log.append(batch("c"), leader_epoch=3, now_ms=NOW_MS)
    assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
    assert first.append_time_ms == -1
    assert values(log) == ["a", "b", "c"]


def test_several_batches_in_one_append_follow_each_other() -> None:
    _, log = open_simulated()
    appended = log.append(batch("a") + batch("b", "c"), leader_epoch=0, now_ms=NOW_MS)
    assert (appended.base_offset, appended.last_offset) == (0, 2)
    assert values(log) == ["a", "b", "c"]


def test_a_topic_of_append_time_gives_every_record_the_brokers_time() -> None:
    _, log = open_simulated(settings(message_timestamp_type="append"))
    appended = log.append(batch("a", at_ms=5), leader_epoch=0, now_ms=NOW_MS)
    assert appended.append_time_ms == NOW_MS
    assert [record.timestamp_ms for record in records(log)] == [NOW_MS]


def test_a_repeat_in_a_topic_of_append_time_is_answered_with_the_first_time() -> None:
    _, log = open_simulated(settings(message_timestamp_type="append"))
    log.append(idempotent(1, 0), leader_epoch=0, now_ms=NOW_MS)
    repeated = log.append(idempotent(1, 0), leader_epoch=0, now_ms=NOW_MS + 50)
    assert repeated.repeated
    assert repeated.append_time_ms == NOW_MS


def with_attributes(bits: int) -> bytes:
    changed = bytearray(batch("a"))
    changed[22] |= bits
    renew_checksum(changed, 0, len(changed))
    return bytes(changed)


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", EmptyBatch),
        (batch("a")[:-1], InvalidBatch),
        (b"\0" * 80, InvalidBatch),
        (with_attributes(0x20), InvalidBatch),
        (with_attributes(0x08), InvalidBatch),
        (with_attributes(0x40), InvalidBatch),
        (with_attributes(0x05), UnsupportedCompression),
        (with_attributes(0x10), InvalidBatch),
        (batch("a", producer_id=1, producer_epoch=-1, base_sequence=0), InvalidBatch),
        (idempotent(1, 0) + idempotent(1, 1), InvalidBatch),
        (batch("x" * 2000), MessageTooLarge),
    ],
    ids=[
        "nothing",
        "cut short",
        "zeros",
        "control batch",
        "append time",
        "delete horizon",
        "unknown compression",
        "transactional without a producer",
        "producer without an epoch",
        "two batches of one producer",
        "too large",
    ],
)
def test_what_a_client_may_not_send_is_refused_and_changes_nothing(sent: bytes, error: type[Exception]) -> None:
    _, log = open_simulated(settings(max_message_bytes=1024))
    append(log, batch("before"))
    with pytest.raises(error):
        log.append(sent, leader_epoch=0, now_ms=NOW_MS)
    append(log, batch("after"))
    assert values(log) == ["before", "after"]


def test_batches_that_have_their_offsets_are_kept_byte_for_byte() -> None:
    _, log = open_simulated()
    first, second = bytearray(batch("a", "b")), bytearray(batch("c"))
    assign(first, 0, base_offset=0, leader_epoch=2)
    assign(second, 0, base_offset=5, leader_epoch=4)
    log.append_as_is(bytes(first + second), leader_epoch=4, now_ms=NOW_MS)
    found = log.read(0, bytes_max=1 << 20)
    assert found is not None
    assert found.read() == bytes(first + second)
    assert log.end_offset == 6
    assert log.epochs.starts == [(2, 0), (4, 2)]  # its first batches may have been compacted away


def test_batches_with_offsets_the_log_has_passed_are_refused() -> None:
    _, log = open_simulated()
    append(log, batch("a", "b"))
    late = bytearray(batch("c"))
    assign(late, 0, base_offset=1, leader_epoch=0)
    with pytest.raises(InvalidBatch, match="continues at offset 2"):
        log.append_as_is(bytes(late), leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(EmptyBatch):
        log.append_as_is(b"", leader_epoch=0, now_ms=NOW_MS)
    far = bytearray(batch("c"))
    assign(far, 0, base_offset=1 << 40, leader_epoch=0)
    with pytest.raises(InvalidBatch, match="too far"):
        log.append_as_is(bytes(far), leader_epoch=0, now_ms=NOW_MS)
    assert log.end_offset == 2


# --- segments


def test_a_segment_is_rolled_when_the_next_batch_would_make_it_too_large() -> None:
    _, log = open_simulated(settings(segment_bytes=1024))
    size = len(batch("x" * 300))
    append(log, *[batch("x" * 300)] * 5)
    assert bases(log) == [0, 2, 4]
    assert [segment.size for segment in log.segments] == [2 * size, 2 * size, size]


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    _, log = open_simulated(settings(segment_bytes=1024))
    append(log, batch("small"), batch("x" * 5000), batch("small"))
    assert bases(log) == [0, 1, 2]
    assert [len(value or "") for value in values(log)] == [5, 5000, 5]


def test_a_segment_is_rolled_when_its_first_batch_is_too_old() -> None:
    _, log = open_simulated(settings(segment_ms=1000))
    append(log, batch("a"), now_ms=NOW_MS)
    append(log, batch("b"), now_ms=NOW_MS + 999)
    assert bases(log) == [0]
    append(log, batch("c"), now_ms=NOW_MS + 1000)
    assert bases(log) == [0, 2]
    append(log, batch("d"), now_ms=NOW_MS + 1999)
    assert bases(log) == [0, 2]


def test_few_files_are_held_open_however_many_segments_are_read(tmp_path) -> None:
    log = open_log(SystemDisk(), tmp_path / "log", settings(segment_bytes=1024))
    append(log, *[batch("x" * 600)] * 40)
    assert len(log.segments) == 40
    assert len(values(log)) == 40
    run_steps_here(log.find_latest_time())
    log.retain(NOW_MS)
    assert sum(segment.is_open for segment in log.segments) <= 10


# --- read


def test_a_read_returns_whole_batches_within_its_bound_and_at_least_one() -> None:
    _, log = open_simulated()
    one = len(batch("x" * 100))
    append(log, *[batch("x" * 100)] * 4)
    lengths = [(found := log.read(1, bytes_max=limit)) and found.length for limit in (1, one, 2 * one - 1, 2 * one)]
    assert lengths == [one, one, one, 2 * one]
    everything = log.read(0, bytes_max=1 << 30)
    assert everything is not None
    assert everything.length == 4 * one


def test_a_read_starts_with_the_batch_that_holds_the_offset() -> None:
    _, log = open_simulated()
    append(log, batch("a"), batch("b", "c", "d"))
    found = log.read(2, bytes_max=1)
    assert found is not None
    assert parse_header(found.read()).base_offset == 1


def test_a_read_shows_no_batch_that_reaches_over_the_given_end() -> None:
    _, log = open_simulated()
    append(log, batch("a"), batch("b", "c"), batch("d"))
    assert log.read(1, bytes_max=1 << 20, end_offset=2) is None
    found = log.read(0, bytes_max=1 << 20, end_offset=3)
    assert found is not None
    assert found.length == len(batch("a")) + len(batch("b", "c"))


def test_a_read_at_the_end_finds_nothing_and_one_beyond_is_refused() -> None:
    _, log = open_simulated()
    append(log, batch("a"))
    assert log.read(1, bytes_max=1) is None
    for outside in (-1, 2):
        with pytest.raises(OffsetOutOfRange, match="the log holds the offsets 0 to 1, not"):
            log.read(outside, bytes_max=1)


def test_a_slice_stays_readable_while_its_segment_is_removed(tmp_path) -> None:
    log = open_log(SystemDisk(), tmp_path / "log", settings(segment_bytes=1024))
    append(log, *[batch("x" * 600)] * 3)
    found = log.read(0, bytes_max=1)
    assert found is not None
    run_steps_here(log.delete_before(2))
    assert not found.file.path.exists()
    assert parse_header(found.read()).base_offset == 0


# --- times


def test_the_first_record_of_a_time_or_later_is_found_across_segments() -> None:
    _, log = open_simulated(settings(segment_bytes=1024, index_interval_bytes=0))
    append(log, *[batch("x" * 100, at_ms=NOW_MS + 10 * n) for n in range(50)])
    for n in (0, 7, 49):
        for at_ms in (NOW_MS + 10 * n - 9, NOW_MS + 10 * n):
            found = run_steps_here(log.find_time(at_ms))
            assert found is not None
            assert (found.offset, found.timestamp) == (n, NOW_MS + 10 * n)
    assert run_steps_here(log.find_time(NOW_MS + 491)) is None


def test_a_time_is_found_behind_a_batch_whose_own_record_of_it_was_deleted() -> None:
    _, log = open_simulated()
    append(log, batch("late", at_ms=NOW_MS + 9), batch("early", at_ms=NOW_MS), batch("later", at_ms=NOW_MS + 5))
    run_steps_here(log.delete_before(1))
    found = run_steps_here(log.find_time(NOW_MS + 1))
    assert found is not None
    assert (found.offset, found.timestamp) == (2, NOW_MS + 5)
    latest = run_steps_here(log.find_latest_time())
    assert latest is not None
    assert (latest.offset, latest.timestamp) == (2, NOW_MS + 5)


def test_of_several_records_with_the_latest_time_the_first_is_found() -> None:
    _, log = open_simulated(settings(segment_bytes=1024))
    append(log, *[batch("x" * 600, at_ms=NOW_MS + at) for at in (1, 3, 2, 3)])
    latest = run_steps_here(log.find_latest_time())
    assert latest is not None
    assert latest.offset == 1
    assert run_steps_here(open_simulated()[1].find_latest_time()) is None


# --- shorten


def test_truncating_drops_the_batch_that_holds_the_offset_and_all_behind() -> None:
    _, log = open_simulated(settings(segment_bytes=1024))
    append(log, *[batch(f"{n}" * 300, f"{n}") for n in range(6)])
    log.truncate(5)
    assert log.end_offset == 4
    assert append(log, batch("new")) == [4]
    assert [value for value in values(log) if value and len(value) < 5] == ["0", "1", "new"]


def test_truncating_below_the_start_leaves_an_empty_log_that_goes_on_there() -> None:
    disk, log = open_simulated()
    append(log, batch("a", "b", "c"), batch("d"))
    run_steps_here(log.delete_before(2))
    log.truncate(0)
    assert (log.start_offset, log.end_offset) == (2, 2)
    assert append(log, batch("e")) == [2]
    log.close()
    assert values(reopen(disk)) == ["e"]


def test_deleting_hides_records_at_once_and_removes_whole_segments() -> None:
    disk, log = open_simulated(settings(segment_bytes=1024))
    append(log, *[batch("x" * 300, "y")] * 6)
    run_steps_here(log.delete_before(5))
    assert log.start_offset == 5
    assert bases(log) == [4, 8]
    with pytest.raises(OffsetOutOfRange):
        log.read(4, bytes_max=1)
    assert len(values(log)) == 7
    disk.cut_power()
    assert reopen(disk).start_offset == 5


def test_deleting_everything_leaves_an_empty_log_that_goes_on() -> None:
    disk, log = open_simulated()
    append(log, batch("a"), batch("b"))
    run_steps_here(log.delete_before(2))
    assert values(log) == []
    assert append(log, batch("c")) == [2]
    with pytest.raises(OffsetOutOfRange, match="ends at offset 3"):
        run_steps_here(log.delete_before(4))
    log.close()
    assert values(reopen(disk)) == ["c"]


def test_deleting_what_retention_has_let_go_of_is_durable_all_the_same() -> None:
    disk, log = open_simulated(settings(segment_bytes=1024, retention_bytes=0))
    append(log, *[batch("x" * 600)] * 4)
    checkpoint(log)
    log.retain(NOW_MS)  # the files are not removed yet
    run_steps_here(log.delete_before(2))
    disk.cut_power()
    assert reopen(disk).start_offset >= 2


def test_retention_by_size_keeps_at_least_what_is_promised() -> None:
    _, log = open_simulated(settings(segment_bytes=1024, retention_bytes=2000))
    append(log, *[batch("x" * 900)] * 6)
    checkpoint(log)
    removal = log.retain(NOW_MS)
    assert removal is not None
    removal()
    assert bases(log) == [3, 4, 5]
    assert log.size >= 2000
    assert log.size - log.segments[0].size < 2000


def test_retention_by_time_takes_segments_whose_latest_record_is_too_old() -> None:
    disk, log = open_simulated(settings(segment_bytes=1024, retention_ms=1000))
    append(log, *[batch("x" * 900, at_ms=NOW_MS + 500 * n) for n in range(5)])
    checkpoint(log)
    removal = log.retain(NOW_MS + 1501)
    assert removal is not None
    removal()
    assert bases(log) == [2, 3, 4]
    assert not [path for path in disk.paths() if path.name.startswith(f"{0:020d}")]


def test_retention_by_time_takes_the_active_segment_too_once_it_is_too_old() -> None:
    _, log = open_simulated(settings(retention_ms=1000))
    append(log, batch("a"))
    checkpoint(log)
    assert log.retain(NOW_MS + 1000) is None
    log.retain(NOW_MS + 1001)
    checkpoint(log)
    assert log.retain(NOW_MS + 1001) is not None or log.start_offset == 1
    assert append(log, batch("b")) == [1]
    assert values(log) == ["b"]


def test_retention_leaves_segments_that_no_checkpoint_covers_yet() -> None:
    _, log = open_simulated(settings(segment_bytes=1024, retention_bytes=0))
    append(log, *[batch("x" * 900)] * 3)
    assert log.retain(NOW_MS) is None
    checkpoint(log)
    assert log.retain(NOW_MS) is not None


def test_a_topic_that_only_compacts_retains_everything() -> None:
    _, log = open_simulated(settings(segment_bytes=1024, retention_bytes=0, retention_ms=0, cleanup_policy="compact"))
    append(log, *[batch("x" * 900, key="k")] * 3)
    assert count_expired(log.segments, log.config, NOW_MS + 10**9) == 0


# --- open and close


def test_a_closed_log_is_opened_without_a_scan_and_goes_on() -> None:
    disk, log = open_simulated(settings(segment_bytes=1024))
    append(log, *[batch("x" * 300)] * 10)
    log.close()
    log = reopen(disk, settings(segment_bytes=1024))
    assert log.recovery.clean
    assert log.recovery.scanned_bytes == 0
    assert append(log, batch("y")) == [10]


def test_after_a_crash_only_what_follows_the_checkpoint_is_scanned() -> None:
    disk, log = open_simulated()
    append(log, *[batch("x" * 300)] * 10)
    checkpoint(log)
    append(log, batch("y"))
    log = reopen(disk)
    assert not log.recovery.clean
    assert log.recovery.scanned_bytes == len(batch("y"))
    assert log.end_offset == 11


def test_files_of_strangers_in_the_directory_are_left_alone() -> None:
    disk, log = open_simulated()
    append(log, batch("a"))
    log.close()
    names = ["notes.log", "x.producers", "1.aborted", "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.log", "1-2.swap"]
    for name in names:
        disk.open(log.directory / name).append([b"hello"])
    log = reopen(disk)
    assert values(log) == ["a"]
    assert set(names) <= set(disk.list(log.directory))


@pytest.mark.parametrize(
    ("offset", "bytes_max", "end_offset", "expected"),
    [
        (0, 1 << 20, 6, 6),
        (1, 1 << 20, 6, 5),  # the first record of the batch was not asked for
        (0, 0, 6, 2),  # one batch
        (0, 2 * len(batch("a", "b")) + 1, 6, 4),  # two batches, and not enough for a third
        (0, 1 << 20, 4, 4),  # the last is not to be seen yet
    ],
)
def test_a_slice_knows_how_many_offsets_it_covers(offset: int, bytes_max: int, end_offset: int, expected: int) -> None:
    _, log = open_simulated()
    for _ in range(3):
        log.append(batch("a", "b"), leader_epoch=0, now_ms=NOW_MS)
    found = log.read(offset, bytes_max=bytes_max, end_offset=end_offset)
    assert found is not None
    assert found.offsets == expected


# --- invariants


def test_a_sealed_segment_never_grows() -> None:
    _, log = open_simulated()
    append(log, batch("a"))
    sealed = log.segments[0]
    log.roll()
    later = bytearray(batch("b"))
    assign(later, 0, base_offset=1, leader_epoch=0)
    with pytest.raises(AssertionError, match="is sealed"):
        sealed.append([later], [parse_header(later)])


def test_a_segment_takes_no_offset_twice() -> None:
    _, log = open_simulated()
    append(log, batch("a"))
    again = bytearray(batch("b"))
    assign(again, 0, base_offset=0, leader_epoch=0)
    with pytest.raises(AssertionError, match="0 comes before 1"):
        log.segments[0].append([again], [parse_header(again)])


def test_nothing_is_called_durable_that_was_never_appended() -> None:
    _, log = open_simulated()
    append(log, batch("a"))
    point = log.begin_sync()
    point.end_offset = 2
    with pytest.raises(AssertionError, match="durable to 2, ends at 1"):
        log.end_sync(point)


# --- in steps: what happens between them ----------------------------------------------------------------------------


def test_a_search_by_time_starts_again_when_segments_go_meanwhile() -> None:
    _, log = open_simulated()
    for number in range(4):
        append(log, batch(f"{number}", at_ms=NOW_MS + number))
        log.roll()
    steps = log.find_time(NOW_MS)
    assert next(steps) is None
    scan = steps.send(None)
    assert scan is not None, "a batch is searched in a thread"
    found = scan()
    assert found.offset == 0
    run_steps_here(log.delete_before(2))
    with pytest.raises(StopIteration) as end:
        result = found
        while True:
            work = steps.send(result)
            result = None if work is None else work()
    assert end.value.value.offset == 2


def test_records_appended_while_others_are_deleted_stay() -> None:
    disk, log = open_simulated()
    append(log, batch("old"))
    log.roll()
    append(log, batch("older"))
    steps = log.delete_before(2)
    sync_all = next(steps)
    assert sync_all is not None and log.durable_offset < 2, "the disk is left to a thread"
    append(log, batch("new"))
    sync_all()
    append(log, batch("newer"))
    remove = steps.send(None)
    assert (log.start_offset, remove is not None) == (2, True)
    append(log, batch("newest"))
    assert remove is not None
    remove()
    assert values(log) == ["new", "newer", "newest"]
    with pytest.raises(StopIteration):
        steps.send(None)
    disk.cut_power()
    again = reopen(disk, log.config)
    assert again.start_offset == 2


def test_deleting_that_was_not_finished_is_undone_or_done_by_a_crash() -> None:
    for steps_taken in range(3):
        disk, log = open_simulated()
        for value in "abc":
            append(log, batch(value))
            log.roll()
        sync(log)
        steps = log.delete_before(2)
        for _ in range(steps_taken):
            work = next(steps)
            assert work is not None
            work()
        disk.cut_power()
        again = reopen(disk, log.config)
        assert values(again) in (["a", "b", "c"], ["c"])
        assert again.start_offset == (2 if steps_taken == 2 else 0)


def test_a_late_checkpoint_does_not_overwrite_newer_indexes() -> None:
    disk, log = open_simulated(settings(index_interval_bytes=0))
    index = DIRECTORY / "00000000000000000000.index"
    append(log, batch("a"), batch("b"))
    late, later = log.begin_checkpoint(), None
    append(log, batch("c"))
    later = log.begin_checkpoint()
    assert late is not None and later is not None
    assert not disk.exists(index), "files are left to a thread"
    later.run()
    newer = disk.read(index)
    late.run()
    assert disk.read(index) == newer
    append(log, batch("d"))
    late = log.begin_checkpoint()
    assert late is not None
    log.roll()
    sealed = disk.read(index)
    late.run()
    assert disk.read(index) == sealed


def test_retention_of_many_segments_takes_several_rounds() -> None:
    _, log = open_simulated(settings(retention_ms=1))
    for number in range(1100):
        append(log, batch(f"{number}"))
        log.roll()
    checkpoint(log)
    rounds = []
    while (removal := log.retain(NOW_MS + 1000)) is not None:
        removal()
        rounds.append(log.start_offset)
    assert rounds == [1000, 1100]
    assert values(log) == []
