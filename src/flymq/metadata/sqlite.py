"""The metadata store of a single broker: one SQLite file, `metadata.db`, used by this process only.

The file holds the current key-values and the latest revision. A txn is one SQLite transaction, in WAL mode with
`synchronous=FULL`: when `txn` returns, its change is on disk and survives a kill or a power failure. The history of
changes is kept in memory only (see history.py): watchers belong to this process, and start by reading everything.

Calls run on the event loop and never yield to it. A txn takes about as long as one fsync, and metadata changes when a
topic is created or altered, not when messages flow; a thread would add a hop to each call, and if the caller were
cancelled meanwhile, the change would be made without anyone knowing.

A lease belongs to the process. Keys left behind by a killed broker are deleted when the file is opened again.

SQLite checks its structure, not its contents; so each row has a checksum over its fields, and a flipped bit is an
error, not a wrong leader.
"""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from flymq.host.database import Database
from flymq.host.disk import Disk
from flymq.metadata.history import History, only_under
from flymq.metadata.store import (
    NO_LEASE,
    Compare,
    Delete,
    DeletePrefix,
    Event,
    EventBatch,
    Get,
    KeyValue,
    Op,
    Put,
    Snapshot,
    TxnResult,
    check_txn,
    key_bounds,
)
from flymq.model.errors import (
    CorruptMetadata,
    DirectoryLocked,
    DiskFull,
    DiskPermissionDenied,
    FlyMQError,
    FsyncFailed,
    MetadataTooNew,
    MetadataUnavailable,
    SessionEnded,
)

FORMAT_VERSION = 1
APPLICATION_ID = 0x464C594D  # "FLYM"; `file` and the SQLite tools show it
FIRST_REVISION = 1  # of an empty store, as in etcd: 0 is the revision of absent keys

_SCHEMA = f"""
CREATE TABLE entries (
    key BLOB PRIMARY KEY,
    value BLOB NOT NULL,
    create_revision INTEGER NOT NULL,
    mod_revision INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE latest (revision INTEGER NOT NULL);
INSERT INTO latest VALUES ({FIRST_REVISION});
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT_VERSION};
"""
_COLUMNS = "key, value, create_revision, mod_revision, lease, checksum"

_Row = tuple[bytes, bytes, int, int, int, int]


