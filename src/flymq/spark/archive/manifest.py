"""Manifests: what an archive holds. A file that no manifest names is not part of it.

One manifest is published for each batch of a job, so the records of a batch are in the archive all at once or not at
all. It also keeps what the records alone do not tell: the settings of the topics and how far groups had read.
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

Settings: TypeAlias = dict[str, str | int | None]
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
    """What is needed to make the topic again."""

    topic_id: str
    partitions: int
    replication_factor: int = 1
    settings: Settings = {}
    """Those set for the topic itself."""
    in_force: Settings = {}
    """All of them, whoever set them."""


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
    """Of the manifest with 0 here, without the spaces that are there for people."""

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
    """Return the name of a batch's manifest: the same for a batch that is run again."""
    return f"{query}-{batch:010d}{SUFFIX}"


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest's bytes, with their checksum."""
    signed = msgspec.structs.replace(manifest, crc32c=_checksum(manifest))
    return msgspec.json.format(msgspec.json.encode(signed), indent=1) + b"\n"


def parse_manifest(content: bytes, name: str) -> Manifest:
    """Return the manifest in these bytes of the file `name`, or raise what is wrong with it."""
    try:
        version = msgspec.json.decode(content, type=_Version).format
        if version > FORMAT:
            raise ArchiveTooNew(f"{name} has format {version}; this FlyMQ reads up to {FORMAT}")
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as fault:
        raise ArchiveDamaged(f"{name} is not a whole manifest: {fault}") from fault
    if manifest.crc32c != _checksum(manifest):
        raise ArchiveDamaged(f"{name} was altered: its checksum does not match")
    return manifest


def _checksum(manifest: Manifest) -> int:
    return crc32c(msgspec.json.encode(msgspec.structs.replace(manifest, crc32c=0)))


def by_partition(manifests: Iterable[Manifest]) -> dict[TopicPartition, list[Piece]]:
    """Return the pieces of each partition in the order of their offsets."""
    found: dict[TopicPartition, list[Piece]] = {}
    for manifest in manifests:
        for piece in manifest.pieces:
            found.setdefault(piece.name, []).append(piece)
    for pieces in found.values():
        pieces.sort(key=lambda piece: (piece.start_offset, piece.end_offset))
    return dict(sorted(found.items()))


def end_offsets(manifests: Iterable[Manifest]) -> dict[TopicPartition, int]:
    """Return the first offset of each partition that is not in the archive yet."""
    return {name: max(piece.end_offset for piece in pieces) for name, pieces in by_partition(manifests).items()}
