"""Restore the metadata of a data directory as far as its files allow, offline: no broker may run on it.

What the metadata files hold is read, a loss is accepted, and topics that are in the data directory only are adopted
(adoption.py). Damaged files are kept aside.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flymq.cluster.catalog import Catalog
from flymq.host.host import Host
from flymq.metadata.images import IMAGE_NAME
from flymq.metadata.recovery import recover
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.model.errors import DataDirectoryMissing
from flymq.model.names import TopicPartition
from flymq.server.adoption import PRODUCER_IDS_SKIPPED, adopt, guess_note, unknown_folders
from flymq.server.stopped_broker import open_in_memory
from flymq.storage.data_directory import DataDirectory, TopicFolder
from flymq.storage.identity import check_is_single
from flymq.storage.topic_note import TopicNote


@dataclass(frozen=True, slots=True)
class CatalogRepair:
    """What was found, and done unless it was a dry run."""

    restored: list[str]
    """Damage that cost nothing."""
    lost: list[str]
    """Changes of the metadata that cannot be read any more."""
    adopted: list[TopicNote]
    guessed: set[str]
    """The adopted topics without a note, by name: they have default settings."""
    left_alone: list[TopicFolder]
    """Folders whose topic's name is taken or unknown."""
    missing: list[TopicPartition]
    """Partitions without files."""


async def repair_catalog(
    host: Host, data_dir: Path, *, broker_id: int = 0, recreate_missing: bool = False, dry_run: bool = False
) -> CatalogRepair:
    """Restore the metadata and adopt topics; return what was found. A dry run changes nothing."""
    if not host.disk.exists(data_dir / "topics"):
        raise DataDirectoryMissing(f"{data_dir} is not the data directory of a broker")
    check_is_single(host.disk, data_dir)
    directory = DataDirectory(host.disk, data_dir)
    try:
        found = recover(host.disk, data_dir, accept_loss=True)
        if dry_run:
            store = open_in_memory(data_dir, found)
        else:
            store = SqliteMetadataStore.open(host.disk, data_dir / IMAGE_NAME, recovered=found)
        try:
            catalog = Catalog(store)
            if found.lost:
                await catalog.take_producer_ids(PRODUCER_IDS_SKIPPED)
            unknown = await unknown_folders(catalog, directory, broker_id)
            notes = [(folder, note) for folder in unknown if (note := folder.note or guess_note(folder)) is not None]
            adopted = await adopt(catalog, notes, broker_id)
            missing = await _missing(catalog, directory, recreate=recreate_missing)
        finally:
            await store.close()
    finally:
        directory.close()
    ids = {note.topic_id for note in adopted}
    noted = {folder.note.topic_id for folder in unknown if folder.note is not None}
    return CatalogRepair(
        found.problems,
        found.lost,
        adopted,
        {note.name for note in adopted if note.topic_id not in noted},
        [folder for folder in unknown if not any(each is folder and note.topic_id in ids for each, note in notes)],
        missing,
    )


async def _missing(catalog: Catalog, directory: DataDirectory, *, recreate: bool) -> list[TopicPartition]:
    """Return the partitions that were created and have no files; with `recreate`, they start empty."""
    made = await catalog.made()
    missing = []
    for name, spec in (await catalog.topics()).items():
        known = made.get(spec.topic_id, ())
        gone = {n for n in sorted(known) if not directory.has_files(TopicPartition(name, n), spec.topic_id)}
        missing += [TopicPartition(name, number) for number in sorted(gone)]
        if gone and recreate:
            await catalog.mark_made({spec.topic_id: set(known) - gone})
    return missing
