from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flymq.broker.service.quota import BURST_S, DEBT_S_MAX, ClientQuota, TokenBucket


def test_a_client_at_rest_may_send_a_second_of_its_quota_at_once() -> None:
    bucket = TokenBucket(1_000, now_s=0.0)
    assert bucket.throttle_ms(0.0, 400) == 0
    assert bucket.throttle_ms(0.0, 600) == 0
    assert bucket.throttle_ms(0.0, 1) == 1


def test_a_client_waits_until_what_it_owes_is_paid() -> None:
    bucket = TokenBucket(1_000, now_s=0.0)
    assert bucket.throttle_ms(0.0, 1_500) == 500
    assert bucket.throttle_ms(0.2, 0) == 300
    assert bucket.throttle_ms(0.5, 0) == 0
    assert bucket.throttle_ms(0.5, 100) == 100


def test_a_pause_fills_the_bucket_no_higher_than_its_burst() -> None:
    bucket = TokenBucket(1_000, now_s=0.0)
    bucket.throttle_ms(0.0, 1_000)
    assert bucket.throttle_ms(3_600.0, 1_000) == 0
    assert bucket.throttle_ms(3_600.0, 250) == 250


def test_one_huge_request_locks_nobody_out_for_hours() -> None:
    bucket = TokenBucket(1_000, now_s=0.0)
    assert bucket.throttle_ms(0.0, 1 << 30) == DEBT_S_MAX * 1000
    assert bucket.throttle_ms(DEBT_S_MAX, 0) == 0


@given(
    rate=st.integers(min_value=1, max_value=1 << 30),
    requests=st.lists(st.tuples(st.integers(0, 1 << 26), st.floats(0, 5)), min_size=1, max_size=50),
)
def test_a_client_that_waits_as_told_stays_within_its_quota(rate: int, requests: list[tuple[int, float]]) -> None:
    bucket = TokenBucket(rate, now_s=0.0)
    now_s, sent = 0.0, 0.0
    for size, pause_s in requests:
        size = min(size, int(rate * DEBT_S_MAX))  # beyond this, the rest is forgiven
        wait_ms = bucket.throttle_ms(now_s, size)
        sent += size
        now_s += wait_ms / 1000
        assert sent <= rate * (BURST_S + now_s) * (1 + 1e-9) + 1e-3
        now_s += pause_s


def test_clients_do_not_pay_for_each_other() -> None:
    quota = ClientQuota(1_000)
    assert quota.throttle_ms("greedy", 0.0, 3_000) == 2_000
    assert quota.throttle_ms("modest", 0.0, 1_000) == 0


def test_without_a_quota_nobody_waits() -> None:
    assert ClientQuota(0).throttle_ms("a", 0.0, 1 << 40) == 0


def test_the_account_unused_for_longest_goes_when_there_are_too_many() -> None:
    quota = ClientQuota(1_000, clients_max=2)
    quota.throttle_ms("old", 0.0, 2_000)
    quota.throttle_ms("active", 0.0, 2_000)
    quota.throttle_ms("old", 0.0, 0)
    quota.throttle_ms("new", 0.0, 0)
    assert quota.throttle_ms("old", 0.0, 0) == 1_000
    assert quota.throttle_ms("active", 0.0, 0) == 0
