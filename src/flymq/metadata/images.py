"""Images of the metadata store: SQLite files, `metadata.db` and the one before it, `metadata.previous.db`.

An image is the whole store at one revision, written aside, synced and renamed. SQLite checks its structure, not its
contents; so each row has a checksum, the revision is there twice, and the journal that follows the image knows how many
rows there are (journal.py). A flipped bit is found when the image is read, and the other image is taken.
"""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flymq.host.disk import ASIDE_SUFFIX, Disk
from flymq.metadata.journal import Described
from flymq.model.errors import CorruptMetadata, MetadataTooNew, MetadataUnavailable

IMAGE_NAME = "metadata.db"
PREVIOUS_NAME = "metadata.previous.db"

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
INSERT INTO latest VALUES ({FIRST_REVISION}), ({FIRST_REVISION});
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT_VERSION};
"""
_WAL_MODE = b"\x02\x02"  # bytes 18 and 19 of the file


@dataclass(frozen=True, slots=True)
class Image:
    """A store that was read into memory."""

    connection: sqlite3.Connection
    revision: int
    needs_journal: bool
    """Whether it was written together with a journal that follows it. The first versions of FlyMQ had none."""


def new_image() -> Image:
    """An empty store."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
    return Image(connection, FIRST_REVISION, needs_journal=False)


def describe(connection: sqlite3.Connection) -> Described:
    ((revision,), *_) = connection.execute("SELECT revision FROM latest").fetchall()
    keys, checksums = connection.execute("SELECT count(*), coalesce(sum(checksum), 0) FROM entries").fetchone()
    return Described(revision, keys, checksums, FORMAT_VERSION)


def read_image(disk: Disk, path: Path, journals: dict[int, Described]) -> Image:
    """Read and check an image; raise `CorruptMetadata` if it is damaged. `journals` are those that are there."""
    raw = disk.read(path)
    if raw[18:20] == _WAL_MODE:
        with named_errors(str(path)):
            raw = disk.read_database(path)
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        with named_errors(str(path)):
            _load(raw, connection)
            return _check(connection, str(path), journals)
    except BaseException:
        connection.close()
        raise


def write_image(disk: Disk, directory: Path, raw: bytes) -> None:
    """Replace the newest image and keep the one before. The journal that follows it must be durable already."""
    path, aside = directory / IMAGE_NAME, directory / (IMAGE_NAME + ASIDE_SUFFIX)
    disk.remove(aside)
    file = disk.open(aside)
    file.append([raw])
    file.sync()
    if disk.exists(path):
        disk.rename(path, directory / PREVIOUS_NAME)
        disk.sync_directory(directory)  # before the next rename: at any time one of both is there
    disk.rename(aside, path)
    disk.sync_directory(directory)


def row_checksum(key: bytes, value: bytes, create_revision: int, mod_revision: int, lease: int) -> int:
    """The checksum of all fields, including the boundary between key and value."""
    return zlib.crc32(value, zlib.crc32(b"%d %d %d %d " % (len(key), create_revision, mod_revision, lease) + key))


def _load(raw: bytes, connection: sqlite3.Connection) -> None:
    """By a copy: `serialize` of a database that was itself deserialized lacks the open transaction."""
    with contextlib.closing(sqlite3.connect(":memory:")) as found:
        found.deserialize(raw)
        found.backup(connection)


def _check(connection: sqlite3.Connection, name: str, journals: dict[int, Described]) -> Image:
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise CorruptMetadata(f"{name} is not a FlyMQ metadata store")
    if (damage := _pragma(connection, "quick_check(1)")) != "ok":
        raise CorruptMetadata(f"{name}: {damage}")
    version = _pragma(connection, "user_version")
    revisions = connection.execute("SELECT revision FROM latest").fetchall()
    if not revisions or len(set(revisions)) > 1:
        raise CorruptMetadata(f"{name} has the revisions {revisions}")
    revision = int(revisions[0][0])
    described = journals.get(revision)
    if version != FORMAT_VERSION:
        if version > FORMAT_VERSION and (described is None or described.format == version):
            raise MetadataTooNew(f"{name} has format {version}; this FlyMQ supports formats up to {FORMAT_VERSION}")
        raise CorruptMetadata(f"{name} has the unknown format {version}")
    _check_rows(connection, name, revision)
    if described is not None and described != describe(connection):
        raise CorruptMetadata(f"{name} does not have the keys with which it was written")
    if len(revisions) == 1:  # from before there were journals
        connection.execute("INSERT INTO latest VALUES (?)", revisions[0])
    return Image(connection, revision, needs_journal=len(revisions) > 1)


def _check_rows(connection: sqlite3.Connection, name: str, revision: int) -> None:
    for *fields, checksum in connection.execute(
        "SELECT key, value, create_revision, mod_revision, lease, checksum FROM entries"
    ):
        if row_checksum(*fields) != checksum:
            raise CorruptMetadata(f"{name}: the key {fields[0]!r} does not match its checksum")
        if fields[3] > revision:
            raise CorruptMetadata(f"{name}: a key has revision {fields[3]}, but the latest revision is {revision}")


def _pragma(connection: sqlite3.Connection, pragma: str) -> Any:
    row = connection.execute(f"PRAGMA {pragma}").fetchone()
    return row[0] if row else None


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Map what goes wrong in SQLite: on damaged pages, or values of other types than were written."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_NOMEM:
            raise MetadataUnavailable(f"{name}: {error}") from error
        raise CorruptMetadata(f"{name}: {error}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise CorruptMetadata(f"{name}: {error}") from error
