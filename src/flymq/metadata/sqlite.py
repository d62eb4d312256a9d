"""The metadata store of a single broker: SQLite in memory, and on the disk images of it and a journal of changes.

    metadata.db                    an image of the store at one revision, a SQLite file
    metadata.previous.db           the image before
    metadata.changes-<revision>    the changes after the image of that revision

A txn changes the tables in memory and appends its changes to the journal in one step, without yielding to the event
loop. It returns when the journal is on the disk: txns that wait at the same time share one fsync, in a thread. Watchers
see a change when it is durable. When the journal has grown as large as the image, a new image is written, in a thread.

What a damaged file costs is told in recovery.py: nothing. The reasons are in docs/decisions/0020. The history of
changes is kept in memory only (see history.py): watchers belong to this process, and start by reading everything.

A lease belongs to the process. Keys left behind by a killed broker are deleted when the store is opened again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path

from flymq.host.disk import Disk
from flymq.host.tasks import InlineThreads, Tasks, Threads
from flymq.metadata.history import History, only_under
from flymq.metadata.images import IMAGE_NAME, describe, row_checksum, write_image
from flymq.metadata.journal import Change, Journal, Row, journal_path, list_journals
from flymq.metadata.recovery import Recovered, recover
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
from flymq.model.errors import FsyncFailed, MetadataUnavailable, ResourcesExhausted, SessionEnded, StorageError

logger = logging.getLogger(__name__)

_RETRY_S = 0.2
_JOURNAL_BYTES_MIN = 1 << 18
"""A journal grows to the size of the image, and at least to this, before a new image is written."""
_COLUMNS = "key, value, create_revision, mod_revision, lease, checksum"

_Row = tuple[bytes, bytes, int, int, int, int]


class SqliteMetadataStore:
    """A `MetadataStore` in the files of one directory."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        recovered: Recovered,
        journal: Journal,
        *,
        history_bytes_max: int,
        threads: Threads,
        on_fatal: Callable[[FsyncFailed], None],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._connection = recovered.connection
        self._revision = recovered.revision
        self._journal = journal
        self._image_revision = recovered.image_revision
        self._previous_revision = recovered.previous_revision
        self._image_bytes = 0
        self._history = History(self._revision + 1, bytes_max=history_bytes_max)
        self._changed = asyncio.Event()
        self._sessions: dict[int, SqliteSession] = {}
        self._leases = count(NO_LEASE + 1)
        self._threads = threads
        self._tasks = Tasks(self._task_failed)
        self._on_fatal = on_fatal
        self._failure: FsyncFailed | None = None
        self._durable_revision = self._revision
        self._unsynced: deque[EventBatch] = deque()
        self._journals_unsynced: list[Journal] = [journal]
        self._syncing: asyncio.Task[None] | None = None
        self._writing_image: asyncio.Task[None] | None = None
        self._is_closed = False
        self.recovered = recovered
        """What was found when the store was opened."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: Path,
        *,
        history_bytes_max: int = 8 << 20,
        threads: Threads | None = None,
        on_fatal: Callable[[FsyncFailed], None] = lambda _: None,
        recovered: Recovered | None = None,
    ) -> SqliteMetadataStore:
        """Open the store whose image is `path`, creating it if needed; raise an error if something of it is lost.

        Its directory must exist, and be locked. What is damaged is kept aside. `recovered` is what the caller has read.
        """
        directory = path.parent
        recovered = recovered or recover(disk, directory)
        for problem in recovered.problems:
            logger.warning("metadata: %s", problem)
        for lost in recovered.lost:
            logger.error("metadata: lost %s", lost)
        for damaged in recovered.damaged:
            logger.warning("metadata: kept %s aside as %s", damaged, _keep_aside(disk, damaged).name)
        if recovered.problems or recovered.lost:
            logger.warning("metadata: restored revision %d", recovered.revision)
        journal = _open_journal(disk, directory, recovered)
        store = cls(
            disk,
            directory,
            recovered,
            journal,
            history_bytes_max=history_bytes_max,
            threads=threads or InlineThreads(),
            on_fatal=on_fatal,
        )
        store._begin()
        return store

    def _begin(self) -> None:
        """Bring the store to the disk as it was found, without keys of leases."""
        self._delete_leased(lease=None)
        self._sync_now()
        self._publish(self._revision)
        if self._image_revision != self._revision or self.recovered.problems:
            self._save_image_now()
        else:
            self._image_bytes = self._disk.size(self._directory / IMAGE_NAME)

    async def txn(
        self, compares: Sequence[Compare] = (), success: Sequence[Op] = (), failure: Sequence[Op] = ()
    ) -> TxnResult:
        check_txn(compares, success, failure)
        events: dict[str, Event] = {}
        with self._transaction(events):
            succeeded = all(compare.holds(self._read(compare.key)) for compare in compares)
            found = tuple(self._run(success if succeeded else failure, events))
        result = TxnResult(succeeded, self._revision, found)
        await self._until_durable(self._revision)  # also if it changed nothing: it may have seen what others changed
        return result

    async def range(self, prefix: str) -> Snapshot:
        self._check_open()
        snapshot = Snapshot(self._revision, tuple(self._read_under(prefix)))
        await self._until_durable(snapshot.revision)
        return snapshot

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

    async def end_session(self, lease: int) -> None:
        """Delete the keys of a session, then the session; if the disk fails, the session stays open."""
        self._delete_leased(lease)
        self._sessions.pop(lease).mark_ended()
        await self._until_durable(self._revision)

    async def close(self) -> None:
        """Save an image and close. Works on a full disk; keys of open sessions are deleted at the next start."""
        if self._is_closed:
            return
        self._is_closed = True
        self._changed.set()
        for session in self._sessions.values():
            session.mark_ended()
        for task in (self._syncing, self._writing_image):
            if task is not None:
                await asyncio.wait([task])
        await self._tasks.close()
        if self._failure is None and self._image_revision != self._revision:
            self._save_image_now()
        self._connection.close()

    # --- change

    def _check_open(self) -> None:
        if self._is_closed:
            raise MetadataUnavailable("the metadata store is closed")
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _transaction(self, events: dict[str, Event]) -> Iterator[None]:
        """Commit the changes of the block, if there are any, as the next revision, and append them to the journal.

        The block adds its changes to `events`. No await until the end: nobody sees the half of a change.
        """
        self._check_open()
        connection, revision = self._connection, self._revision + 1
        try:
            connection.execute("BEGIN")
            yield
            if events:
                connection.execute("UPDATE latest SET revision = ?", (revision,))
                self._journal.append(self._change(revision, events))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if events:
            self._revision = revision
            self._unsynced.append(EventBatch(revision, tuple(events.values())))

    def _change(self, revision: int, events: dict[str, Event]) -> Change:
        puts, deletes = [], []
        for key, written in events.values():
            if written is None:
                deletes.append(key)
            else:
                query = "SELECT lease FROM entries WHERE key = ?"
                (lease,) = self._connection.execute(query, (key.encode(),)).fetchone()
                puts.append(Row(key, written.value, written.create_revision, lease))
        return Change(revision, puts, deletes, self._durable_revision)

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
        self._connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?)", (*row, row_checksum(*row)))
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
        key, value, create_revision, mod_revision, _, _ = row
        return KeyValue(key.decode(), value, create_revision, mod_revision)

    # --- the disk

    async def _until_durable(self, revision: int) -> None:
        """Return when `revision` is on the disk. If the caller is cancelled, the change is made all the same."""
        while self._durable_revision < revision:
            if self._failure is not None:
                raise self._failure
            if self._syncing is None:
                self._syncing = self._tasks.spawn("metadata sync", self._sync())
            await asyncio.shield(self._syncing)

    async def _sync(self) -> None:
        """Bring everything to the disk; what is changed meanwhile shares the next fsync."""
        try:
            while self._durable_revision < self._revision:
                revision, current, journals = self._revision, self._journal, list(self._journals_unsynced)
                try:
                    await self._threads.run(lambda journals=journals: _sync_all(journals))  # type: ignore[misc]
                except ResourcesExhausted:  # no free descriptor for the directory: the changes are made, so wait
                    await asyncio.sleep(_RETRY_S)
                    continue
                for journal in journals:
                    if journal is not current:  # the current one may have grown meanwhile
                        self._journals_unsynced.remove(journal)
                self._publish(revision)
        except FsyncFailed as error:
            self._failure = error
            raise
        finally:
            self._syncing = None
        if self._journal.size > max(_JOURNAL_BYTES_MIN, self._image_bytes) and self._writing_image is None:
            self._writing_image = self._tasks.spawn("metadata image", self._save_image())

    def _sync_now(self) -> None:
        _sync_all(self._journals_unsynced)
        self._journals_unsynced = [self._journal]

    def _publish(self, revision: int) -> None:
        """Show the watchers what is durable now."""
        self._durable_revision = revision
        while self._unsynced and self._unsynced[0].revision <= revision:
            self._history.append(self._unsynced.popleft())
        self._changed.set()
        self._changed = asyncio.Event()

    async def _save_image(self) -> None:
        try:
            write = self._begin_image()
            await self._threads.run(write)
        except FsyncFailed:
            raise
        except StorageError as error:
            logger.error("cannot write an image of the metadata: %s", error)
        finally:
            self._writing_image = None

    def _save_image_now(self) -> None:
        try:
            write = self._begin_image()
            write()
        except FsyncFailed:
            raise
        except StorageError as error:  # a full disk, say: the journal has everything
            logger.error("cannot write an image of the metadata: %s", error)

    def _begin_image(self) -> Callable[[], None]:
        """Take an image, and let later changes go to a new journal. Return the work that writes it, for a thread."""
        if self._journal.revision != self._revision:
            self._journal = Journal.create(self._disk, self._directory, describe(self._connection))
            self._journals_unsynced.append(self._journal)
        revision, raw, journals = self._revision, self._connection.serialize(), list(self._journals_unsynced)

        def write() -> None:
            _sync_all(journals)
            write_image(self._disk, self._directory, raw)
            if self._image_revision is not None:
                self._previous_revision = self._image_revision
            self._image_revision, self._image_bytes = revision, len(raw)
            if self._previous_revision is not None:
                _remove_journals(self._disk, self._directory, before=self._previous_revision)

        return write

    def _task_failed(self, name: str, error: BaseException) -> None:
        if isinstance(error, FsyncFailed):
            self._failure = error
            self._on_fatal(error)
        else:
            logger.error("the task %r failed", name, exc_info=error)


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

    @property
    def is_valid(self) -> bool:
        return not self.has_ended  # the store is in this process

    async def wait_ended(self) -> None:
        await self._ended.wait()

    async def close(self) -> None:
        if not self.has_ended:
            await self._store.end_session(self._lease)

    def mark_ended(self) -> None:
        self._ended.set()


def _open_journal(disk: Disk, directory: Path, recovered: Recovered) -> Journal:
    if recovered.journal is not None:
        return Journal.open(disk, directory, recovered.journal)
    path = journal_path(directory, recovered.revision)
    if disk.exists(path):
        _keep_aside(disk, path)
    return Journal.create(disk, directory, describe(recovered.connection))


def _remove_journals(disk: Disk, directory: Path, *, before: int) -> None:
    """Remove the journals that end before a revision: no image needs them."""
    starts = list_journals(disk, directory)
    for start, following in pairwise(starts):
        if following <= before:
            disk.remove(journal_path(directory, start))


def _keep_aside(disk: Disk, path: Path) -> Path:
    """Rename a damaged file to a name that nothing reads."""
    for number in count(1):
        aside = path.with_name(f"damaged-{number}.{path.name}")
        if not disk.exists(aside):
            disk.rename(path, aside)
            break
    return aside


def _sync_all(journals: list[Journal]) -> None:
    for journal in journals:
        journal.sync()
