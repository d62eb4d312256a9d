"""Verify a backup: its contents match backup.json, with correct counts and checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from flymq.model.errors import BackupDamaged
from flymq.spark.archive.archive import Archive
from flymq.spark.archive.manifest import Piece
from flymq.spark.archive.verify import Verification, verify
from flymq.spark.backup.contents import Backup, Extent, Extents, extents_of, read_backup


def check_backup(root: Path, on_file: Callable[[Piece], None] = lambda _: None) -> Verification:
    """Read the whole backup; return what was checked and the problems found."""
    backup = read_backup(root)
    archive = Archive.open(root)
    seen = verify(archive, on_file)
    return seen._replace(problems=[*_differences(backup.partitions, extents_of(archive.manifests())), *seen.problems])


def require_whole(root: Path) -> Backup:
    """Return the contents of a backup, or raise BackupDamaged with the first problem."""
    seen = check_backup(root)
    if not seen.is_whole:
        more = f"; {len(seen.problems) - 1} more problems" if len(seen.problems) > 1 else ""
        raise BackupDamaged(f"{seen.problems[0]}{more}")
    return read_backup(root)


def _differences(listed: Extents, found: Extents) -> Iterator[str]:
    for topic in sorted(listed | found):
        of_topic = (listed.get(topic, {}), found.get(topic, {}))
        for partition in sorted(of_topic[0] | of_topic[1]):
            wanted, there = (extents.get(partition) for extents in of_topic)
            if wanted != there:
                yield f"{topic}-{partition}: found {_shown(there)}, but backup.json lists {_shown(wanted)}"


def _shown(extent: Extent | None) -> str:
    if extent is None:
        return "nothing"
    return f"{extent.rows} records with offsets {extent.start_offset} to {extent.end_offset}"
