"""Which offsets a micro-batch has, and how they are cut into tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flymq.model.names import TopicPartition
from flymq.spark.source.planning import OffsetRange, count_between, cut, limited, ranges_between

NAMES = [TopicPartition("t", number) for number in range(5)]
sizes = st.lists(st.integers(0, 1000), min_size=1, max_size=5)


def offsets(numbers: list[int]) -> dict[TopicPartition, int]:
    return dict(zip(NAMES, numbers, strict=False))


@given(sizes, st.integers(1, 2000))
def test_a_limit_is_shared_in_proportion_and_starves_nobody(waiting: list[int], offsets_max: int) -> None:
    start = offsets([100] * len(waiting))
    latest = offsets([100 + count for count in waiting])
    end = limited(start, latest, offsets_max)
    taken = {name: end[name] - start[name] for name in end}
    total = sum(waiting)
    for name, count in offsets(waiting).items():
        assert min(count, 1) <= taken[name] <= count
        if total > offsets_max:
            assert taken[name] <= max(1, offsets_max * count / total)
    assert sum(taken.values()) <= offsets_max + len(waiting)
    if total <= offsets_max:
        assert end == latest


def test_a_limit_takes_twice_as_much_from_where_twice_as_much_waits() -> None:
    assert limited(offsets([0, 0]), offsets([200, 100]), 30) == offsets([20, 10])


def test_a_partition_that_went_back_is_left_to_the_plan() -> None:
    assert limited(offsets([50, 0]), offsets([10, 100]), 30) == offsets([10, 30])
    assert count_between(offsets([50, 0]), offsets([10, 100])) == 100


@given(sizes, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300))
def test_pieces_are_the_whole_within_both_limits(
    counts: list[int], partitions_min: int | None, records_max: int | None
) -> None:
    start, end = offsets([7] * len(counts)), offsets([7 + count for count in counts])
    ranges = ranges_between(start, end)
    pieces = cut(ranges, partitions_min=partitions_min, records_max=records_max)
    assert [piece.size > 0 for piece in pieces] == [True] * len(pieces)
    covered = [(piece.partition, offset) for piece in pieces for offset in range(piece.start, piece.end)]
    assert covered == [(range_.partition, offset) for range_ in ranges for offset in range(range_.start, range_.end)]
    if records_max is not None:
        assert all(piece.size <= records_max for piece in pieces)
    if partitions_min is not None:
        assert len(pieces) >= min(partitions_min, sum(counts))


def test_without_limits_each_partition_is_one_task() -> None:
    ranges = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 9)]
    assert cut(ranges) == ranges


def test_larger_ranges_are_cut_into_more_pieces() -> None:
    pieces = cut([OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 0, 10)], partitions_min=10)
    assert [piece.partition for piece in pieces] == [0] * 9 + [1]
