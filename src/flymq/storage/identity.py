"""Whose data directory this is, and whether its broker was stopped cleanly. Three notes (recovery/checksummed_note.py):

    <data dir>/identity    the cluster, the broker, and an id of the directory, chosen when it was empty
    <data dir>/epoch       the last registration of the broker in its cluster
    <data dir>/clean       every log was closed cleanly. Removed at each start, before a log is opened

A broker with a new directory, or one that was emptied, has nothing: it must not count as in sync under its old broker
id. The id of the directory tells that to the cluster. A broker that was killed may have lost its last records to a
power failure; without the marker, the cluster takes it out of the in-sync replicas before it may lead.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import msgspec

from flymq.host.disk import Disk, replace_file
from flymq.host.entropy import Entropy, new_id
from flymq.model.errors import ForeignDataDirectory, ResourcesExhausted
from flymq.storage.recovery.checksummed_note import encode_note, read_note

logger = logging.getLogger(__name__)

IDENTITY_NAME = "identity"
CLEAN_NAME = "clean"
EPOCH_NAME = "epoch"


class DirectoryNote(msgspec.Struct, frozen=True):
    cluster: str
    broker_id: int
    directory_id: str
    is_clustered: bool = False
    """The metadata is not in the directory, but shared with other brokers."""


class EpochNote(msgspec.Struct, frozen=True):
    directory_id: str
    broker_epoch: int = 0
    """Of the last registration of the broker; 0 if it had none."""


@dataclass(frozen=True, slots=True)
class Identity:
    directory_id: str
    is_new: bool
    """The directory had no identity: there is nothing in it that the cluster may count on."""
    was_clean: bool
    """All logs were closed cleanly by the last process on this directory."""
    clean_epoch: int = 0
    """The epoch of the broker at that time."""
    noted_epoch: int = 0
    """The last epoch of the broker with this directory."""

    def is_complete(self, last_epoch: int) -> bool:
        """Whether every record is there that the broker had when the cluster last counted on it.

        `last_epoch` is that of its last registration. A directory from before it, such as a restored backup, is not.
        """
        return self.was_clean and self.clean_epoch >= last_epoch

    def is_current(self, last_epoch: int) -> bool:
        """Whether everything is there that was synced when the cluster last counted on the broker."""
        return not self.is_new and max(self.noted_epoch, self.clean_epoch) >= last_epoch


def open_identity(
    disk: Disk, data_dir: Path, entropy: Entropy, *, cluster: str, broker_id: int, is_clustered: bool = False
) -> Identity:
    """Check that the directory belongs to this broker, and return how it was left; see `forget_clean`.

    Raises ForeignDataDirectory if it belongs to another one.
    """
    note = read_identity(disk, data_dir)
    if note is not None and (note.cluster, note.broker_id) != (cluster, broker_id):
        raise ForeignDataDirectory(
            f"{data_dir} belongs to broker {note.broker_id} of the cluster {note.cluster}, "
            f"not to broker {broker_id} of the cluster {cluster}"
        )
    if note is None:
        if disk.exists(data_dir / IDENTITY_NAME):
            logger.warning("%s cannot be read and is replaced: the data directory gets a new id", IDENTITY_NAME)
        directory_id = new_id(entropy).hex
        try:
            write_identity(disk, data_dir, DirectoryNote(cluster, broker_id, directory_id, is_clustered))
        except ResourcesExhausted as error:  # the next start finds a directory without identity again, which is safe
            logger.warning("the identity of the data directory was not written: %s", error)
        return Identity(directory_id, is_new=True, was_clean=False)
    noted = read_note(disk, data_dir / EPOCH_NAME, EpochNote)
    noted_epoch = noted.broker_epoch if noted is not None and noted.directory_id == note.directory_id else 0
    clean = read_note(disk, data_dir / CLEAN_NAME, EpochNote)
    if clean is None or clean.directory_id != note.directory_id:
        return Identity(note.directory_id, is_new=False, was_clean=False, noted_epoch=noted_epoch)
    return Identity(note.directory_id, False, True, clean.broker_epoch, noted_epoch)


def check_is_single(disk: Disk, data_dir: Path) -> None:
    """Raise ForeignDataDirectory if the metadata of the broker is not in its directory."""
    note = read_identity(disk, data_dir)
    if note is not None and note.is_clustered:
        raise ForeignDataDirectory(
            f"{data_dir} belongs to broker {note.broker_id} of the cluster {note.cluster}, not to a single broker",
            hint=f"Start it with --id {note.broker_id} and the --etcd of the cluster, or give another --data-dir.",
        )


def forget_clean(disk: Disk, data_dir: Path) -> None:
    """Remove the marker of a clean stop, durably. To be called before the first log is opened: a crash is possible."""
    if disk.exists(data_dir / CLEAN_NAME):
        disk.remove(data_dir / CLEAN_NAME)
        disk.sync_directory(data_dir)


def note_epoch(disk: Disk, data_dir: Path, directory_id: str, broker_epoch: int) -> None:
    """Note the registration of the broker that uses the directory."""
    try:
        replace_file(disk, data_dir / EPOCH_NAME, encode_note(EpochNote(directory_id, broker_epoch)))
    except ResourcesExhausted as error:
        logger.warning("after a crash the cluster will not count on this data directory: %s", error)


def mark_clean(disk: Disk, data_dir: Path, identity: Identity, *, broker_epoch: int = 0) -> None:
    """Note that every log was closed cleanly, as the last thing that a broker does.

    Not if the last stop was not clean, and the cluster has not heard of it since: then nobody would learn of it.
    """
    try:
        replace_file(disk, data_dir / CLEAN_NAME, encode_note(EpochNote(identity.directory_id, broker_epoch)))
    except ResourcesExhausted as error:
        logger.warning("the next start takes this stop for a crash: %s", error)


def read_identity(disk: Disk, data_dir: Path) -> DirectoryNote | None:
    """Return whose directory it is; None if it has no identity that can be read."""
    return read_note(disk, data_dir / IDENTITY_NAME, DirectoryNote)


def write_identity(disk: Disk, data_dir: Path, note: DirectoryNote) -> None:
    replace_file(disk, data_dir / IDENTITY_NAME, encode_note(note))
