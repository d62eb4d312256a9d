"""An archive from somebody else cannot make us read or write files outside of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.unit.spark.archive.archives import published, written

from flymq.model.errors import ArchivePathOutside
from flymq.spark.archive.archive import MANIFESTS, Archive
from flymq.spark.archive.files import DATA, read_piece
from flymq.spark.archive.restore_plan import plan_restore
from flymq.spark.archive.verify import verify
from flymq.spark.backup.check import check_backup, require_whole
from flymq.spark.backup.contents import FILE, Backup, extents_of, read_backup, write_backup

USES: list[Callable[[Archive], object]] = [
    Archive.manifests,
    Archive.orphans,
    Archive.sweep,
    verify,
    plan_restore,
    lambda archive: require_whole(archive.root),
    lambda archive: check_backup(archive.root),
]


@pytest.fixture
def backup(archive: Archive) -> Archive:
    """The archive as a backup."""
    made = Backup(
        created_ms=1,
        flymq_version="0",
        topics={"orders": archive.manifests()[0].topics["orders"]},
        groups={},
        partitions=extents_of(archive.manifests()),
        size_bytes=1,
    )
    write_backup(archive.root, made)
    return archive


def outside(tmp_path: Path, archive: Archive) -> Path:
    """A file that holds what the archive misses, beside the archive."""
    piece = written(tmp_path / "elsewhere", 100, 110)
    assert tmp_path not in archive.root.parents or archive.root.parent == tmp_path
    return tmp_path / "elsewhere" / piece.file


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("how", ["absolute", "up", "up from data", "not below data", "backslash"])
def test_a_manifest_that_names_a_file_elsewhere_is_refused(
    tmp_path: Path, backup: Archive, how: str, use: Callable[[Archive], object]
) -> None:
    target = outside(tmp_path, backup)
    named = {
        "absolute": str(target),
        "up": f"../elsewhere/{target.relative_to(tmp_path / 'elsewhere')}",
        "up from data": f"data/../../elsewhere/{target.relative_to(tmp_path / 'elsewhere')}",
        "not below data": "manifests/x.parquet",
        "backslash": "data\\..\\..\\x.parquet",
    }[how]
    piece = written(tmp_path / "elsewhere", 100, 110)
    published(backup, 2, [msgspec.structs.replace(piece, file=named)])
    with pytest.raises(ArchivePathOutside) as caught:
        use(backup)
    assert repr(named) in caught.value.message
    assert target.exists()


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("what", [DATA, MANIFESTS, f"{DATA}/topic=orders", "file"])
def test_a_symbolic_link_that_leads_out_of_an_archive_is_refused(
    tmp_path: Path, backup: Archive, what: str, use: Callable[[Archive], object]
) -> None:
    path = sorted(backup.root.rglob("*.parquet"))[0] if what == "file" else backup.root / what
    moved = tmp_path / "moved"
    path.rename(moved)
    path.symlink_to(moved)
    before = sorted(moved.rglob("*"))
    with pytest.raises(ArchivePathOutside, match="leads out of the archive"):
        use(backup)
    assert sorted(moved.rglob("*")) == before


def test_a_file_that_became_a_link_after_the_manifest_was_read_is_refused(tmp_path: Path, archive: Archive) -> None:
    piece = archive.manifests()[0].pieces[0]
    (archive.root / piece.file).rename(tmp_path / "moved")
    (archive.root / piece.file).symlink_to(tmp_path / "moved")
    with pytest.raises(ArchivePathOutside):
        list(read_piece(archive.root, piece))


@pytest.mark.parametrize("what", [DATA, f"{DATA}/topic=orders"])
def test_nothing_is_written_through_a_link(tmp_path: Path, archive: Archive, what: str) -> None:
    (archive.root / what).rename(tmp_path / "moved")
    (archive.root / what).symlink_to(tmp_path / "moved")
    before = sorted((tmp_path / "moved").rglob("*"))
    with pytest.raises(ArchivePathOutside):
        written(archive.root, 100, 110)
    assert sorted((tmp_path / "moved").rglob("*")) == before


def test_a_backup_whose_contents_are_a_link_is_refused(tmp_path: Path, backup: Archive) -> None:
    (backup.root / FILE).rename(tmp_path / FILE)
    (backup.root / FILE).symlink_to(tmp_path / FILE)
    with pytest.raises(ArchivePathOutside):
        read_backup(backup.root)


def test_an_archive_that_is_reached_by_a_link_can_be_used(tmp_path: Path, archive: Archive) -> None:
    (tmp_path / "link").symlink_to(archive.root)
    assert verify(Archive.open(tmp_path / "link")).is_whole
