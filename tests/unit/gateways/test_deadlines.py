"""Slow links are served; a client that keeps a request open is not."""

from __future__ import annotations

from flymq.gateways.deadlines import PROGRESS_BYTES_MIN, ArrivalDeadline, StandstillDeadline, Unfinished

TIMEOUT_S = 30.0


def missed_at(received: dict[int, int], *, is_short: bool = False, until_s: int = 600) -> int | None:
    """Sample a request once a second; `received` is what it has brought by that second. Return when it is too late."""
    deadline, so_far = ArrivalDeadline(), 0
    for now_s in range(until_s):
        so_far = received.get(now_s, so_far)
        if deadline.is_missed(now_s, Unfinished(1, so_far), TIMEOUT_S, is_short=is_short):
            return now_s
    return None


def test_a_half_sent_request_has_until_the_timeout() -> None:
    assert missed_at({0: 40}) == TIMEOUT_S


def test_a_byte_now_and_then_is_no_progress() -> None:
    assert missed_at({second: second for second in range(600)}) == TIMEOUT_S


def test_a_large_request_on_a_slow_link_may_take_long() -> None:
    per_second = PROGRESS_BYTES_MIN // 30 + 1
    slow = {second: second * per_second for second in range(600)}
    assert missed_at(slow) is None
    assert missed_at(slow, is_short=True) == TIMEOUT_S  # others wait for its memory


def test_each_request_has_its_own_time() -> None:
    deadline = ArrivalDeadline()
    for now_s in range(600):  # one request after the other, and each sample sees the beginning of the next
        assert not deadline.is_missed(now_s, Unfinished(now_s // 20, 3), TIMEOUT_S, is_short=False)


def test_time_between_requests_and_time_in_which_the_broker_does_not_read_are_free() -> None:
    deadline = ArrivalDeadline()
    for now_s in range(600):
        if now_s % 20 == 0:
            deadline.reset()
        assert not deadline.is_missed(now_s, Unfinished(1, 3), TIMEOUT_S, is_short=False)
    for now_s in range(600, 700):
        assert not deadline.is_missed(now_s, None, TIMEOUT_S, is_short=False)


def test_what_stands_still_is_noticed_and_what_moves_is_not() -> None:
    deadline = StandstillDeadline()
    assert not any(deadline.is_missed(now_s, (now_s // 20,), TIMEOUT_S) for now_s in range(600))
    assert not deadline.is_missed(600, "stuck", TIMEOUT_S)
    assert not deadline.is_missed(629, "stuck", TIMEOUT_S)
    assert deadline.is_missed(630, "stuck", TIMEOUT_S)
    assert not any(deadline.is_missed(now_s, None, TIMEOUT_S) for now_s in range(631, 700))
