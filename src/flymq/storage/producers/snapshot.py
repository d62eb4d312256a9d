"""The producer state of a partition at an offset, so that a replay need not read the whole log.

<offset>.producers    "FMQP", CRC32C of the rest (u32 LE), MessagePack: [producers, aborted mark]
                      producer: [id, epoch, window, first offset of the open transaction or nil,
                                 coordinator epoch, last timestamp, whether the epoch follows an earlier one,
                                 whether any sequence may follow]
                      window:   [[base sequence, last sequence, base offset, last offset, timestamp], …]
                      mark:     [base offset of the active segment, entries in its .aborted file,
                                 [[base offset, entries] of those before it, …]]
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

import msgspec

from flymq.host.disk import Disk
from flymq.record.checksum import crc32c
from flymq.storage.producers.aborted_transactions import AbortedMark
from flymq.storage.producers.producer_state import Producer, Producers
from flymq.storage.segments.segment import parse_name, segment_name

SUFFIX = ".producers"
_PREFIX = Struct("<4sI")
_MAGIC = b"FMQP"


class Snapshot(msgspec.Struct, array_like=True):
    producers: list[Producer]
    aborted: AbortedMark


# Made when this module is imported: logs are opened in several threads, and two that decode a struct for the first time
# at the same moment crash the interpreter (msgspec 0.22 prepares it then, and gives up the lock meanwhile).
_DECODER = msgspec.msgpack.Decoder(Snapshot)


def snapshot_name(offset: int) -> str:
    return segment_name(offset, SUFFIX)


def snapshot_offsets(disk: Disk, directory: Path) -> list[int]:
    """Return the offsets of the snapshots, ascending."""
    offsets = [parse_name(name, SUFFIX) for name in disk.list(directory)]
    return [offset for offset in offsets if offset is not None]


def encode_snapshot(producers: Producers, aborted: AbortedMark) -> bytes:
    body = msgspec.msgpack.encode(Snapshot(producers.all(), aborted))
    return _PREFIX.pack(_MAGIC, crc32c(body)) + body


def parse_snapshot(raw: bytes) -> Snapshot | None:
    """Read a snapshot; None when it is damaged."""
    if len(raw) < _PREFIX.size:
        return None
    magic, checksum = _PREFIX.unpack_from(raw)
    body = raw[_PREFIX.size :]
    if magic != _MAGIC or checksum != crc32c(body):
        return None
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def load_snapshot(disk: Disk, directory: Path, end_offset: int) -> tuple[int, Snapshot] | None:
    """Return the newest readable snapshot at or before `end_offset`, with its offset."""
    for offset in reversed(snapshot_offsets(disk, directory)):
        if offset <= end_offset:
            snapshot = parse_snapshot(disk.read(directory / snapshot_name(offset)))
            if snapshot is not None:
                return offset, snapshot
    return None


def remove_snapshots_after(disk: Disk, directory: Path, end_offset: int) -> None:
    """Remove snapshots after a truncation point: once other batches have those offsets, they would be wrong."""
    for offset in snapshot_offsets(disk, directory):
        if offset > end_offset:
            disk.remove(directory / snapshot_name(offset))
