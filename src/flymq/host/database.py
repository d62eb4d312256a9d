"""SQLite on a disk: a real file, or an image of the database on a simulated disk."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flymq.host.disk import PRIVATE_FILE, replace_file

if TYPE_CHECKING:
    from flymq.host.simulated_disk import SimulatedDisk


class Database(Protocol):
    """A SQLite database used by this process only."""

    connection: sqlite3.Connection
    """For everything but COMMIT and closing. It begins no transaction implicitly."""

    def allow_changes(self) -> None:
        """Prepare for the first change: until then the file is not modified."""

    def commit(self) -> None:
        """Commit; the change is durable when this returns. After an error it is not made: roll back."""

    def close(self) -> None: ...


class SystemDatabase:
    """A file that SQLite reads and writes itself; a commit is an fsync."""

    def __init__(self, path: Path) -> None:
        with contextlib.suppress(
            OSError
        ):  # SQLite reports what is wrong with the path; its other files follow this one
            path.touch(PRIVATE_FILE)
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        # Exclusive: a second process is refused, and SQLite needs no shared memory. Must be set first.
        self.connection.execute("PRAGMA locking_mode = EXCLUSIVE")

    def allow_changes(self) -> None:
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")

    def commit(self) -> None:
        self.connection.execute("COMMIT")

    def close(self) -> None:
        self.connection.close()


class SimulatedDatabase:
    """A database in memory, whose image is written to a simulated disk with every commit, atomically."""

    def __init__(self, disk: SimulatedDisk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        if disk.exists(path):
            # By a copy: `serialize` of a database that was itself deserialized lacks the open transaction.
            with contextlib.closing(sqlite3.connect(":memory:")) as found:
                found.deserialize(disk.read(path))
                found.backup(self.connection)
        self._changes_on_disk = 0

    def allow_changes(self) -> None:
        pass

    def commit(self) -> None:
        if self.connection.total_changes != self._changes_on_disk:
            self._changes_on_disk = self.connection.total_changes  # or rolled back, if the next line fails
            replace_file(self._disk, self._path, self.connection.serialize())
        self.connection.execute("COMMIT")

    def close(self) -> None:
        self.connection.close()
