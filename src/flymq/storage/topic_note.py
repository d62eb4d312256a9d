"""What a topic is, beside its partitions: a note (recovery/checksummed_note.py) in its folder.

A broker reads it only when the metadata does not know the folder: then the topic can be adopted with its name, id,
partitions and settings. A lost note is written again at the next start, so it is not synced.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import msgspec

from flymq.host.disk import Disk, write_aside
from flymq.storage.recovery.checksummed_note import encode_note, read_note

NOTE_NAME = "topic"


class TopicNote(msgspec.Struct, frozen=True):
    name: str
    topic_id: UUID
    partitions: int
    replication_factor: int
    settings: dict[str, str | int | float]


def read_topic_note(disk: Disk, folder: Path) -> TopicNote | None:
    """Return the note in a topic's folder; None when there is none that can be read."""
    return read_note(disk, folder / NOTE_NAME, TopicNote)


def write_topic_note(disk: Disk, folder: Path, note: TopicNote) -> None:
    write_aside(disk, folder / NOTE_NAME, encode_note(note))


def remove_topic_note(disk: Disk, folder: Path) -> None:
    """Remove the note for good: a folder without one is not adopted, whatever else is left in it."""
    if disk.exists(folder / NOTE_NAME):
        disk.remove(folder / NOTE_NAME)
        disk.sync_directory(folder)
