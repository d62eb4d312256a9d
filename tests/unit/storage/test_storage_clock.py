"""Retention trusts no single leap of the clock: what nobody could read yet is not deleted."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.batches import append, batch, checkpoint, open_simulated, settings, values

from flymq.host.clock import ManualClock
from flymq.host.simulated_disk import SimulatedDisk
from flymq.storage.steady_clock import SteadyClock, read_last_time, write_last_time

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


def pass_time(wall: ManualClock, clock: SteadyClock, ms: int) -> None:
    """Let time pass, with a look at the clock every minute."""
    for _ in range(ms // MINUTE_MS):
        wall.move(ms=MINUTE_MS)
        clock.now_ms()


def test_a_clock_that_does_not_leap_is_the_wall_clock() -> None:
    wall = ManualClock()
    clock = SteadyClock(wall, wait_ms=HOUR_MS)
    for step_ms in (0, 30_000, -30_000, 50_000):
        wall.leap(ms=step_ms)
        pass_time(wall, clock, DAY_MS)
        assert clock.now_ms() == wall.now_ms()
    assert clock.leap_ms == 0 and clock.problems == []


def test_a_leap_forward_is_taken_over_when_it_has_lasted(caplog: pytest.LogCaptureFixture) -> None:
    wall = ManualClock()
    clock = SteadyClock(wall, wait_ms=HOUR_MS)
    wall.leap(ms=8 * DAY_MS)
    pass_time(wall, clock, 59 * MINUTE_MS)
    assert clock.now_ms() == wall.now_ms() - 8 * DAY_MS
    assert clock.leap_ms == 8 * DAY_MS
    assert "8.0 days" in clock.problems[0] and "Check the clock" in clock.problems[0]
    assert len(caplog.records) == 1
    pass_time(wall, clock, 2 * MINUTE_MS)
    assert clock.now_ms() == wall.now_ms()
    assert clock.problems == []
    assert len(caplog.records) == 2


def test_a_clock_that_is_corrected_in_time_has_deleted_nothing() -> None:
    wall = ManualClock()
    clock = SteadyClock(wall, wait_ms=HOUR_MS)
    wall.leap(ms=8 * DAY_MS)
    pass_time(wall, clock, 30 * MINUTE_MS)
    wall.leap(ms=-8 * DAY_MS)
    assert clock.now_ms() == wall.now_ms()
    assert clock.problems == []


def test_a_second_leap_waits_again() -> None:
    wall = ManualClock()
    clock = SteadyClock(wall, wait_ms=HOUR_MS)
    wall.leap(ms=DAY_MS)
    pass_time(wall, clock, 50 * MINUTE_MS)
    wall.leap(ms=DAY_MS)
    pass_time(wall, clock, 50 * MINUTE_MS)
    assert clock.now_ms() == wall.now_ms() - 2 * DAY_MS
    pass_time(wall, clock, 20 * MINUTE_MS)
    assert clock.now_ms() == wall.now_ms()


def test_a_leap_back_is_taken_over_at_once() -> None:
    wall = ManualClock()
    clock = SteadyClock(wall, wait_ms=HOUR_MS)
    wall.leap(ms=-30 * DAY_MS)
    assert clock.now_ms() == wall.now_ms()
    wall.leap(ms=30 * DAY_MS)  # the time server has answered
    assert clock.now_ms() == wall.now_ms() - 30 * DAY_MS


def test_with_no_wait_the_clock_is_trusted() -> None:
    wall = ManualClock()
    clock = SteadyClock(wall, last_ms=0, wait_ms=0)
    wall.leap(ms=8 * DAY_MS)
    assert clock.now_ms() == wall.now_ms()


@pytest.mark.parametrize(("down_ms", "is_trusted"), [(50 * MINUTE_MS, True), (8 * DAY_MS, False)])
def test_after_a_long_downtime_or_with_a_wrong_clock_at_boot_retention_waits(down_ms: int, is_trusted: bool) -> None:
    disk, wall = SimulatedDisk(), ManualClock()
    disk.make_directory(Path("/data"))
    assert read_last_time(disk, Path("/data")) is None
    write_last_time(disk, Path("/data"), wall.now_ms())
    wall.leap(ms=down_ms)
    clock = SteadyClock(wall, last_ms=read_last_time(disk, Path("/data")), wait_ms=HOUR_MS)
    assert (clock.now_ms() == wall.now_ms()) is is_trusted
    pass_time(wall, clock, HOUR_MS + MINUTE_MS)
    assert clock.now_ms() == wall.now_ms()


def test_a_leap_of_eight_days_does_not_empty_a_log_at_once() -> None:
    config = settings(retention_ms=7 * DAY_MS, segment_bytes=1024)
    wall = ManualClock()
    clock = SteadyClock(wall, wait_ms=HOUR_MS)
    _, log = open_simulated(config)
    append(log, *[batch("x" * 600, at_ms=wall.now_ms())] * 3, now_ms=wall.now_ms())
    checkpoint(log)
    wall.leap(ms=8 * DAY_MS)
    assert log.retain(clock.now_ms()) is None
    assert len(values(log)) == 3
    pass_time(wall, clock, HOUR_MS + MINUTE_MS)
    assert log.retain(clock.now_ms()) is not None


def test_a_record_from_the_future_stays_longer_and_makes_no_other_go_sooner() -> None:
    config = settings(retention_ms=7 * DAY_MS, segment_bytes=1024, message_timestamp_after_max_ms=2000 * DAY_MS)
    wall = ManualClock()
    clock = SteadyClock(wall, wait_ms=HOUR_MS)
    _, log = open_simulated(config)
    append(log, batch("x" * 600, at_ms=wall.now_ms() + 1000 * DAY_MS), now_ms=wall.now_ms())
    append(log, batch("y" * 600, at_ms=wall.now_ms()), now_ms=wall.now_ms())
    checkpoint(log)
    assert clock.now_ms() == wall.now_ms()
    assert log.retain(clock.now_ms()) is None
    assert len(values(log)) == 2
