"""The contents of a backup, as listed in backup.json. It reveals even a missing manifest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from flymq.host.disk import SystemDisk, replace_file
from flymq.model.errors import BackupDamaged, BackupNotFound, FileVanished
from flymq.record.checksum import crc32c
from flymq.spark.archive.inside import path_inside
from flymq.spark.archive.manifest import GroupOffsets, Manifest, TopicState, by_partition

FILE = "backup.json"
FORMAT = 1


class Extent(Struct, frozen=True):
    """The records of one partition: offsets from `start_offset` to before `end_offset`, and their number."""

    start_offset: int
    end_offset: int
    rows: int


Extents = dict[str, dict[int, Extent]]
"""By topic and partition; partitions without records are omitted."""


class Backup(Struct, frozen=True, kw_only=True):
    """The contents of a complete backup."""

    format: int = FORMAT
    created_ms: int
    flymq_version: str
    topics: dict[str, TopicState]
    groups: GroupOffsets
    partitions: Extents
    size_bytes: int
    crc32c: int = 0
    """CRC-32C of this file as compact JSON with 0 in this field."""

    @property
    def rows(self) -> int:
        return sum(extent.rows for extents in self.partitions.values() for extent in extents.values())

    def rows_of(self, topic: str) -> int:
        return sum(extent.rows for extent in self.partitions.get(topic, {}).values())


def extents_of(manifests: Iterable[Manifest]) -> Extents:
    """Return the extent of each partition in an archive."""
    found: Extents = {}
    for (topic, partition), pieces in by_partition(manifests).items():
        rows = sum(piece.rows for piece in pieces)
        extent = Extent(pieces[0].start_offset, max(piece.end_offset for piece in pieces), rows)
        found.setdefault(topic, {})[partition] = extent
    return found


def write_backup(root: Path, backup: Backup) -> None:
    """Finish a backup."""
    signed = msgspec.structs.replace(backup, crc32c=_checksum(backup))
    replace_file(SystemDisk(), root / FILE, msgspec.json.format(msgspec.json.encode(signed), indent=1) + b"\n")


def read_backup(root: Path) -> Backup:
    """Return the contents of the backup in a directory, or raise BackupNotFound or BackupDamaged."""
    path = path_inside(root, FILE)
    try:
        content = SystemDisk().read(path)
    except FileVanished:
        raise BackupNotFound(f"there is no complete backup in {root}") from None
    try:
        backup = msgspec.json.decode(content, type=Backup)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BackupDamaged(f"{path} cannot be read: {error}") from error
    if backup.format > FORMAT:
        raise BackupDamaged(
            f"{path} has format {backup.format}; this version of FlyMQ supports up to {FORMAT}",
            hint="Use a newer version.",
        )
    if backup.crc32c != _checksum(backup):
        raise BackupDamaged(f"{path} was modified: its checksum does not match")
    return backup


def _checksum(backup: Backup) -> int:
    return crc32c(msgspec.json.encode(msgspec.structs.replace(backup, crc32c=0)))


def list_backups(folder: Path) -> Sequence[tuple[str, Backup | None]]:
    """Return the backups in a directory by name; None for an incomplete one."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    found: list[tuple[str, Backup | None]] = []
    for name in names:
        try:
            found.append((name, read_backup(folder / name)))
        except BackupNotFound:
            if (folder / name / "manifests").is_dir():
                found.append((name, None))
    return found
