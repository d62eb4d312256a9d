"""The follower's side of copying: positions to send to a leader, and what its answers do to the logs here.

One `Following` for each leader that this broker follows. It decides and applies; replicator.py sends and receives.

    ask     the positions that have changed since the last question
    take    append batches as they are, note the high watermark; return what takes longer: to truncate where the leader
            has other records, to start again or to delete where it has deleted
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replica_sessions import NO_EPOCH, Position, ReplicaId
from flymq.model.errors import FlyMQError, OffsetOutOfRange, ResourcesExhausted, StorageError
from flymq.record.header import Buffer

logger = logging.getLogger(__name__)

_POSITIONS_MAX = 1_000
"""In one question, so that the leader serves others in between."""


@dataclass(slots=True)
class Question:
    """What is sent to a leader."""

    positions: list[tuple[ReplicaId, Position]]
    forgotten: list[ReplicaId]


@dataclass(slots=True)
class Answer:
    """News of one partition."""

    replica: ReplicaId
    batches: Buffer = b""
    high_watermark: int = -1
    start_offset: int = -1
    diverging: tuple[int, int] | None = None
    error: FlyMQError | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A change of a log that waits for the disk. Until `release` the partition is not copied."""

    replica: ReplicaId
    partition: Partition
    run: Callable[[], None]
    """For a thread."""


@dataclass(slots=True)
class Taken:
    """What the answers of a leader have led to."""

    written: list[tuple[ReplicaId, Partition, int]] = field(default_factory=list)
    """They got records of so many bytes."""
    rewrites: list[Rewrite] = field(default_factory=list)
    trims: list[tuple[Partition, int]] = field(default_factory=list)
    """The leader has deleted the records before this offset."""
    broken: list[ReplicaId] = field(default_factory=list)
    """Their logs have failed here: they are not copied any more."""


@dataclass(slots=True)
class Following:
    """The partitions that this broker copies from one leader."""

    _partitions: dict[ReplicaId, Partition] = field(default_factory=dict)
    _changed: dict[ReplicaId, None] = field(default_factory=dict)
    _forgotten: dict[ReplicaId, None] = field(default_factory=dict)
    _sent: dict[ReplicaId, Position] = field(default_factory=dict)
    _failed: dict[ReplicaId, None] = field(default_factory=dict)
    _held: dict[ReplicaId, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, replica: ReplicaId) -> bool:
        return replica in self._partitions

    def add(self, topic_id: bytes, partition: Partition) -> None:
        """Copy this partition from the leader."""
        replica = topic_id, partition.name.partition
        self._partitions[replica] = partition
        self._forgotten.pop(replica, None)
        self.note_change(replica)

    def remove(self, replica: ReplicaId) -> None:
        """Copy it no more."""
        if self._partitions.pop(replica, None) is not None:
            self._changed.pop(replica, None)
            self._failed.pop(replica, None)
            if self._sent.pop(replica, None) is not None:
                self._forgotten[replica] = None

    def forget_session(self) -> None:
        """The leader does not know the session: everything is sent again."""
        self._sent.clear()
        self._forgotten.clear()
        self._failed.clear()
        self._changed = {replica: None for replica in self._partitions if replica not in self._held}

    def note_change(self, replica: ReplicaId) -> None:
        """Send the position of a partition again: more of it is on the disk, say."""
        if replica in self._partitions and replica not in self._held:
            self._changed[replica] = None

    def hold(self, replica: ReplicaId) -> None:
        """Send no position until `release`: so the leader sends nothing more of this partition."""
        self._held[replica] = None
        self._changed.pop(replica, None)

    def release(self, replica: ReplicaId) -> None:
        self._held.pop(replica, None)
        self.note_change(replica)

    @property
    def has_changes(self) -> bool:
        return bool(self._changed or self._forgotten)

    @property
    def has_failed(self) -> bool:
        """Whether the leader has refused partitions: its metadata, or that of this broker, is behind."""
        return bool(self._failed)

    def try_failed_again(self) -> None:
        failed, self._failed = self._failed, {}
        for replica in failed:
            if replica not in self._held:  # else it is sent when it is released
                self._sent.pop(replica, None)
                self.note_change(replica)

    def ask(self) -> Question:
        """Return what has changed since the last question, as much as fits into one."""
        positions: list[tuple[ReplicaId, Position]] = []
        while self._changed and len(positions) < _POSITIONS_MAX:
            replica = next(iter(self._changed))
            del self._changed[replica]
            position = _position(self._partitions[replica])
            if self._sent.get(replica) != position:
                self._sent[replica] = position
                positions.append((replica, position))
        question = Question(positions, list(self._forgotten))
        self._forgotten = {}
        return question

    def take(self, answers: Iterable[Answer]) -> Taken:
        """Apply what a leader has answered."""
        taken = Taken()
        for answer in answers:
            partition = self._partitions.get(answer.replica)
            sent = self._sent.get(answer.replica)
            if partition is None or sent is None or partition.leader_epoch != sent.leader_epoch or partition.leads:
                continue  # meanwhile another broker leads
            try:
                self._take(partition, answer, taken)
            except ResourcesExhausted as error:
                self._refused(partition, answer.replica, error)
            except StorageError as error:
                logger.error("%s cannot be copied any more: %s", partition.name, error.message)
                self.remove(answer.replica)
                taken.broken.append(answer.replica)
            except FlyMQError as error:
                self._refused(partition, answer.replica, error)
        return taken

    def _refused(self, partition: Partition, replica: ReplicaId, error: FlyMQError) -> None:
        """It is tried again in a while: the leader cannot serve it now, or the disk here is full."""
        logger.debug("%s is not copied now: %s", partition.name, error.message)
        self._failed[replica] = None

    def _take(self, partition: Partition, answer: Answer, taken: Taken) -> None:
        if partition.is_rewritten:
            return
        if (rewrite := _rewrite(partition, answer)) is not None:
            del self._sent[answer.replica]
            self.hold(answer.replica)
            taken.rewrites.append(Rewrite(answer.replica, partition, rewrite))
            return
        if answer.error is not None:
            self._refused(partition, answer.replica, answer.error)
            return
        if answer.batches:
            partition.append_as_follower(answer.batches, leader_epoch=partition.leader_epoch)
            del self._sent[answer.replica]  # the leader waits for a position, even if it is the same
            self.note_change(answer.replica)
            taken.written.append((answer.replica, partition, len(answer.batches)))
        if answer.high_watermark >= 0:
            partition.set_high_watermark(answer.high_watermark)
        if partition.start_offset < answer.start_offset <= partition.log.end_offset:
            taken.trims.append((partition, answer.start_offset))


def _position(partition: Partition) -> Position:
    log = partition.log
    end_offset = log.end_offset
    last_epoch = log.epochs.epoch_of(end_offset - 1) if end_offset > log.start_offset else NO_EPOCH
    return Position(partition.leader_epoch, end_offset, last_epoch, log.durable_offset)


def _rewrite(partition: Partition, answer: Answer) -> Callable[[], None] | None:
    """Return how the log has to be changed before it can be copied on."""
    log = partition.log
    if isinstance(answer.error, OffsetOutOfRange) and answer.start_offset > log.end_offset:
        return partial(log.restart_at, answer.start_offset)  # the leader has deleted what comes next
    if answer.diverging is None:
        return None
    epoch, end_offset = answer.diverging
    own = log.epochs.end_of(epoch, log.end_offset) if epoch != NO_EPOCH else None
    # After the end of the last epoch that both have, on either side.
    return partial(log.truncate, max(log.start_offset, end_offset if own is None else min(end_offset, own[1])))
