"""The data directory of a broker: one process at a time, one folder a topic, one folder a partition within.

    <data dir>/lock
    <data dir>/topics/<topic>~<topic id>/<partition>/…

The id keeps a topic apart from one of the same name that was deleted before.
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
    """Opens and removes logs, under a lock that no second process gets."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._topics = path / "topics"
        disk.make_directory(self._topics)
        self._lock = disk.lock(path / "lock")

    def open(self, partition: TopicPartition, topic_id: UUID, config: TopicConfig) -> PartitionLog:
        """Open the log of a partition, or begin it."""
        if config.persistence is Persistence.MEMORY:
            return MemoryLog(str(partition), config)
        folder = self._folder(partition.topic, topic_id)
        return open_log(self._disk, folder / str(partition.partition), config)

    def removal(self, topic: str, topic_id: UUID, opened: Sequence[PartitionLog] = ()) -> Callable[[], None]:
        """Return the work that removes a topic's logs, to run in a thread. To repeat it is harmless.

        `opened` are those that were in use. Who is the last to close a file that has no name any more waits until the
        disk has freed it, about a millisecond for each megabyte: that must not be the event loop.
        """
        folder = self._folder(topic, topic_id)

        def remove() -> None:
            self._disk.remove_directory(folder)
            for log in opened:
                log.let_go()

        return remove

    def folders(self) -> list[str]:
        """Names of the topic folders that are there."""
        return self._disk.list(self._topics)

    def folder_name(self, topic: str, topic_id: UUID) -> str:
        """The id makes it unique; of a long name only so much is shown as a directory's name has room for."""
        return f"{topic[:_TOPIC_SHOWN_MAX]}~{topic_id.hex}"

    def close(self) -> None:
        self._lock.release()

    def _folder(self, topic: str, topic_id: UUID) -> Path:
        return self._topics / self.folder_name(topic, topic_id)
