"""The changes of the metadata store after an image of it: a file of lines, each written twice.

    <CRC32 of the JSON, 8 hexadecimal digits> <JSON>\\n

The first line describes the image (images.py) that the changes follow, each other line is one revision. A line that is
there twice survives one flipped bit anywhere, and a torn end is told from it: of an acknowledged change at least one
line is whole. Nothing here knows SQLite.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from flymq.host.disk import Disk, File
from flymq.model.errors import StorageError

JOURNAL_PREFIX = "metadata.changes-"


class Described(msgspec.Struct, tag="image", frozen=True):
    """An image: if it has other keys than these, it is damaged."""

    revision: int
    keys: int
    checksums: int
    """The sum of the checksums of its rows."""
    format: int


class Row(msgspec.Struct, array_like=True, frozen=True):
    """A key that was written."""

    key: str
    value: bytes
    create_revision: int
    lease: int


class Change(msgspec.Struct, tag="change", frozen=True):
    """What one revision has changed."""

    revision: int
    puts: list[Row]
    deletes: list[str]
    durable: int
    """Everything up to this revision was on the disk when the line was written: if it cannot be read, it is lost."""


Line = Described | Change

_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> bytes:
    body = msgspec.json.encode(line)
    return b"%08x %b\n" % (zlib.crc32(body), body) * 2


def parse_lines(raw: bytes) -> tuple[list[Line], int]:
    """Return the lines that are whole, once each, and how many bytes at the start of `raw` are whole."""
    found: list[Line] = []
    whole = 0
    is_whole = True
    for piece in raw.split(b"\n"):
        lines = list(_parse(piece))
        is_whole = is_whole and len(lines) == 1 and whole + len(piece) < len(raw)
        whole += (len(piece) + 1) * is_whole
        found += (line for line in lines if line not in found[-1:])
    return found, whole


def _parse(piece: bytes) -> Iterator[Line]:
    if (line := _parse_one(piece)) is not None:
        yield line
        return
    middle = len(piece) // 2  # where a newline was, if it was damaged: then both copies are in this piece
    for half in (piece[:middle], piece[middle + 1 :]):
        if (line := _parse_one(half)) is not None:
            yield line


def _parse_one(piece: bytes) -> Line | None:
    start, body = piece[:9], piece[9:]
    if start != b"%08x " % zlib.crc32(body):
        return None
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError:
        return None


def journal_path(directory: Path, revision: int) -> Path:
    return directory / f"{JOURNAL_PREFIX}{revision:020d}"


def list_journals(disk: Disk, directory: Path) -> list[int]:
    """The revisions of the images that the journals follow, ascending."""
    found = []
    for name in disk.list(directory):
        if name.startswith(JOURNAL_PREFIX) and (digits := name.removeprefix(JOURNAL_PREFIX)).isdigit():
            found.append(int(digits))
    return sorted(found)


class Journal:
    """A journal that is appended to."""

    def __init__(self, disk: Disk, file: File, revision: int, *, is_new: bool) -> None:
        self._disk = disk
        self._file = file
        self._is_new = is_new
        self.revision = revision
        """Of the image that it follows."""
        self.size = file.size()

    @classmethod
    def create(cls, disk: Disk, directory: Path, image: Described) -> Journal:
        path = journal_path(directory, image.revision)
        disk.remove(path)
        try:
            file = disk.open(path)
            file.append([encode_line(image)])
        except StorageError:
            with suppress(StorageError):  # durably: if it came back, it would replace what the last journal gets now
                disk.remove(path)
                disk.sync_directory(directory)
            raise
        return cls(disk, file, image.revision, is_new=True)

    @classmethod
    def open(cls, disk: Disk, directory: Path, revision: int) -> Journal:
        return cls(disk, disk.open_existing(journal_path(directory, revision)), revision, is_new=False)

    def append(self, change: Change) -> None:
        """Append to the page cache. After an error the journal is as before."""
        data = encode_line(change)
        try:
            self._file.append([data])
        except StorageError:
            with suppress(StorageError):  # a torn line is no line
                self._file.truncate(self.size)
            raise
        self.size += len(data)

    def sync(self) -> None:
        """Return when everything appended before is durable. In any thread."""
        self._file.sync()
        if self._is_new:
            self._disk.sync_directory(self._file.path.parent)
            self._is_new = False