class SqliteMetadataStore:
    """A `MetadataStore` in one file."""

    def __init__(self, database: Database, name: str, revision: int, *, history_bytes_max: int) -> None:
        self._database = database
        self._connection = database.connection
        self._name = name
        self._revision = revision
        self._history = History(revision + 1, bytes_max=history_bytes_max)
        self._changed = asyncio.Event()
        self._sessions: dict[int, SqliteSession] = {}
        self._leases = count(NO_LEASE + 1)
        self._is_closed = False

    @classmethod
    def open(cls, disk: Disk, path: Path, *, history_bytes_max: int = 8 << 20) -> SqliteMetadataStore:
        """Open the file, creating it if needed; raise an error if it is unusable. Its directory must exist."""
        name = str(path)
        with _named_errors(name):
            database = disk.open_database(path)
        try:
            with _named_errors(name):
                _prepare(database, name)
                revision = _latest_revision(database.connection, name)
            store = cls(database, name, revision, history_bytes_max=history_bytes_max)
            store._delete_leased(lease=None)
        except BaseException:
            database.close()
            raise
        return store

    async def txn(
        self, compares: Sequence[Compare] = (), success: Sequence[Op] = (), failure: Sequence[Op] = ()
    ) -> TxnResult:
        check_txn(compares, success, failure)
        events: dict[str, Event] = {}
        with self._transaction(events):
            succeeded = all(compare.holds(self._read(compare.key)) for compare in compares)
            found = tuple(self._run(success if succeeded else failure, events))
        return TxnResult(succeeded, self._revision, found)

    async def range(self, prefix: str) -> Snapshot:
        self._check_open()
        with _named_errors(self._name):
            return Snapshot(self._revision, tuple(self._read_under(prefix)))

    async def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        next_revision = from_revision
        while not self._is_closed:
            changed = self._changed  # taken before reading, so that a change during the read wakes us too
            for batch in self._history.since(next_revision):
                next_revision = batch.revision + 1
                if (seen := only_under(prefix, batch)) is not None:
                    yield seen
            await changed.wait()

    async def session(self, ttl_s: int) -> SqliteSession:
        """Open a session. `ttl_s` has no effect here, since the owner is this process."""
        self._check_open()
        session = SqliteSession(self, next(self._leases))
        self._sessions[session.lease] = session
        return session

    def end_session(self, lease: int) -> None:
        """Delete the keys of a session, then the session; if the disk fails, the session stays open."""
        self._delete_leased(lease)
        self._sessions.pop(lease).mark_ended()

    async def close(self) -> None:
        """Close the file. Keys of open sessions are deleted at the next start: closing must work on a full disk."""
        self._is_closed = True
        self._changed.set()
        for session in self._sessions.values():
            session.mark_ended()
        with _named_errors(self._name):
            self._database.close()

    # --- inside ---

    def _check_open(self) -> None:
        if self._is_closed:
            raise MetadataUnavailable("the metadata store is closed")

    @contextmanager
    def _transaction(self, events: dict[str, Event]) -> Iterator[None]:
        """Commit the changes of the block, if there are any, as the next revision; then notify the watchers.

        The block adds its changes to `events`.
        """
        self._check_open()
        connection, revision = self._connection, self._revision + 1
        try:
            with _named_errors(self._name):
                connection.execute("BEGIN IMMEDIATE")
                yield
                if events:
                    connection.execute("UPDATE latest SET revision = ?", (revision,))
                self._database.commit()
        except BaseException:
            if connection.in_transaction:
                with suppress(sqlite3.Error):  # may fail too; the first error is reported
                    connection.execute("ROLLBACK")
            raise
        if events:
            self._revision = revision
            self._history.append(EventBatch(revision, tuple(events.values())))
            self._changed.set()
            self._changed = asyncio.Event()

    def _run(self, ops: Sequence[Op], events: dict[str, Event]) -> Iterator[KeyValue | None]:
        """Run the operations in order; yield the result of each `Get`."""
        for op in ops:
            match op:
                case Get(key):
                    yield self._read(key)
                case Put():
                    events[op.key] = Event(op.key, self._write(op))
                case Delete(key):
                    self._delete((key.encode(),), "key = ?", events)
                case DeletePrefix(prefix):
                    self._delete(key_bounds(prefix), "key >= ? AND key < ?", events)

    def _read(self, key: str) -> KeyValue | None:
        row = self._connection.execute(f"SELECT {_COLUMNS} FROM entries WHERE key = ?", (key.encode(),)).fetchone()
        return self._key_value(row) if row else None

    def _read_under(self, prefix: str) -> Iterator[KeyValue]:
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM entries WHERE key >= ? AND key < ? ORDER BY key", key_bounds(prefix)
        )
        return map(self._key_value, rows)

    def _write(self, put: Put) -> KeyValue:
        if put.lease != NO_LEASE and put.lease not in self._sessions:
            raise SessionEnded(f"the session of {put.key!r} has ended")
        revision = self._revision + 1
        old = self._read(put.key)
        written = KeyValue(put.key, put.value, old.create_revision if old else revision, revision)
        row = (put.key.encode(), put.value, written.create_revision, revision, put.lease)
        self._connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?)", (*row, _checksum(*row)))
        return written

    def _delete(self, bounds: tuple[bytes | int, ...], where: str, events: dict[str, Event]) -> None:
        keys = self._connection.execute(f"SELECT key FROM entries WHERE {where} ORDER BY key", bounds).fetchall()
        if keys:
            self._connection.execute(f"DELETE FROM entries WHERE {where}", bounds)
            events.update((key, Event(key, None)) for key in (raw.decode() for (raw,) in keys))

    def _delete_leased(self, lease: int | None) -> None:
        """Delete the keys of one lease, or of all."""
        events: dict[str, Event] = {}
        with self._transaction(events):
            if lease is None:
                self._delete((NO_LEASE,), "lease <> ?", events)
            else:
                self._delete((lease,), "lease = ?", events)

    def _key_value(self, row: _Row) -> KeyValue:
        key, value, create_revision, mod_revision, _, checksum = row
        if _checksum(*row[:5]) != checksum:
            raise CorruptMetadata(f"{self._name}: the key {key!r} does not match its checksum")
        return KeyValue(key.decode(), value, create_revision, mod_revision)


