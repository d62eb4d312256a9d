"""The Parquet files of an archive: written under a temporary name and renamed when complete; verified when read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from flymq.host.disk import SystemDisk
from flymq.model.errors import ArchiveDamaged, ArchiveError, ArchivePathOutside
from flymq.record.checksum import crc32c
from flymq.spark.archive.columns import SCHEMA
from flymq.spark.archive.inside import path_inside
from flymq.spark.archive.manifest import Piece

DATA = "data"
ASIDE_PREFIX = "_"
"""The prefix of unfinished files; Spark and others ignore files with it."""

_COMPRESSION_LEVEL = 1  # of zstd: a higher level takes much longer and saves little
_ROW_GROUP_ROWS = 1 << 18
_ROW_GROUP_BYTES = 128 << 20
_READ_BYTES = 1 << 20
_DICTIONARIES = ["timestamp_type", "leader_epoch", "headers.list.element.key"]
_ENCODINGS = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}


def piece_file(piece: Piece, attempt: str) -> str:
    """Return the file of a piece, relative to the archive. Every attempt to write it has its own file."""
    span = f"{piece.start_offset:020d}-{piece.end_offset:020d}"
    return f"{DATA}/topic={piece.topic}/partition={piece.partition}/{span}-{attempt}.parquet"


def piece_path(root: Path, piece: Piece) -> Path:
    """Return where the file of a piece is, or raise `ArchivePathOutside`."""
    if piece.file and not piece.file.startswith(f"{DATA}/"):
        raise ArchivePathOutside(f"{root} names the file {piece.file!r}, which is not below {DATA}/")
    return path_inside(root, piece.file)


def write_piece(root: Path, piece: Piece, attempt: str, batches: Iterable[pa.RecordBatch]) -> Piece:
    """Write the records of a piece, durably, and return the piece with its row count, size and checksum."""
    relative = piece_file(piece, attempt)
    path = path_inside(root, relative)
    aside = path.with_name(ASIDE_PREFIX + path.name)
    disk = SystemDisk()
    disk.make_directory(path.parent)
    try:
        with aside.open("wb", buffering=0) as raw:
            output = _SummedFile(raw)
            written = _write_records(output, batches)
            os.fsync(raw.fileno())
        if not written.rows:
            return piece
        aside.replace(path)
        disk.sync_directory(path.parent)
    except OSError as error:
        raise ArchiveError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        aside.unlink(missing_ok=True)
    return msgspec.structs.replace(
        piece, **written._asdict(), file=relative, size_bytes=output.size_bytes, crc32c=output.crc32c
    )


class _Written(NamedTuple):
    rows: int
    min_timestamp_ms: int
    max_timestamp_ms: int


def _write_records(output: _SummedFile, batches: Iterable[pa.RecordBatch]) -> _Written:
    rows, earliest_ms, latest_ms = 0, -1, -1
    with pq.ParquetWriter(
        output,
        SCHEMA,
        compression="zstd",
        compression_level=_COMPRESSION_LEVEL,
        use_dictionary=_DICTIONARIES,
        column_encoding=_ENCODINGS,
        write_statistics=["offset", "timestamp"],
    ) as parquet:
        for group in _row_groups(batches):
            parquet.write_table(group, row_group_size=len(group))
            times = group.column("timestamp").combine_chunks().view(pa.int64()).to_numpy()
            low, high = int(times.min()), int(times.max())
            earliest_ms = min(low, earliest_ms) if rows else low
            latest_ms = max(high, latest_ms) if rows else high
            rows += len(group)
    return _Written(rows, earliest_ms, latest_ms)


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables that are large enough for fast reads and small enough for a task's memory."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        size_bytes += batch.nbytes
        if rows >= _ROW_GROUP_ROWS or (rows and size_bytes >= _ROW_GROUP_BYTES):
            yield pa.Table.from_batches(waiting, SCHEMA)
            waiting, rows, size_bytes = [], 0, 0
    if rows:
        yield pa.Table.from_batches(waiting, SCHEMA)


class _SummedFile:
    """A file for pyarrow to write to, which tracks the size and checksum."""

    closed = False

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.size_bytes = 0
        self.crc32c = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        size = len(view)
        self.crc32c = crc32c(view, self.crc32c)
        self.size_bytes += size
        while view:
            view = view[self._file.write(view) :]
        return size

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        """Do nothing: writes are not buffered here."""

    def close(self) -> None:
        """Do nothing: the caller that opened the file closes it."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def read_piece(root: Path, piece: Piece, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the records of a piece in order; all columns by default."""
    if not piece.file:
        return
    check_presence(root, piece)
    rows = 0
    try:
        with pq.ParquetFile(piece_path(root, piece)) as file:
            for batch in file.iter_batches(columns=None if columns is None else list(columns)):
                rows += len(batch)
                yield batch
    except (pa.ArrowException, OSError) as fault:
        raise ArchiveDamaged(f"{root / piece.file} cannot be read: {_first_line(fault)}") from fault
    if rows != piece.rows:
        raise ArchiveDamaged(f"{root / piece.file} has {rows} records; its manifest says {piece.rows}")


def check_presence(root: Path, piece: Piece) -> None:
    """Raise an error if a piece's file is missing or has the wrong size."""
    path = piece_path(root, piece)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ArchiveDamaged(f"{path} is missing: {error.strerror}") from error
    if size != piece.size_bytes:
        change = "was truncated" if size < piece.size_bytes else "has grown"
        raise ArchiveDamaged(f"{path} {change}: it has {size} bytes; its manifest says {piece.size_bytes}")


def check_bytes(root: Path, piece: Piece) -> None:
    """Read a piece's whole file and verify its checksum."""
    found = 0
    path = piece_path(root, piece)
    try:
        with path.open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                found = crc32c(chunk, found)
    except OSError as error:
        raise ArchiveDamaged(f"{path} cannot be read: {error.strerror}") from error
    if found != piece.crc32c:
        raise ArchiveDamaged(f"{path} was modified: its checksum is {found:#010x}, not {piece.crc32c:#010x}")


def _first_line(fault: BaseException) -> str:
    return str(fault).partition("\n")[0]
