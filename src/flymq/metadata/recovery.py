"""Find the newest state of the metadata store that its files hold: an image and the changes after it.

There are two images and the journals since the older one (images.py, journal.py), so one damaged file, or one flipped
bit in any of them, costs nothing. What was durable and cannot be read any more is an error, never a shorter history.
Nothing is written here.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from flymq.host.disk import Disk
from flymq.metadata.images import (
    FIRST_REVISION,
    IMAGE_NAME,
    PREVIOUS_NAME,
    Image,
    new_image,
    read_image,
    row_checksum,
)
from flymq.metadata.journal import Change, Described, journal_path, list_journals, parse_lines
from flymq.model.errors import CorruptMetadata


@dataclass(slots=True)
class Recovered:
    """The store at its latest revision, in memory."""

    connection: sqlite3.Connection
    revision: int
    is_new: bool = False
    """There was nothing: no store was ever here, or all of it was removed."""
    problems: list[str] = field(default_factory=list)
    """What was damaged and restored."""
    lost: list[str] = field(default_factory=list)
    """What could not be restored: empty, unless the caller accepts a loss."""
    damaged: list[Path] = field(default_factory=list)
    """Files to be kept aside."""
    image_revision: int | None = None
    """Of `metadata.db`; None if there is none that can be used."""
    previous_revision: int | None = None
    journal: int | None = None
    """The journal that can be continued; None if a new one is needed."""


@dataclass(slots=True)
class _Journals:
    described: dict[int, Described] = field(default_factory=dict)
    changes: dict[int, Change] = field(default_factory=dict)
    names: list[int] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    """Those with anything in them."""
    last_is_whole: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def durable(self) -> int:
        """The latest revision that is known to have been on the disk."""
        return max((change.durable for change in self.changes.values()), default=0)


def recover(disk: Disk, directory: Path, *, accept_loss: bool = False) -> Recovered:
    """Read the files of the store; raise `CorruptMetadata` if something in them is lost, unless that is accepted."""
    journals = _read_journals(disk, directory)
    fresh = new_image()
    recovered = Recovered(fresh.connection, fresh.revision, problems=journals.problems)
    images = _read_images(disk, directory, journals, recovered)
    if not images:
        return _without_image(directory, journals, recovered, accept_loss=accept_loss)
    best = max(images, key=lambda image: _end(image, journals))
    end = _end(best, journals)
    durable = max(journals.durable, *(image.revision for image in images))
    if end < durable:
        recovered.lost.append(f"the changes of the revisions {end + 1} to {durable}")
    if best.needs_journal and best.revision not in journals.described:
        recovered.lost.append(f"the changes after revision {best.revision}: {_journal_name(best.revision)} is missing")
    if recovered.lost and not accept_loss:
        raise CorruptMetadata("; ".join((f"{directory}: cannot read {recovered.lost[0]}", *recovered.problems)))
    for revision in range(best.revision + 1, end + 1):
        _apply(best.connection, journals.changes[revision])
    recovered.connection, recovered.revision = best.connection, end
    # Lines after a gap were never acknowledged; their revisions are used again.
    recovered.damaged += (journal_path(directory, name) for name in journals.names if name > end)
    usable = journals.last_is_whole and journals.begun[-1] <= end and max(journals.changes, default=0) <= end
    if usable and journals.begun[-1] in journals.described:
        recovered.journal = journals.begun[-1]
    return recovered


def _read_journals(disk: Disk, directory: Path) -> _Journals:
    journals = _Journals(names=list_journals(disk, directory))
    for name in journals.names:
        raw = disk.read(journal_path(directory, name))
        lines, whole = parse_lines(raw)
        if not lines:
            continue  # the disk was full, or lost power, when it was created: nothing in it was ever acknowledged
        journals.begun.append(name)
        journals.last_is_whole = whole == len(raw)
        # A journal that begins here replaces what others had written after it: that was never acknowledged.
        journals.changes = {revision: line for revision, line in journals.changes.items() if revision <= name}
        for line in lines:
            if isinstance(line, Described):
                journals.described[line.revision] = line
            else:
                journals.changes[line.revision] = line
        if parse_lines(raw[whole:])[0]:  # whole lines follow, so it is not the torn end of a crash
            journals.problems.append(f"{_journal_name(name)} is damaged at byte {whole}; the second copy was read")
    return journals


def _read_images(disk: Disk, directory: Path, journals: _Journals, recovered: Recovered) -> list[Image]:
    """Return the images that can be used, the newest one first."""
    images = []
    for name in (IMAGE_NAME, PREVIOUS_NAME):
        path = directory / name
        if not disk.exists(path):
            continue
        try:
            image = read_image(disk, path, journals.described)
        except CorruptMetadata as error:
            recovered.problems.append(error.message)
            recovered.damaged.append(path)
            continue
        images.append(image)
        if name == IMAGE_NAME:
            recovered.image_revision = image.revision
        else:
            recovered.previous_revision = image.revision
    first = journals.described.get(FIRST_REVISION)
    if first is not None and first.keys == 0:
        images.append(new_image())  # a store begins empty, and has no image of that
    elif recovered.image_revision is None and recovered.previous_revision is not None and not recovered.damaged:
        recovered.problems.append(f"{directory / IMAGE_NAME} is missing")
    return images


def _without_image(directory: Path, journals: _Journals, recovered: Recovered, *, accept_loss: bool) -> Recovered:
    if recovered.damaged or journals.changes or journals.described:
        recovered.lost.append("any image of the metadata")
        if not accept_loss:
            raise CorruptMetadata("; ".join(recovered.problems) or "every image of the metadata is missing")
    recovered.damaged += (journal_path(directory, name) for name in journals.names)
    recovered.is_new = True
    return recovered


def _end(image: Image, journals: _Journals) -> int:
    """The last revision that can be reached from an image."""
    end = image.revision
    while end + 1 in journals.changes:
        end += 1
    return end


def _apply(connection: sqlite3.Connection, change: Change) -> None:
    connection.execute("BEGIN")
    for put in change.puts:
        row = (put.key.encode(), put.value, put.create_revision, change.revision, put.lease)
        connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?)", (*row, row_checksum(*row)))
    connection.executemany("DELETE FROM entries WHERE key = ?", ((key.encode(),) for key in change.deletes))
    connection.execute("UPDATE latest SET revision = ?", (change.revision,))
    connection.execute("COMMIT")


def _journal_name(revision: int) -> str:
    return journal_path(Path(), revision).name
