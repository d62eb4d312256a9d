"""The data directory of a broker: one process at a time, one folder a topic, one folder a partition within.

    <data dir>/lock
    <data dir>/topics/<topic>~<topic id>/<partition>/…

The id distinguishes a topic from a deleted one of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from flymq.host.disk import Disk
from flymq.model.delivery import Persistence
from flymq.model.names import TopicPartition
from flymq.model.topic_config import TopicConfig
from flymq.storage.log import Log
from flymq.storage.memory_log import MemoryLog
from flymq.storage.recovery.open_log import open_log

PartitionLog = Log | MemoryLog

_TOPIC_SHOWN_MAX = 255 - len("~") - 32


class DataDirectory:
    """Opens and removes logs, under a lock that only one process can hold."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._topics = path / "topics"
        disk.make_directory(self._topics)
        self._lock = disk.lock(path / "lock")

    def open(self, partition: TopicPartition, topic_id: UUID, config: TopicConfig) -> PartitionLog:
        """Open the log of a partition, or create it."""
        if config.persistence is Persistence.MEMORY:
            return MemoryLog(str(partition), config)
        return open_log(self._disk, self.path_of(partition, topic_id), config)

    def path_of(self, partition: TopicPartition, topic_id: UUID) -> Path:
        """Return the directory of a partition."""
        return self._folder(partition.topic, topic_id) / str(partition.partition)

    def removal(self, topic: str, topic_id: UUID, opened: Sequence[PartitionLog] = ()) -> Callable[[], None]:
        """Return the work that removes a topic's logs, to run in a thread. It is safe to repeat.

        `opened` are those that were in use. The last close of a removed file waits until the disk has freed it, about a
        millisecond for each megabyte: that must not happen on the event loop.
        """
        folder = self._folder(topic, topic_id)

        def remove() -> None:
            self._disk.remove_directory(folder)
            for log in opened:
                log.release_files()

        return remove

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
