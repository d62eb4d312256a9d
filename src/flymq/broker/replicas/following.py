"""The follower's side of copying: positions to send to a leader, and what its answers do to the logs here.

One `Following` for each leader that this broker follows. It decides and applies; replicator.py sends and receives.

    ask     the positions that have changed since the last question
    take    append batches as they are, truncate where the leader has other records, note the high watermark
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replica_sessions import NO_EPOCH, Position
from flymq.model.errors import FlyMQError, OffsetOutOfRange
from flymq.model.names import TopicPartition
from flymq.record.header import Buffer
from flymq.storage.log import Log

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Question:
    """What is sent to a leader."""

    positions: list[tuple[TopicPartition, Position]]
    forgotten: list[TopicPartition]


@dataclass(slots=True)
class Answer:
    """News of one partition."""

    name: TopicPartition
    batches: Buffer = b""
    high_watermark: int = -1
    start_offset: int = -1
    diverging: tuple[int, int] | None = None
    error: FlyMQError | None = None


@dataclass(slots=True)
class Following:
    """The partitions that this broker copies from one leader."""

    _partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    _changed: dict[TopicPartition, None] = field(default_factory=dict)
    _forgotten: dict[TopicPartition, None] = field(default_factory=dict)
    _sent: dict[TopicPartition, Position] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._partitions

    def add(self, partition: Partition) -> None:
        """Copy this partition from the leader."""
        self._partitions[partition.name] = partition
        self._changed[partition.name] = None
        self._forgotten.pop(partition.name, None)

    def remove(self, name: TopicPartition) -> None:
        """Copy it no more."""
        if self._partitions.pop(name, None) is not None:
            self._changed.pop(name, None)
            if self._sent.pop(name, None) is not None:
                self._forgotten[name] = None

    def forget_session(self) -> None:
        """The leader does not know the session: everything is sent again."""
        self._sent.clear()
        self._forgotten.clear()
        self._changed = dict.fromkeys(self._partitions)

    def note_durable(self, name: TopicPartition) -> None:
        """More of a partition is on the disk, which the leader of an `fsync` topic waits for."""
        if name in self._partitions:
            self._changed[name] = None

    @property
    def has_changes(self) -> bool:
        return bool(self._changed or self._forgotten)

    def ask(self) -> Question:
        """Return what has changed since the last question."""
        positions = []
        for name in self._changed:
            position = _position(self._partitions[name])
            if self._sent.get(name) != position:
                self._sent[name] = position
                positions.append((name, position))
        question = Question(positions, list(self._forgotten))
        self._changed, self._forgotten = {}, {}
        return question

    def take(self, answers: Iterable[Answer]) -> list[TopicPartition]:
        """Apply what a leader has answered; return the partitions that got records."""
        written = []
        for answer in answers:
            partition = self._partitions.get(answer.name)
            sent = self._sent.get(answer.name)
            if partition is None or sent is None or partition.leader_epoch != sent.leader_epoch or partition.leads:
                continue  # meanwhile another broker leads
            try:
                if self._take(partition, answer):
                    written.append(answer.name)
            except FlyMQError as error:
                logger.warning("%s cannot be copied: %s", answer.name, error.message)
                self.remove(answer.name)
        return written

    def _take(self, partition: Partition, answer: Answer) -> bool:
        if answer.error is not None:
            if not isinstance(answer.error, OffsetOutOfRange):
                raise answer.error
            _start_again(partition, answer.start_offset)
        elif answer.diverging is not None:
            _truncate(partition, *answer.diverging)
        elif answer.batches:
            partition.append_as_follower(answer.batches, leader_epoch=partition.leader_epoch)
        if answer.high_watermark >= 0:
            partition.set_high_watermark(answer.high_watermark)
        self._changed[partition.name] = None
        return bool(answer.batches)


def _position(partition: Partition) -> Position:
    log = partition.log
    end_offset = log.end_offset
    last_epoch = log.epochs.epoch_of(end_offset - 1) if end_offset > log.start_offset else NO_EPOCH
    return Position(partition.leader_epoch, end_offset, last_epoch, log.durable_offset)


def _truncate(partition: Partition, epoch: int, end_offset: int) -> None:
    """Drop what the leader does not have: after the end of the last epoch that both have, on either side."""
    log = partition.log
    assert isinstance(log, Log)
    own = log.epochs.end_of(epoch, log.end_offset) if epoch != NO_EPOCH else None
    log.truncate(max(log.start_offset, min(end_offset, end_offset if own is None else own[1])))


def _start_again(partition: Partition, start_offset: int) -> None:
    """The leader has deleted what comes next here: go on where it starts."""
    log = partition.log
    assert isinstance(log, Log)
    log.restart_at(start_offset)
