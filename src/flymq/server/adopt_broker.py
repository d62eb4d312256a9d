"""Make a single broker, which is stopped, the first broker of a cluster.

Its metadata is copied from its data directory into the empty store of the cluster. Records, groups and transactions
stay in their logs. An interruption at any point leaves something that can be repeated:

    1. the store is claimed, and the metadata copied     the broker can still start alone, and no other in the cluster
    2. the identity of the directory is replaced         from here on the broker belongs to the cluster
    3. under a supervisor: the directory is moved to its place
    4. the claim becomes the id of the cluster           from here on brokers can start
    5. the files of the old metadata are renamed         kept for the case of need; nothing reads them
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from flymq.cluster.adopted_metadata import Metadata, check_is_free, copy, finish, translate
from flymq.cluster.catalog import ADOPTING_KEY, CLUSTER_KEY, TOPIC_PREFIX, parse_topic
from flymq.host.disk import Disk
from flymq.host.host import Host
from flymq.metadata.images import IMAGE_NAME, PREVIOUS_NAME
from flymq.metadata.journal import journal_path, list_journals
from flymq.metadata.recovery import recover
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import Get, MetadataStore
from flymq.model.errors import DataDirectoryMissing, ForeignDataDirectory, NotStoppedCleanly
from flymq.server.cluster_store import open_cluster_store
from flymq.server.config import Config
from flymq.server.stopped_broker import open_in_memory
from flymq.server.supervisor import SUPERVISED_METADATA, broker_directory
from flymq.storage.data_directory import DataDirectory
from flymq.storage.identity import DirectoryNote, open_identity, read_identity, write_identity

ASIDE_PREFIX = "adopted-"
"""Of the files of the old metadata."""


@dataclass(frozen=True, slots=True)
class AdoptedBroker:
    """What was done, or would be."""

    cluster_id: str
    broker_id: int
    data_dir: Path
    """Where the data directory is now."""
    partitions: dict[str, int]
    """Topic → number of partitions. Empty if an earlier call had copied the metadata already."""
    kept_aside: list[Path]
    """The files of the old metadata."""


async def adopt_broker(host: Host, config: Config, *, into: Path | None = None, dry_run: bool = False) -> AdoptedBroker:
    """Make the broker with this data directory the broker `broker.id` of the cluster; a dry run changes nothing.

    `into`: the data directory of a supervisor, an absolute path: its store is used, and the directory is moved into it.
    """
    broker_id, disk = config.broker.id, host.disk
    data_dir = config.broker.data_dir.absolute()
    place = data_dir if into is None else broker_directory(into, broker_id)
    if not disk.exists(data_dir) and disk.exists(place):
        data_dir = place  # an earlier call has moved it
    note = _check_note(disk, data_dir, broker_id)
    directory = DataDirectory(disk, data_dir)
    try:
        async with _open_store(host, config, into, dry_run=dry_run) as store:
            if note.is_clustered and await _cluster_in(store) == note.cluster:
                return AdoptedBroker(note.cluster, broker_id, place, {}, _keep_aside(disk, data_dir, dry_run=dry_run))
            _check_directory(host, data_dir, place, note)
            metadata, cluster_id = await _read(host, data_dir, note, broker_id)
            await check_is_free(store, note.directory_id)
            if not dry_run:
                await copy(store, metadata, note.directory_id)
                write_identity(
                    disk, data_dir, replace(note, cluster=cluster_id, broker_id=broker_id, is_clustered=True)
                )
                _move(disk, data_dir, place)
                await finish(store, cluster_id, note.directory_id)
        kept_aside = _keep_aside(disk, data_dir if dry_run else place, dry_run=dry_run)
        return AdoptedBroker(cluster_id, broker_id, place, _partitions(metadata), kept_aside)
    finally:
        directory.close()


# --- the store of the cluster ---------------------------------------------------------------------------------------


@asynccontextmanager
async def _open_store(host: Host, config: Config, into: Path | None, *, dry_run: bool) -> AsyncIterator[MetadataStore]:
    """Open the store of the cluster. That of a supervisor is opened while the supervisor does not run."""
    if into is None:
        store = await open_cluster_store(host, config.cluster)
        try:
            yield store
        finally:
            await store.close()
        return
    disk, metadata = host.disk, into / SUPERVISED_METADATA
    if disk.exists(into / "topics"):
        raise ForeignDataDirectory(
            f"{into} is the data directory of a single broker", hint="Give a new directory, which need not exist."
        )
    if dry_run:
        yield open_in_memory(into, recover(disk, metadata) if disk.exists(metadata) else None)
        return
    disk.make_directory(metadata)
    lock = disk.lock(into / "lock")
    try:
        supervised = SqliteMetadataStore.open(disk, metadata / IMAGE_NAME)
        try:
            yield supervised
        finally:
            await supervised.close()
    finally:
        lock.release()


async def _cluster_in(store: MetadataStore) -> str | None:
    """Return the id of the cluster in a store; None if there is none, or an unfinished copy."""
    found, adopting = (await store.txn(success=[Get(CLUSTER_KEY), Get(ADOPTING_KEY)])).found
    return None if found is None or adopting is not None else found.value.decode()


# --- the data directory ---------------------------------------------------------------------------------------------


def _check_note(disk: Disk, data_dir: Path, broker_id: int) -> DirectoryNote:
    if not disk.exists(data_dir / "topics"):
        raise DataDirectoryMissing(f"{data_dir} is not the data directory of a broker")
    note = read_identity(disk, data_dir)
    if note is None:
        raise NotStoppedCleanly(f"{data_dir} has no identity yet")
    if note.is_clustered and note.broker_id != broker_id:
        raise ForeignDataDirectory(f"{data_dir} belongs to broker {note.broker_id} of the cluster {note.cluster}")
    return note


def _check_directory(host: Host, data_dir: Path, place: Path, note: DirectoryNote) -> None:
    """Raise an error if the broker was not stopped cleanly, or has been one of a cluster."""
    identity = open_identity(host.disk, data_dir, host.entropy, cluster=note.cluster, broker_id=note.broker_id)
    if identity.noted_epoch or identity.clean_epoch:
        raise ForeignDataDirectory(f"{data_dir} belongs to broker {note.broker_id} of the cluster {note.cluster}")
    if not identity.was_clean:
        raise NotStoppedCleanly(f"the broker of {data_dir} was not stopped cleanly")
    if place != data_dir and host.disk.exists(place):
        raise ForeignDataDirectory(f"{place} exists already", hint="Choose another --id, or another --into.")


async def _read(host: Host, data_dir: Path, note: DirectoryNote, broker_id: int) -> tuple[Metadata, str]:
    """Return the metadata as it is to be in the cluster, and the id of the cluster."""
    recovered = recover(host.disk, data_dir)
    if recovered.is_new:
        raise DataDirectoryMissing(f"{data_dir} has no metadata of a single broker")
    store = open_in_memory(data_dir, recovered)
    try:
        found = {each.key: each.value for each in (await store.range("")).key_values}
    finally:
        await store.close()
    old_id = note.broker_id
    metadata = translate(found, old_id=old_id, broker_id=broker_id, directory_id=note.directory_id)
    return metadata, found[CLUSTER_KEY].decode()


def _partitions(metadata: Metadata) -> dict[str, int]:
    return {
        key.removeprefix(TOPIC_PREFIX): parse_topic(value).partitions
        for key, value in sorted(metadata.items())
        if key.startswith(TOPIC_PREFIX)
    }


def _move(disk: Disk, data_dir: Path, place: Path) -> None:
    if place != data_dir:
        disk.rename(data_dir, place)
        disk.sync_directory(place.parent)
        disk.sync_directory(data_dir.parent)


def _keep_aside(disk: Disk, data_dir: Path, *, dry_run: bool) -> list[Path]:
    """Rename the files of the old metadata; return their new names."""
    files = [data_dir / IMAGE_NAME, data_dir / PREVIOUS_NAME]
    files += (journal_path(data_dir, revision) for revision in list_journals(disk, data_dir))
    kept = []
    for file in filter(disk.exists, files):
        kept.append(file.with_name(ASIDE_PREFIX + file.name))
        if not dry_run:
            disk.rename(file, kept[-1])
    if kept and not dry_run:
        disk.sync_directory(data_dir)
    return kept
