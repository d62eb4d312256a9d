"""What many measurements say together."""

import pytest
from benchmarks.figures import Figure, Schedule, figure, percentile


def test_rounds_are_told_by_their_median_and_the_worst_distance_from_it():
    told = figure([90.0, 100.0, 130.0])
    assert told == Figure(median=100.0, low=90.0, high=130.0)
    assert told.spread == pytest.approx(0.30)


def test_rounds_of_nothing_have_no_spread():
    assert figure([0.0, 0.0]).spread == 0.0


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 6), (0.99, 10), (1.0, 10)])
def test_a_percentile_is_one_of_the_values(share, value):
    assert percentile(range(1, 11), share) == value


def test_latency_counts_from_the_time_a_message_was_due():
    schedule = Schedule(start_s=10.0, rate_per_s=100.0)
    assert schedule.due_s(3) == pytest.approx(10.03)
    assert schedule.latencies_s([10.001, 10.012, 10.021]) == pytest.approx([0.001, 0.001, 0.002])


def test_a_pause_is_seen_by_every_message_that_was_due_in_it():
    """A load that stopped its clock with the system would report one slow message of a hundred."""
    schedule = Schedule(start_s=0.0, rate_per_s=1_000.0)
    pause_s = 0.100
    arrivals = [pause_s if schedule.due_s(number) < pause_s else schedule.due_s(number) for number in range(200)]
    latencies = schedule.latencies_s(arrivals)
    assert sum(latency > 0 for latency in latencies) == 100
    assert percentile(latencies, 0.75) == pytest.approx(0.050, abs=0.002)
    assert latencies[-1] == pytest.approx(pause_s)
