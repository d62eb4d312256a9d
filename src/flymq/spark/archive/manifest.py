"""Manifests: the contents of an archive. A file that is in no manifest is not part of it.

One manifest is published per batch of a job, so a batch is added atomically. It also has what the records do not
contain: the settings of the topics and the committed offsets of groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec
from msgspec import Struct

from flymq.model.errors import ArchiveDamaged, ArchiveTooNew
from flymq.model.names import TopicPartition
from flymq.record.checksum import crc32c

FORMAT = 1
SUFFIX = ".json"

Settings: TypeAlias = dict[str, str | int | float | None]
GroupOffsets: TypeAlias = dict[str, dict[str, dict[int, int]]]
"""The next offset to read: by group, topic and partition."""


class Piece(Struct, frozen=True):
    """A range of offsets of one partition, and the file with its records. A range without records has no file."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    rows: int = 0
    file: str = ""
    size_bytes: int = 0
    crc32c: int = 0
    min_timestamp_ms: int = -1
    max_timestamp_ms: int = -1

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class TopicState(Struct, frozen=True):
    """What is needed to recreate the topic."""

    topic_id: str
    partitions: int
    replication_factor: int = 1
    settings: Settings = {}
    """The topic's own settings, without defaults."""
    in_force: Settings = {}
    """All settings, including defaults."""


class Manifest(Struct, frozen=True, kw_only=True):
    """One batch of the archive."""

    format: int = FORMAT
    query: str
    batch: int
    created_ms: int
    pieces: list[Piece]
    topics: dict[str, TopicState] = {}
    groups: GroupOffsets = {}
    crc32c: int = 0
    """CRC-32C of the manifest as compact JSON with 0 in this field."""

    @property
    def file(self) -> str:
        return manifest_file(self.query, self.batch)

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


class _Version(Struct):
    format: int


def manifest_file(query: str, batch: int) -> str:
    """Return the file name of a batch's manifest: the same when the batch is rerun."""
    return f"{query}-{batch:010d}{SUFFIX}"


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the encoded manifest, with its checksum."""
    signed = msgspec.structs.replace(manifest, crc32c=_checksum(manifest))
    return msgspec.json.format(msgspec.json.encode(signed), indent=1) + b"\n"


def parse_manifest(content: bytes, name: str) -> Manifest:
    """Return the manifest in these bytes of the file `name`, or raise an error that says why it is invalid."""
    try:
        version = msgspec.json.decode(content, type=_Version).format
        if version > FORMAT:
            raise ArchiveTooNew(f"{name} has format {version}; this version of FlyMQ supports up to {FORMAT}")
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise ArchiveDamaged(f"{name} is not a complete manifest: {fault}") from fault
    if manifest.crc32c != _checksum(manifest):
        raise ArchiveDamaged(f"{name} was modified: its checksum does not match")
    return manifest


def _checksum(manifest: Manifest) -> int:
    return crc32c(msgspec.json.encode(msgspec.structs.replace(manifest, crc32c=0)))


def by_partition(manifests: Iterable[Manifest]) -> dict[TopicPartition, list[Piece]]:
    """Return the pieces of each partition, ordered by offset."""
    found: dict[TopicPartition, list[Piece]] = {}
    for manifest in manifests:
        for piece in manifest.pieces:
            found.setdefault(piece.name, []).append(piece)
    for pieces in found.values():
        pieces.sort(key=lambda piece: (piece.start_offset, piece.end_offset))
    return dict(sorted(found.items()))


def end_offsets(manifests: Iterable[Manifest]) -> dict[TopicPartition, int]:
    """Return the first offset of each partition that is not archived yet."""
    return {name: max(piece.end_offset for piece in pieces) for name, pieces in by_partition(manifests).items()}
