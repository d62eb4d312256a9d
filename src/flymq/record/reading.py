"""Decode a run: consecutive batches, as in a fetch response or a segment.

Control batches are skipped, and so is an incomplete batch at the end of the run. A reader may start in the middle of a
batch. Records of the aborted transactions that are listed in a fetch response are skipped too:

    1. a transaction of the list begins at its first offset: from there its producer's batches are dropped,
    2. the producer's abort marker ends it, so that the same producer's next transaction is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from flymq.record import codec
from flymq.record.batch import unpack
from flymq.record.compression import DECOMPRESSED_BYTES_MAX
from flymq.record.control import MarkerType, parse_marker
from flymq.record.header import Buffer, check_checksum, split_batches
from flymq.record.record import Pair, Record, Row
from flymq.record.shapes import Section

Aborted: TypeAlias = tuple[int, int]
"""Producer id and first offset of an aborted transaction, whose records a read_committed reader must not see."""


def parse_records(
    run: Buffer,
    *,
    start_offset: int = 0,
    aborted: Sequence[Aborted] = (),
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[Record]:
    """Return the records of `run` from `start_offset` on, without those of the `aborted` transactions."""
    return codec.parse_records(visible(run, start_offset, aborted, decompressed_bytes_max), start_offset)


def parse_pairs(
    run: Buffer,
    *,
    start_offset: int = 0,
    aborted: Sequence[Aborted] = (),
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[Pair]:
    """Return (key, value) of what `parse_records` would return."""
    return codec.parse_pairs(visible(run, start_offset, aborted, decompressed_bytes_max), start_offset)


def parse_rows(
    run: Buffer,
    *,
    start_offset: int = 0,
    aborted: Sequence[Aborted] = (),
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[Row]:
    """Return (offset, timestamp_ms, key, value) of what `parse_records` would return."""
    return codec.parse_rows(visible(run, start_offset, aborted, decompressed_bytes_max), start_offset)


def end_offset(run: Buffer) -> int | None:
    """Return the offset after the last complete batch of `run`, where the next read starts; None if there is none."""
    end = None
    for _, header in split_batches(run):
        end = header.next_offset
    return end


def first_record_at(
    run: Buffer, timestamp_ms: int, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Record | None:
    """Return the first record of `run` with this timestamp or a later one; earlier batches are not decompressed."""
    for position, header in split_batches(run):
        if header.max_timestamp < timestamp_ms or header.is_control:
            continue
        check_checksum(run, position, header)
        for record in codec.parse_records([unpack(run, position, header, decompressed_bytes_max)], 0):
            if record.timestamp_ms >= timestamp_ms:
                return record
    return None


def visible(
    run: Buffer, start_offset: int, aborted: Sequence[Aborted], decompressed_bytes_max: int
) -> Iterator[Section]:
    """Yield the decompressed records of each batch that a reader at `start_offset` may see."""
    coming = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for position, header in split_batches(run):
        check_checksum(run, position, header)
        while coming and coming[-1][1] <= header.last_offset:
            aborting.add(coming.pop()[0])
        is_aborting = header.is_transactional and header.producer_id in aborting
        if header.is_control:
            if is_aborting and _is_abort(run, position):
                aborting.remove(header.producer_id)
        elif header.last_offset >= start_offset and not is_aborting:
            yield unpack(run, position, header, decompressed_bytes_max)


def _is_abort(run: Buffer, position: int) -> bool:
    marker = parse_marker(run, position)
    return marker is not None and marker.type is MarkerType.ABORT
