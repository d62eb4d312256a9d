"""Filters of a query become bounds that leave out only what the filters would."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from flymq.model.names import TopicPartition
from flymq.spark.source.filters import Bounds

UNBOUNDED = (1 << 63) - 1
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def narrowed(*filters: Filter) -> Bounds:
    bounds = Bounds()
    for filter_ in filters:
        bounds.narrow(filter_)
    return bounds


@pytest.mark.parametrize(
    ("filter_", "bounds"),
    [
        (EqualTo(("offset",), 5), (5, 6)),
        (EqualNullSafe(("offset",), 5), (5, 6)),
        (GreaterThan(("offset",), 5), (6, UNBOUNDED)),
        (GreaterThanOrEqual(("offset",), 5), (5, UNBOUNDED)),
        (LessThan(("offset",), 5), (0, 5)),
        (LessThanOrEqual(("offset",), 5), (0, 6)),
        (In(("offset",), (9, 4, None)), (4, 10)),
        (In(("offset",), (None,)), (0, 0)),
        (Not(EqualTo(("offset",), 5)), (0, UNBOUNDED)),
        (IsNotNull(("offset",)), (0, UNBOUNDED)),
        (EqualTo(("value", "offset"), 5), (0, UNBOUNDED)),
        (EqualTo(("key",), b"5"), (0, UNBOUNDED)),
    ],
)
def test_a_filter_on_offsets_bounds_them(filter_: Filter, bounds: tuple[int, int]) -> None:
    assert narrowed(filter_).offset == bounds


def test_several_filters_bound_together() -> None:
    bounds = narrowed(GreaterThan(("offset",), 5), LessThan(("offset",), 9), LessThan(("offset",), 100))
    assert bounds.clip({A0: 0, A1: 8}, {A0: 50, A1: 50}) == ({A0: 6, A1: 8}, {A0: 9, A1: 9})


def test_filters_on_topic_and_partition_leave_out_whole_partitions() -> None:
    bounds = narrowed(In(("topic",), ("a", "c")), EqualTo(("partition",), 1))
    assert [bounds.has(name) for name in (A0, A1, B0)] == [False, True, False]
    assert not narrowed(EqualTo(("topic",), "a"), EqualTo(("topic",), "b")).has(A0)


def test_times_are_bounded_to_the_whole_millisecond() -> None:
    time = datetime(2024, 1, 1, tzinfo=UTC)
    ms = 1_704_067_200_000
    just_after = time + timedelta(microseconds=1)
    assert narrowed(GreaterThan(("timestamp",), time)).time_ms[0] == ms
    assert narrowed(GreaterThan(("timestamp",), just_after)).time_ms[0] == ms
    assert narrowed(LessThan(("timestamp",), just_after)).time_ms[1] == ms + 1
    assert narrowed(EqualTo(("timestamp",), time.replace(tzinfo=None))).time_ms == (ms, ms + 1)
