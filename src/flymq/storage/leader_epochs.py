"""Which leader wrote what: leader epoch → its first offset. Followers compare these histories to find where they part.

leader-epochs    a note (recovery/checksummed_note.py): [[epoch, start offset], …], ascending
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path

from flymq.host.disk import Disk, replace_file
from flymq.model.errors import CorruptLog
from flymq.storage.recovery.checksummed_note import encode_note, read_note

FILE_NAME = "leader-epochs"

Entry = tuple[int, int]
"""Leader epoch and the first offset it may have written."""


def open_epochs(disk: Disk, directory: Path) -> LeaderEpochs:
    """Read the history of a partition on disk; every change is durable as soon as the call returns."""
    path = directory / FILE_NAME
    entries = read_note(disk, path, list[Entry])
    if entries is None and disk.exists(path):
        raise CorruptLog(f"{path}: none of its lines is whole")
    return LeaderEpochs(entries or [], lambda changed: replace_file(disk, path, encode_note(changed)))


class LeaderEpochs:
    """The history of leaders of one partition."""

    def __init__(self, entries: Iterable[Entry] = (), save: Callable[[list[Entry]], None] = lambda _: None) -> None:
        self._entries = list(entries)
        self._save = save

    @property
    def entries(self) -> list[Entry]:
        return list(self._entries)

    @property
    def current(self) -> int:
        """The latest epoch; -1 before the first."""
        return self._entries[-1][0] if self._entries else -1

    def begin(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` writes from `start_offset` on. Noted at election, even when no record ever follows."""
        if epoch <= self.current:
            return
        # An epoch that wrote nothing keeps its entry: a follower may ask where it ended.
        self._replace([*self._entries, (epoch, start_offset)])

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int] | None:
        """Return (largest known epoch at most `epoch`, offset where it ended); None when all known ones are later."""
        at = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if at == 0:
            return None
        end = self._entries[at][1] if at < len(self._entries) else log_end
        return self._entries[at - 1][0], end

    def epoch_of(self, offset: int) -> int:
        """Return the epoch that wrote `offset`; -1 when it is older than the history."""
        at = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[at - 1][0] if at else -1

    def cut_end(self, end_offset: int) -> None:
        """Forget epochs that began at or behind `end_offset`: their records were truncated."""
        self._replace([entry for entry in self._entries if entry[1] < end_offset])

    def cut_start(self, start_offset: int) -> None:
        """Forget epochs that ended at or before `start_offset`; the one that reaches over it begins there."""
        at = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
        kept = self._entries[at:]
        if at:
            kept.insert(0, (self._entries[at - 1][0], start_offset))
        self._replace(kept)

    def _replace(self, entries: list[Entry]) -> None:
        if entries != self._entries:
            self._save(entries)
            self._entries = entries