class SqliteSession:
    """A `Session` that lasts as long as this process keeps its store open."""

    def __init__(self, store: SqliteMetadataStore, lease: int) -> None:
        self._store = store
        self._lease = lease
        self._ended = asyncio.Event()

    @property
    def lease(self) -> int:
        return self._lease

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    async def wait_ended(self) -> None:
        await self._ended.wait()

    async def close(self) -> None:
        if not self.has_ended:
            self._store.end_session(self._lease)

    def mark_ended(self) -> None:
        self._ended.set()


def _checksum(key: bytes, value: bytes, create_revision: int, mod_revision: int, lease: int) -> int:
    """The checksum of all fields, including the boundary between key and value."""
    return zlib.crc32(value, zlib.crc32(b"%d %d %d %d " % (len(key), create_revision, mod_revision, lease) + key))


def _prepare(database: Database, name: str) -> None:
    """Prepare a new or known file for use; raise an error for any other."""
    connection = database.connection
    version, application = _pragma(connection, "user_version"), _pragma(connection, "application_id")
    (table_count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    is_fresh = table_count == 0 and version == 0
    if not is_fresh and application != APPLICATION_ID:
        raise CorruptMetadata(f"{name} is a SQLite database, but not a FlyMQ metadata store")
    if version > FORMAT_VERSION:
        raise MetadataTooNew(f"{name} has format {version}; this FlyMQ supports formats up to {FORMAT_VERSION}")
    database.allow_changes()
    if is_fresh:
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
    damage = _pragma(connection, "quick_check(1)")
    if damage != "ok":
        raise CorruptMetadata(f"{name}: {damage}")


def _latest_revision(connection: sqlite3.Connection, name: str) -> int:
    (revision,) = connection.execute("SELECT revision FROM latest").fetchone()
    (newest,) = connection.execute("SELECT coalesce(max(mod_revision), 0) FROM entries").fetchone()
    if revision < newest:
        raise CorruptMetadata(f"{name}: a key has revision {newest}, but the latest revision is {revision}")
    return int(revision)


def _pragma(connection: sqlite3.Connection, pragma: str) -> Any:
    row = connection.execute(f"PRAGMA {pragma}").fetchone()
    return row[0] if row else None


_ERRORS: dict[int, type[FlyMQError]] = {
    sqlite3.SQLITE_IOERR_FSYNC: FsyncFailed,
    sqlite3.SQLITE_IOERR_DIR_FSYNC: FsyncFailed,
    sqlite3.SQLITE_CORRUPT: CorruptMetadata,
    sqlite3.SQLITE_NOTADB: CorruptMetadata,
    sqlite3.SQLITE_FULL: DiskFull,
    sqlite3.SQLITE_BUSY: DirectoryLocked,
    sqlite3.SQLITE_CANTOPEN: DiskPermissionDenied,
    sqlite3.SQLITE_READONLY: DiskPermissionDenied,
    sqlite3.SQLITE_PERM: DiskPermissionDenied,
}


@contextmanager
def _named_errors(name: str) -> Iterator[None]:
    """Map SQLite errors to FlyMQ errors: by the extended result code, else by the primary one in its low byte."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        named = _ERRORS.get(code) or _ERRORS.get(code & 0xFF, MetadataUnavailable)
        raise named(f"{name}: {error}") from error
