"""The data directory of a broker: one process at a time, one folder a topic, one folder a partition within.

    <data dir>/lock
    <data dir>/identity, clean                              whose directory it is, and how it was left (identity.py)
    <data dir>/topics/<topic>~<topic id>/topic              the topic's note (topic_note.py)
    <data dir>/topics/<topic>~<topic id>/<partition>/…

The id distinguishes a topic from a deleted one of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from flymq.host.disk import Disk
from flymq.model.delivery import Persistence
from flymq.model.errors import PartitionMissing
from flymq.model.names import TopicPartition
from flymq.model.topic_config import TopicConfig
from flymq.storage.headroom import WriteGate
from flymq.storage.log import Log
from flymq.storage.memory_log import MemoryLog
from flymq.storage.recovery.open_log import open_log
from flymq.storage.segments.segment import DATA_SUFFIX
from flymq.storage.topic_note import TopicNote, read_topic_note, remove_topic_note, write_topic_note

PartitionLog = Log | MemoryLog

_TOPIC_SHOWN_MAX = 255 - len("~") - 32


@dataclass(frozen=True, slots=True)
class TopicFolder:
    """What lies in the folder of a topic."""

    name: str
    note: TopicNote | None
    partitions: list[int]
    """Those with records, or with room for them."""
    log_bytes: int


class DataDirectory:
    """Opens and removes logs, under a lock that only one process can hold."""

    def __init__(self, disk: Disk, path: Path, gate_of: Callable[[str], WriteGate] = lambda topic: WriteGate()) -> None:
        """`gate_of` returns the gate of the logs of a topic (headroom.py)."""
        self._disk = disk
        self.gate_of = gate_of
        self._topics = path / "topics"
        disk.make_directory(self._topics)
        self._lock = disk.lock(path / "lock")
        self.made: dict[UUID, Collection[int]] = {}
        """Partitions that were created here before, by topic id: if one has no files, they are lost."""

    def open(self, partition: TopicPartition, topic_id: UUID, config: TopicConfig) -> PartitionLog:
        """Open the log of a partition, or create it; raise `PartitionMissing` if it was created before and is gone."""
        if config.persistence is Persistence.MEMORY:
            return MemoryLog(str(partition), config)
        path = self.path_of(partition, topic_id)
        if partition.partition in self.made.get(topic_id, ()) and not self.has_files(partition, topic_id):
            raise PartitionMissing(f"the files of {partition} are gone from {path}")
        log = open_log(self._disk, path, config)
        log.gate = self.gate_of(partition.topic)
        return log

    def path_of(self, partition: TopicPartition, topic_id: UUID) -> Path:
        """Return the directory of a partition."""
        return self._folder(partition.topic, topic_id) / str(partition.partition)

    def has_files(self, partition: TopicPartition, topic_id: UUID) -> bool:
        return bool(self._disk.list(self.path_of(partition, topic_id)))

    def removal(self, topic: str, topic_id: UUID, opened: Sequence[PartitionLog] = ()) -> Callable[[], None]:
        """Return the work that removes a topic's logs, to run in a thread. It is safe to repeat.

        `opened` are those that were in use. The last close of a removed file waits until the disk has freed it, about a
        millisecond for each megabyte: that must not happen on the event loop.
        """
        folder = self._folder(topic, topic_id)
        self.made.pop(topic_id, None)

        def remove() -> None:
            for log in opened:
                if isinstance(log, Log):
                    log.retire()
                    log.wait_for_syncs()
            remove_topic_note(self._disk, folder)
            self._disk.remove_directory(folder)
            self._disk.sync_directory(self._topics)  # before the metadata forgets that the topic was deleted
            for log in opened:
                log.release_files()

        return remove

    def partition_removal(self, partition: TopicPartition, topic_id: UUID, opened: PartitionLog) -> Callable[[], None]:
        """Return the work that removes the log of one partition, to run in a thread."""
        path = self.path_of(partition, topic_id)
        if topic_id in self.made:
            self.made[topic_id] = frozenset(self.made[topic_id]) - {partition.partition}

        def remove() -> None:
            if isinstance(opened, Log):
                opened.retire()
                opened.wait_for_syncs()
            self._disk.remove_directory(path)
            self._disk.sync_directory(path.parent)
            opened.release_files()

        return remove

    def read_note(self, topic: str, topic_id: UUID) -> TopicNote | None:
        return read_topic_note(self._disk, self._folder(topic, topic_id))

    def write_note(self, note: TopicNote) -> None:
        """Write the note of a topic whose folder is there."""
        write_topic_note(self._disk, self._folder(note.name, note.topic_id), note)

    def examine(self, folder: str) -> TopicFolder:
        """Look into the folder of a topic."""
        path = self._topics / folder
        partitions, log_bytes = [], 0
        for name in self._disk.list(path):
            if not name.isdigit():
                continue
            segments = [each for each in self._disk.list(path / name) if each.endswith(DATA_SUFFIX)]
            if segments:
                partitions.append(int(name))
            log_bytes += sum(self._disk.size(path / name / each) for each in segments)
        return TopicFolder(folder, read_topic_note(self._disk, path), sorted(partitions), log_bytes)

    def folders(self) -> list[str]:
        """Names of the topic folders that are there."""
        return self._disk.list(self._topics)

    def folder_name(self, topic: str, topic_id: UUID) -> str:
        """The id makes it unique; a long topic name is cut to fit into a file name."""
        return f"{topic[:_TOPIC_SHOWN_MAX]}~{topic_id.hex}"

    def close(self) -> None:
        self._lock.release()

    def _folder(self, topic: str, topic_id: UUID) -> Path:
        return self._topics / self.folder_name(topic, topic_id)
