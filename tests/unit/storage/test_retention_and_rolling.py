"""When segments begin and when they go."""

from tests.unit.storage.logs import NOW_MS, append, checkpoint, small_log, values

from flymq.host.simulated_disk import SimulatedDisk
from flymq.model.topic_config import UNLIMITED


def remove_expired(log, now_ms):
    checkpoint(log)
    removal = log.retain(now_ms)
    if removal is not None:
        removal()


def test_a_segment_ends_when_the_next_batch_would_make_it_too_large():
    log = small_log(SimulatedDisk(), segment_bytes=1024)
    for _ in range(20):
        append(log, b"x" * 100)
    assert len(log.segments) > 1
    assert all(segment.size <= 1024 for segment in log.segments)


def test_a_segment_ends_when_it_is_old():
    log = small_log(SimulatedDisk(), segment_ms=1000)
    append(log, b"a")
    append(log, b"b", now_ms=NOW_MS + 999)
    assert len(log.segments) == 1
    append(log, b"c", now_ms=NOW_MS + 1000)
    assert len(log.segments) == 2


def test_records_go_when_their_time_is_over_and_not_before():
    log = small_log(SimulatedDisk(), retention_ms=10_000)
    for number in range(20):
        append(log, b"%d" % number * 50, now_ms=NOW_MS + number)
    remove_expired(log, NOW_MS + 10_000)
    assert log.start_offset == 0
    remove_expired(log, NOW_MS + 10_020)
    assert log.start_offset == log.end_offset == 20
    assert append(log, b"goes on") == 20


def test_the_oldest_segments_go_when_there_are_too_many_bytes():
    log = small_log(SimulatedDisk(), retention_bytes=3000, retention_ms=UNLIMITED)
    for _ in range(60):
        append(log, b"x" * 100)
    remove_expired(log, NOW_MS)
    assert 3000 <= log.size <= 3000 + 1024
    assert log.start_offset > 0
    assert len(values(log)) == 60 - log.start_offset


def test_nothing_goes_without_a_limit():
    log = small_log(SimulatedDisk(), retention_bytes=UNLIMITED, retention_ms=UNLIMITED)
    for _ in range(60):
        append(log, b"x" * 100, now_ms=1)
    remove_expired(log, NOW_MS)
    assert log.start_offset == 0


def test_what_retention_removed_stays_removed_after_a_restart():
    disk = SimulatedDisk()
    log = small_log(disk, retention_bytes=2000)
    for _ in range(60):
        append(log, b"x" * 100)
    remove_expired(log, NOW_MS)
    start_offset = log.start_offset
    log.close()
    assert small_log(disk).start_offset == start_offset
