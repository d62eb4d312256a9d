"""What the leader of a partition knows of its followers, and what follows: the high watermark, and who is in sync.

Pure: times and offsets are passed in. The rules:

* The position of a replica is the end of its log; in an `fsync` topic, what is on its disk.
* The high watermark is the smallest position of all in-sync replicas, the leader among them. It never moves back, and
  stays while fewer than `min.insync.replicas` are in sync.
* The in-sync replicas are what the metadata store says. A change counts when it is there: until then the high watermark
  waits for the old members and for the proposed ones. So it is right whichever of the two is, even if the answer of the
  store was lost.
* A follower is in sync again when it has everything up to the high watermark and up to the start of the leader's epoch.
* It is no longer in sync when it has not had everything that the leader had for a while.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

UNKNOWN = -1


@dataclass(slots=True)
class Follower:
    """One follower, as its fetches in this leader epoch show it."""

    broker_epoch: int = UNKNOWN
    """The registration of the broker that fetches. One that was restarted has another."""
    position: int = UNKNOWN
    """It has everything before this offset."""
    caught_up_s: float = 0.0
    """When it last had everything that the leader had."""
    fetched_s: float = 0.0
    leader_end_offset: int = 0
    """What the leader had at the last fetch."""

    def fetched(self, position: int, leader_end_offset: int, now_s: float) -> None:
        if position >= leader_end_offset:
            self.caught_up_s = now_s
        elif position >= self.leader_end_offset and self.position != UNKNOWN:
            self.caught_up_s = max(self.caught_up_s, self.fetched_s)  # it has what there was at its last fetch
        self.position, self.leader_end_offset, self.fetched_s = position, leader_end_offset, now_s


class Followers:
    """The followers of a partition in one leader epoch."""

    def __init__(
        self,
        leader: int,
        replicas: Collection[int],
        isr: Collection[int],
        *,
        epoch_start: int,
        high_watermark: int,
        now_s: float,
    ) -> None:
        """`high_watermark`: as this broker knew it before it led."""
        self._leader = leader
        self.epoch_start = epoch_start
        self._by_broker: dict[int, Follower] = {}
        self.set_isr(isr)
        self.high_watermark = high_watermark
        self.set_replicas(replicas, now_s)

    # --- what the metadata says

    def set_replicas(self, replicas: Collection[int], now_s: float) -> None:
        """Follow a change of the replicas. New ones have their time to catch up."""
        others = [broker for broker in replicas if broker != self._leader]
        self._by_broker = {broker: self._by_broker.get(broker) or Follower(caught_up_s=now_s) for broker in others}

    def set_isr(self, isr: Collection[int]) -> None:
        """The metadata store has these in-sync replicas: no proposal is open any more."""
        self._isr = frozenset(isr)
        self.leader_is_alone = self._isr == {self._leader}
        """Whether only the leader is in sync."""
        self.propose(())

    def propose(self, isr: Collection[int]) -> None:
        """A change to these in-sync replicas is on its way to the metadata store."""
        self._proposed = frozenset(isr)
        self._awaited = tuple((self._isr | self._proposed) - {self._leader})  # by the high watermark

    @property
    def isr(self) -> frozenset[int]:
        return self._isr

    @property
    def are_awaited(self) -> bool:
        """Whether the high watermark waits for followers, not for the leader alone."""
        return bool(self._awaited)

    # --- what the followers say

    def fetched(self, broker: int, broker_epoch: int, position: int, leader_end_offset: int, now_s: float) -> None:
        """A follower has everything before this offset."""
        follower = self._by_broker.get(broker)
        if follower is None:
            return  # it is not a replica any more, or not yet in the metadata that is known here
        if follower.broker_epoch != broker_epoch:
            follower = self._by_broker[broker] = Follower(broker_epoch, caught_up_s=follower.caught_up_s)
        follower.fetched(position, leader_end_offset, now_s)

    def of(self, broker: int) -> Follower | None:
        return self._by_broker.get(broker)

    # --- what follows

    def advance(self, own_position: int, *, min_isr: int) -> bool:
        """Move the high watermark as far as it goes; return whether it has moved. `own_position` is the leader's."""
        if len(self._isr) < min_isr:
            return False
        position = own_position
        for broker in self._awaited:
            follower = self._by_broker.get(broker)
            if follower is None:
                return False  # a member that is unknown here: the metadata is ahead
            if follower.position < position:
                position = follower.position
        if position <= self.high_watermark:
            return False
        self.high_watermark = position
        return True

    def wanted_isr(self, now_s: float, *, lag_max_s: float, end_offset: int) -> frozenset[int] | None:
        """Return the in-sync replicas as they should be; None if they are, or if a change is on its way."""
        if self._proposed:
            return None
        wanted = {self._leader}
        for broker, follower in self._by_broker.items():
            if broker in self._isr:
                if follower.position >= end_offset or now_s - follower.caught_up_s <= lag_max_s:
                    wanted.add(broker)
            elif self.has_caught_up(broker):
                wanted.add(broker)
        return None if wanted == self._isr else frozenset(wanted)

    def has_caught_up(self, broker: int) -> bool:
        """Whether it has everything that is committed, and all that was there when the leader began."""
        follower = self._by_broker.get(broker)
        return follower is not None and follower.position >= max(self.high_watermark, self.epoch_start)
