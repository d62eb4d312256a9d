"""What a log has written that is not yet on the disk, and the way to get it there.

Changes are numbered. A file is unsynced until an fsync that began after its last change has succeeded, however many
run at once. A failed fsync is never retried: the kernel may have dropped the pages and would report success the
second time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock

from flymq.host.disk import Disk, File
from flymq.model.errors import FsyncFailed


@dataclass(slots=True)
class SyncPoint:
    """Once `run` has returned, in whatever thread, everything before `end_offset` is on the disk."""

    end_offset: int
    truncations: int = 0
    """A log that was truncated since has other batches at these offsets."""
    change: int = 0
    """Number of the last change it covers."""
    steps: list[Callable[[], None]] = field(default_factory=list)
    saves_epochs: bool = False
    """Whether it covers the history of leaders, too."""

    def run(self) -> None:
        """Run the steps, once. Afterwards nothing here holds a file open."""
        steps, self.steps = self.steps, []
        for step in steps:
            step()


class Unsynced:
    """The unsynced files and names of one directory."""

    def __init__(self, disk: Disk, directory: Path, on_failure: Callable[[FsyncFailed], None]) -> None:
        self._disk = disk
        self._directory = directory
        self._on_failure = on_failure
        self._failure: FsyncFailed | None = None
        self.is_stopped = False
        self._lock = Lock()  # one fsync at a time: of two at once the kernel reports a failure to only one
        self._files: dict[File, int] = {}
        self._names: int | None = None
        self.change = 0
        """Number of the last change."""

    def note_change(self) -> None:
        self.change += 1

    def note_file(self, file: File) -> None:
        """A file was written to."""
        self.change += 1
        self._files[file] = self.change

    def note_names(self) -> None:
        """A file was created or renamed."""
        self.change += 1
        self._names = self.change

    def forget(self, file: File) -> None:
        """A file is removed, or on the disk already."""
        self._files.pop(file, None)

    def forget_all(self) -> None:
        """The log is closed: nothing needs a sync any more."""
        self._files.clear()

    def begin(self, end_offset: int, truncations: int, replace_file: Callable[[], None] | None = None) -> SyncPoint:
        """Return the work after which everything written so far is on the disk.

        `replace_file` renames a file into the directory; the same fsync of the names covers it.
        """
        steps: list[Callable[[], None]] = [partial(self.fsync, file.sync) for file in self._files]
        if replace_file is not None:
            steps.append(partial(self.fsync, replace_file))
        if self._names is not None or replace_file is not None:
            steps.append(self.sync_names)
        return SyncPoint(end_offset, truncations, self.change, steps)

    def end(self, point: SyncPoint) -> None:
        """The work of `begin` is done."""
        self._files = {file: change for file, change in self._files.items() if change > point.change}
        if self._names is not None and self._names <= point.change:
            self._names = None

    def sync_names(self) -> None:
        self.fsync(partial(self._disk.sync_directory, self._directory))

    def fail(self, failure: FsyncFailed) -> None:
        """Allow no further fsync: one has failed."""
        self._failure = self._failure or failure

    def stop(self) -> None:
        """Let no further fsync begin: the files are about to be removed."""
        self.is_stopped = True

    def wait(self) -> None:
        """Return when none is running."""
        with self._lock:
            pass

    def fsync(self, work: Callable[[], None]) -> None:
        """Do work that ends in an fsync, unless one has failed before. Safe in any thread."""
        with self._lock:
            if self.is_stopped:
                return
            if self._failure is not None:
                raise self._failure
            try:
                work()
            except FsyncFailed as error:
                self.fail(error)
                self._on_failure(error)
                raise
