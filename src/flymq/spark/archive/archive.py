"""The archive directory: publish and list manifests, hold the write lock, remove orphaned files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flymq.host.disk import ASIDE_SUFFIX, SystemDisk, replace_file
from flymq.model.errors import ArchiveInUse, ArchiveNotFound, DirectoryLocked, StorageError
from flymq.spark.archive.files import DATA, piece_path
from flymq.spark.archive.inside import path_inside
from flymq.spark.archive.manifest import SUFFIX, Manifest, encode_manifest, manifest_file, parse_manifest

MANIFESTS = "manifests"
LOCK = "lock"


class Archive:
    """An archive in a local directory, or on a file system that all machines of a Spark cluster mount."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._disk = SystemDisk()

    @classmethod
    def open(cls, root: Path) -> Archive:
        """Return the archive in this directory, or raise ArchiveNotFound."""
        if not (root / MANIFESTS).is_dir():
            raise ArchiveNotFound(f"{root} is not an archive: it has no directory {MANIFESTS}")
        return cls(root)

    @classmethod
    def create(cls, root: Path) -> Archive:
        """Return the archive in this directory; create an empty one if there is none."""
        SystemDisk().make_directory(root / MANIFESTS)
        return cls(root)

    def manifests(self) -> list[Manifest]:
        """Return all manifests, oldest first. Raises an error for a damaged one."""
        found = [self.manifest(name) for name in self._manifest_files()]
        return sorted(found, key=lambda manifest: (manifest.created_ms, manifest.query, manifest.batch))

    def manifest(self, name: str) -> Manifest:
        """Return the manifest of this file name; raise an error if it names a file outside the archive."""
        path = path_inside(self.root, f"{MANIFESTS}/{name}")
        manifest = parse_manifest(self._disk.read(path), str(path))
        for piece in manifest.pieces:
            piece_path(self.root, piece)
        return manifest

    def has_batch(self, query: str, batch: int) -> bool:
        """Whether this batch of this query is in the archive."""
        return (self.root / MANIFESTS / manifest_file(query, batch)).exists()

    def batch_rows(self, query: str, batch: int) -> int:
        """Return the number of records that a batch of a query has added to the archive."""
        return self.manifest(manifest_file(query, batch)).rows if self.has_batch(query, batch) else 0

    def publish(self, manifest: Manifest) -> None:
        """Add a batch to the archive, atomically and idempotently.

        A batch that is rerun after a crash finds its manifest; the files of the rerun are removed later as orphans.
        """
        if not self.has_batch(manifest.query, manifest.batch):
            path = path_inside(self.root, f"{MANIFESTS}/{manifest.file}")
            replace_file(self._disk, path, encode_manifest(manifest))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the write lock for a `with` block."""
        try:
            lock = self._disk.lock(self.root / LOCK)
        except DirectoryLocked as error:
            raise ArchiveInUse(error.message) from None
        try:
            yield
        finally:
            lock.release()

    def orphans(self) -> list[Path]:
        """Return the files that are in no manifest: leftovers of unfinished batches."""
        named = {self.root / piece.file for manifest in self.manifests() for piece in manifest.pieces if piece.file}
        # rglob follows no links within
        return sorted(path for path in path_inside(self.root, DATA).rglob("*.parquet") if path not in named)

    def sweep(self) -> int:
        """Remove the orphans; return how many there were. Requires the lock: a batch may be in progress."""
        orphans = self.orphans()
        for path in orphans:
            self._disk.remove(path)
        return len(orphans)

    def _manifest_files(self) -> list[str]:
        try:
            names = self._disk.list(self.root / MANIFESTS)
        except StorageError as error:
            raise ArchiveNotFound(error.message) from error
        return [name for name in names if name.endswith(SUFFIX) and not name.endswith(ASIDE_SUFFIX)]
