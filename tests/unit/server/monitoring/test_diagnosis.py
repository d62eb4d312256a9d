"""Each limit is named when it is reached, and not before."""

from dataclasses import replace

from flymq.model.names import TopicPartition
from flymq.server.monitoring.diagnosis import GroupSample, Sample, diagnose

BEFORE = Sample(at_s=0.0)
NOW = Sample(at_s=60.0, loop_cpu_s=6.0, lag_count=600, fsync_count=100, fsync_sum_s=0.1)


def names(now: Sample, before: Sample = BEFORE) -> list[str]:
    return [limit.what for limit in diagnose(now, before)]


def test_a_broker_at_ease_has_no_limit() -> None:
    assert names(NOW) == []


def test_a_loop_that_always_works_is_the_limit() -> None:
    assert names(replace(NOW, loop_cpu_s=54.0)) == ["event_loop"]


def test_a_loop_that_is_late_without_working_waits_for_the_machine() -> None:
    (limit,) = diagnose(replace(NOW, lag_sum_s=60.0), BEFORE)
    assert limit.what == "event_loop"
    assert "Another process" in limit.advice


def test_a_disk_that_is_always_syncing_is_the_limit() -> None:
    assert names(replace(NOW, fsync_sum_s=50.0)) == ["disk"]


def test_a_disk_that_takes_long_for_few_syncs_is_the_limit_too() -> None:
    assert names(replace(NOW, fsync_count=4, fsync_sum_s=2.0)) == ["disk"]


def test_a_disk_that_fills_up_is_named() -> None:
    assert names(replace(NOW, disk_free_ratio=0.05)) == ["disk_space"]


def test_a_full_disk_and_missing_descriptors_are_named() -> None:
    assert names(replace(NOW, disk_free_ratio=0.0, is_disk_full=True)) == ["disk_space"]
    assert names(replace(NOW, is_out_of_files=True)) == ["open_files"]


def test_buffers_that_fill_up_are_named() -> None:
    assert names(replace(NOW, buffer_ratio=0.9)) == ["buffers"]


def offsets(*counts: int) -> dict[TopicPartition, int]:
    return {TopicPartition("orders", number): count for number, count in enumerate(counts)}


def test_a_partition_that_takes_nearly_everything_is_hot() -> None:
    before = replace(BEFORE, end_offsets=offsets(0, 0, 0))
    (limit,) = diagnose(replace(NOW, end_offsets=offsets(10, 100_000, 20)), before)
    assert limit.what == "hot_partition"
    assert "orders-1" in limit.text


def test_a_topic_that_is_shared_fairly_small_or_single_has_no_hot_partition() -> None:
    for counts in ((50_000, 50_000), (500, 0), (100_000,)):
        before = replace(BEFORE, end_offsets=offsets(*(0 for _ in counts)))
        assert names(replace(NOW, end_offsets=offsets(*counts)), before) == []


def test_a_group_that_falls_behind_is_named_and_one_that_catches_up_is_not() -> None:
    before = replace(BEFORE, groups={"billing": GroupSample(1000, 60.0, members=2)})
    assert names(replace(NOW, groups={"billing": GroupSample(2000, 90.0, members=2)}), before) == ["slow_consumer"]
    assert names(replace(NOW, groups={"billing": GroupSample(900, 90.0, members=2)}), before) == []
    assert names(replace(NOW, groups={"billing": GroupSample(2000, 5.0, members=2)}), before) == []


def test_a_group_without_members_is_told_from_one_that_is_slow() -> None:
    before = replace(BEFORE, groups={"old": GroupSample(1000, 60.0, members=0)})
    (limit,) = diagnose(replace(NOW, groups={"old": GroupSample(1000, 120.0, members=0)}), before)
    assert "no members" in limit.text


def test_the_worst_comes_first() -> None:
    before = replace(BEFORE, groups={"billing": GroupSample(0, 0.0, members=1)})
    now = replace(NOW, fsync_sum_s=50.0, groups={"billing": GroupSample(9, 99.0, members=1)})
    assert names(now, before) == ["disk", "slow_consumer"]


def test_a_moment_is_too_short_to_judge_by() -> None:
    assert names(replace(NOW, at_s=0.1, loop_cpu_s=0.1)) == []
