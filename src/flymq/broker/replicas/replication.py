"""How the records of a leader are committed: its followers fetch them, the high watermark moves, acks=all is answered.

The leader's own position is the end of its log; in an `fsync` topic, and while it alone is in sync, what is on its
disk. So a record that is acknowledged with acks=all is at least in the page caches of two brokers, or on a disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from flymq.broker.replicas.followers import Followers
from flymq.broker.safety import Safe
from flymq.cluster.catalog import PartitionState
from flymq.host.prompt_future import PromptFuture
from flymq.model.delivery import Acks, Persistence
from flymq.model.errors import FlyMQError, NotEnoughReplicas, NotEnoughReplicasAfterAppend
from flymq.model.names import TopicPartition
from flymq.storage.data_directory import PartitionLog
from flymq.storage.flusher import Flusher
from flymq.storage.log import Log


class Replication:
    """The leader's part, in one leader epoch."""

    def __init__(
        self,
        name: TopicPartition,
        log: PartitionLog,
        state: PartitionState,
        flusher: Flusher,
        on_advance: Callable[[], None],
        on_caught_up: Callable[[], None] = lambda: None,
        *,
        high_watermark: int,
        now_s: float,
    ) -> None:
        self._name = name
        self._log = log
        self._flusher = flusher
        self._on_advance = on_advance
        self._on_caught_up = on_caught_up
        self._is_on_disk = isinstance(log, Log)
        self._unacknowledged: deque[tuple[int, PromptFuture[None]]] = deque()
        self.followers = Followers(
            state.leader,
            state.replicas,
            state.isr,
            epoch_start=log.end_offset,
            high_watermark=high_watermark,
            now_s=now_s,
        )
        self.state = state
        self.advance()

    @property
    def high_watermark(self) -> int:
        return self.followers.high_watermark

    @property
    def knows_committed(self) -> bool:
        """Whether the high watermark covers all that was there when this broker became the leader."""
        return self.followers.high_watermark >= self.followers.epoch_start

    @property
    def _min_isr(self) -> int:
        return self._log.config.min_insync_replicas

    def check_enough(self) -> None:
        """Raise an error if a record could not be committed: too few replicas are in sync."""
        count = len(self.followers.isr)
        if count < self._min_isr:
            raise NotEnoughReplicas(f"{self._name} has {count} in-sync replicas, and needs {self._min_isr}")

    def appended(self, end_offset: int, acks: Acks) -> Safe:
        """Records up to here are in the log; return when they are acknowledged."""
        flushed = self._flush(end_offset) if self._needs_disk else None
        if not self.followers.are_awaited:  # else it is they that hold the high watermark back
            self.advance()
        if acks is not Acks.ALL:
            # An fsync topic acknowledges nothing before it is on the leader's disk.
            return flushed if self._is_fsync else None
        if self.high_watermark >= end_offset:
            return None
        future: PromptFuture[None] = PromptFuture()
        self._unacknowledged.append((end_offset, future))
        return future

    def committed(self, end_offset: int) -> Safe:
        """Return when everything before this offset is committed."""
        return self.appended(end_offset, Acks.ALL)

    def fetched(self, broker: int, broker_epoch: int, offset: int, durable_offset: int, now_s: float) -> None:
        """A follower has everything before `offset`, and everything before `durable_offset` on its disk."""
        position = durable_offset if self._is_fsync else offset
        self.followers.fetched(broker, broker_epoch, position, self._log.end_offset, now_s)
        self.advance()
        if broker not in self.followers.isr and self.followers.has_caught_up(broker):
            self._on_caught_up()

    def changed(self, state: PartitionState, now_s: float) -> None:
        """The metadata store has a state of the same leader epoch; or the settings of the topic have changed.

        A change of another partition of the topic is none of this one, and does not end its proposal.
        """
        if state != self.state:
            self.state = state
            self.followers.set_replicas(state.replicas, now_s)
            self.followers.set_isr(state.isr)
        if self._needs_disk and isinstance(self._log, Log) and self._log.durable_offset < self._log.end_offset:
            self._flush(self._log.end_offset)
        self.advance()
        if len(state.isr) < self._min_isr:
            count = f"{len(state.isr)} of {self._min_isr} in-sync replicas"
            self.end(NotEnoughReplicasAfterAppend(f"{self._name} was left with {count}; the records may be kept"))

    def advance(self) -> None:
        """Move the high watermark, and acknowledge what it has passed."""
        log = self._log
        own = log.durable_offset if self._needs_disk else log.end_offset
        # What was left out while too few were in sync may be used as a leader, until the store says otherwise.
        if self.state.elr or not self.followers.advance(own, min_isr=self._min_isr):
            return
        waiting = self._unacknowledged
        while waiting and waiting[0][0] <= self.high_watermark:
            waiting.popleft()[1].set_result(None)
        self._on_advance()

    def end(self, error: FlyMQError) -> None:
        """Whether the records that wait are ever committed is not known here."""
        waiting, self._unacknowledged = self._unacknowledged, deque()
        for _, future in waiting:
            future.set_exception(error)

    @property
    def _is_fsync(self) -> bool:
        return self._log.config.persistence is Persistence.FSYNC

    @property
    def _needs_disk(self) -> bool:
        """Whether what this broker has counts only when it is on its disk."""
        return self._is_on_disk and (self.followers.leader_is_alone or self._is_fsync)

    def _flush(self, end_offset: int) -> asyncio.Future[None]:
        assert isinstance(self._log, Log)
        flushed = self._flusher.durable(self._log, end_offset)
        flushed.add_done_callback(self._synced)
        return flushed

    def _synced(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self.advance()
