"""The high watermark and the in-sync replicas, as the fetches of followers move them."""

from __future__ import annotations

import pytest

from flymq.broker.replicas.followers import Followers

LAG_S = 10.0


class Leader:
    """Broker 1 leads a partition with the followers 2 and 3; its log ends at `end`."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3), epoch_start: int = 0, min_isr: int = 1) -> None:
        self.followers = Followers(1, (1, 2, 3), isr, epoch_start=epoch_start, high_watermark=0, now_s=0)
        self.end = epoch_start
        self.now_s = 0.0
        self.min_isr = min_isr

    def fetch(self, broker: int, position: int, *, epoch: int = 100) -> None:
        self.followers.fetched(broker, epoch, position, self.end, self.now_s)

    def high_watermark(self) -> int:
        self.followers.advance(self.end, min_isr=self.min_isr)
        return self.followers.high_watermark

    @property
    def wanted(self) -> set[int] | None:
        wanted = self.followers.wanted_isr(self.now_s, lag_max_s=LAG_S, end_offset=self.end)
        return None if wanted is None else set(wanted)


def test_a_record_is_committed_when_every_replica_in_sync_has_it() -> None:
    leader = Leader()
    leader.end = 10
    assert leader.high_watermark() == 0
    leader.fetch(2, 10)
    assert leader.high_watermark() == 0, "nothing is known of 3"
    leader.fetch(3, 7)
    assert leader.high_watermark() == 7
    leader.fetch(3, 10)
    assert leader.high_watermark() == 10


def test_a_replica_out_of_sync_is_not_waited_for() -> None:
    leader = Leader(isr=(1, 2))
    leader.end = 10
    leader.fetch(2, 10)
    assert leader.high_watermark() == 10


def test_the_high_watermark_never_moves_back() -> None:
    leader = Leader()
    leader.end = 10
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert leader.high_watermark() == 10
    leader.fetch(3, 2)
    assert leader.high_watermark() == 10


def test_with_too_few_in_sync_nothing_is_committed() -> None:
    leader = Leader(isr=(1,), min_isr=2)
    leader.end = 10
    assert leader.high_watermark() == 0
    leader.followers.set_isr((1, 2))
    leader.fetch(2, 10)
    assert leader.high_watermark() == 10


def test_a_follower_that_is_left_out_counts_until_the_store_has_the_change() -> None:
    leader = Leader()
    leader.end = 10
    leader.fetch(2, 10)
    leader.fetch(3, 5)
    leader.followers.propose((1, 2))
    assert leader.high_watermark() == 5
    leader.followers.set_isr((1, 2))
    assert leader.high_watermark() == 10


def test_a_follower_that_is_added_counts_before_the_store_has_the_change() -> None:
    leader = Leader(isr=(1, 2))
    leader.end = 10
    leader.fetch(3, 10)
    leader.fetch(2, 10)
    assert leader.high_watermark() == 10
    leader.followers.propose((1, 2, 3))
    leader.end = 20
    leader.fetch(2, 20)
    assert leader.high_watermark() == 10, "3 may be in sync already, for all that is known here"
    leader.fetch(3, 15)
    assert leader.high_watermark() == 15


def test_a_follower_that_does_not_fetch_falls_out() -> None:
    leader = Leader()
    leader.end = 10
    leader.fetch(2, 10)
    leader.now_s = LAG_S + 1
    leader.end = 20
    leader.fetch(2, 20)
    assert leader.wanted == {1, 2}
    leader.followers.propose((1, 2))
    assert leader.wanted is None, "it is on its way"


def test_a_follower_that_always_has_what_there_was_at_its_last_fetch_stays_in_sync() -> None:
    leader = Leader()
    for second in range(60):
        leader.now_s = float(second)
        for broker in (2, 3):
            leader.fetch(broker, leader.end)
        leader.end += 100  # a busy partition: nobody ever has everything
        for broker in (2, 3):
            leader.fetch(broker, leader.end - 50)
        assert leader.wanted is None


def test_a_follower_that_fetches_but_falls_behind_falls_out() -> None:
    leader = Leader(isr=(1, 2))
    for second in range(20):
        leader.now_s = float(second)
        leader.end += 100
        leader.fetch(2, leader.end // 2)
    assert leader.wanted == {1}


def test_an_idle_follower_that_has_everything_stays_in_sync() -> None:
    leader = Leader()
    leader.end = 10
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.now_s = 1000
    assert leader.wanted is None


@pytest.mark.parametrize(("offset", "is_added"), [(9, False), (10, True), (12, True)])
def test_a_follower_is_in_sync_again_from_the_high_watermark_on(offset: int, is_added: bool) -> None:
    leader = Leader(isr=(1, 2))
    leader.end = 10
    leader.fetch(2, 10)
    assert leader.high_watermark() == 10
    leader.end = 12
    leader.fetch(2, 10)
    leader.fetch(3, offset)
    assert leader.wanted == ({1, 2, 3} if is_added else None)


def test_a_follower_must_have_reached_the_epoch_of_the_leader() -> None:
    leader = Leader(isr=(1,), epoch_start=50)
    leader.fetch(2, 40)
    assert leader.wanted is None, "what it has after the high watermark may be of another leader"
    leader.fetch(2, 50)
    assert leader.wanted == {1, 2}


def test_a_follower_that_was_restarted_starts_again() -> None:
    leader = Leader()
    leader.end = 10
    leader.fetch(2, 10, epoch=100)
    leader.fetch(3, 10)
    leader.fetch(2, 3, epoch=200)
    assert leader.high_watermark() == 3


def test_the_fetch_of_a_stranger_changes_nothing() -> None:
    leader = Leader(isr=(1,))
    leader.fetch(9, 100)
    assert leader.wanted is None
