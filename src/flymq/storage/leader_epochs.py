"""Which leader wrote what: leader epoch → its first offset. Replicas compare these histories to see where they diverge.

leader-epochs    a note (recovery/checksummed_note.py): [[epoch, start offset], …], ascending

Every batch header carries the epoch of the leader that wrote it, so the file is needed only for epochs that wrote
nothing, and to save a walk through all headers at opening. It is written in sync rounds, in a thread, and always before
a checkpoint that covers the same batches. So at opening the file has the history before the checkpoint, and the
headers after the checkpoint have the rest (`LeaderEpochs.observe`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from flymq.host.disk import Disk, rename_synced
from flymq.model.errors import CorruptLog
from flymq.record.header import BatchHeader
from flymq.storage.recovery.checksummed_note import encode_note, read_note
from flymq.storage.segments.segment import Segment

FILE_NAME = "leader-epochs"

EpochStart = tuple[int, int]
"""Leader epoch and the first offset it may have written."""


@dataclass(slots=True)
class EpochRun:
    """Consecutive batches of one leader."""

    epoch: int
    start_offset: int
    """Where the batch before them ends: the epoch may have begun here, even when compaction left a gap."""
    first_offset: int
    end_offset: int


class EpochRuns:
    """Collects runs from the headers of a scan."""

    def __init__(self) -> None:
        self.runs: list[EpochRun] = []

    def add(self, header: BatchHeader, end_before: int) -> None:
        """Add the next header; `end_before` is where the batch before the first one ends."""
        if self.runs and self.runs[-1].epoch == header.leader_epoch:
            self.runs[-1].end_offset = header.next_offset
            return
        start_offset = self.runs[-1].end_offset if self.runs else end_before
        self.runs.append(EpochRun(header.leader_epoch, start_offset, header.base_offset, header.next_offset))


class LeaderEpochs:
    """The history of leaders of one partition, in memory."""

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._replace(list(starts))

    @property
    def starts(self) -> list[EpochStart]:
        return list(self._starts)

    def begin(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` writes from `start_offset` on. Noted at election, even when no record ever follows."""
        assert epoch > self.current, f"leader epoch {epoch} does not follow {self.current}"
        # An epoch that wrote nothing is kept: a follower may ask where it ended.
        self._replace([*self._starts, (epoch, start_offset)])

    def observe(self, run: EpochRun) -> None:
        """Make the history agree with batches that are in the log. Epochs that contradict them are dropped.

        That is, in a file from before a truncation, an epoch whose batches are gone; and on a follower that catches up,
        an epoch that was noted at its election before the batches of earlier epochs had arrived.
        """
        kept = [
            start
            for start in self._starts
            if (start[1] >= run.end_offset if start[0] > run.epoch else start[1] <= run.first_offset)
        ]
        at = bisect_right(kept, run.epoch, key=lambda start: start[0])
        if run.epoch >= 0 and (at == 0 or kept[at - 1][0] != run.epoch):
            start_offset = max(run.start_offset, kept[at - 1][1]) if at else run.start_offset
            kept.insert(at, (run.epoch, start_offset))
        self._replace(kept)

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int] | None:
        """Return (largest known epoch at most `epoch`, offset where it ended); None when all known ones are later."""
        at = bisect_right(self._starts, epoch, key=lambda start: start[0])
        if at == 0:
            return None
        end = self._starts[at][1] if at < len(self._starts) else log_end
        return self._starts[at - 1][0], end

    def epoch_of(self, offset: int) -> int:
        """Return the epoch that wrote `offset`; -1 when it is older than the history."""
        at = bisect_right(self._starts, offset, key=lambda start: start[1])
        return self._starts[at - 1][0] if at else -1

    def cut_end(self, end_offset: int) -> None:
        """Forget epochs that began at or after `end_offset`: their records were truncated."""
        self._replace([start for start in self._starts if start[1] < end_offset])

    def cut_start(self, start_offset: int) -> None:
        """Forget epochs whose records all lie before `start_offset`; the one that spans it begins there."""
        at = bisect_left(self._starts, start_offset, key=lambda start: start[1])
        kept = self._starts[at:]
        if at and (not kept or kept[0][1] > start_offset):
            kept.insert(0, (self._starts[at - 1][0], start_offset))
        self._replace(kept)

    def _replace(self, starts: list[EpochStart]) -> None:
        assert _is_ascending(starts), f"leader epochs do not ascend: {starts}"
        self._starts = starts
        self.current = starts[-1][0] if starts else -1
        """The latest epoch; -1 before the first. A plain field: every append looks at it."""


class EpochsFile:
    """The file of a history: what of it is not saved yet. Changes are numbered as in sync_point.py."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._path = directory / FILE_NAME
        self._unsaved: int | None = None
        self._required: int | None = None
        self._written = 0

    @property
    def is_unsaved(self) -> bool:
        """Whether a checkpoint must save it first."""
        return self._unsaved is not None

    @property
    def is_required(self) -> bool:
        """Whether the next sync must save it: some epoch is in no header."""
        return self._required is not None

    def note_change(self, change: int, *, is_in_headers: bool) -> None:
        """The history has changed."""
        self._unsaved = change
        if not is_in_headers:
            self._required = change

    def write(self, change: int, starts: list[EpochStart]) -> None:
        """Write the history as of `change`; durable once the directory is synced. In any thread, one at a time."""
        if change >= self._written:  # else a later round was faster
            rename_synced(self._disk, self._path, encode_note(starts))
            self._written = change

    def end(self, change: int) -> None:
        """The history as of `change` is on the disk."""
        if self._unsaved is not None and self._unsaved <= change:
            self._unsaved = None
        if self._required is not None and self._required <= change:
            self._required = None


def read_epochs(disk: Disk, directory: Path) -> list[EpochStart] | None:
    """Return the epochs in the file; None when it is missing or damaged."""
    starts = read_note(disk, directory / FILE_NAME, list[EpochStart])
    return starts if starts is not None and _is_ascending(starts) else None


def walk_epochs(segments: Iterable[Segment]) -> list[EpochRun]:
    """Return the runs of whole segments, from their headers alone."""
    runs = EpochRuns()
    for segment in segments:
        with suppress(CorruptLog):  # reading that batch reports it; the epochs around it are still right
            for _, header in segment.walk(0, segment.size):
                runs.add(header, segment.base_offset)
    return runs.runs


def _is_ascending(starts: list[EpochStart]) -> bool:
    return all(before[0] < start[0] and before[1] <= start[1] for before, start in pairwise(starts))
