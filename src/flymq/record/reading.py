"""Decode a run: consecutive batches, as in a fetch response or a segment.

Control batches are skipped, and so is an incomplete batch at the end of the run. A reader may start in the middle of a
batch. Records of the aborted transactions that are listed in a fetch response are skipped too:

    1. a transaction of the list begins at its first offset: from there its producer's batches are dropped,
    2. the producer's abort marker ends it, so that the same producer's next transaction is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from flymq.model.errors import InvalidBatch
from flymq.record import codec
from flymq.record.batch import unpack
from flymq.record.compression import DECOMPRESSED_BYTES_MAX
from flymq.record.control import MarkerType, parse_marker
from flymq.record.header import BatchHeader, Buffer, check_checksum, split_batches
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


def intact_part(run: Buffer) -> tuple[memoryview, InvalidBatch | None]:
    """Return the batches of `run` before the first header that cannot be one, and what is wrong with that."""
    view = memoryview(run)
    end = 0
    try:
        for position, header in split_batches(run):
            end = position + header.size
    except InvalidBatch as error:
        return view[:end], error
    return view, None


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


class BrokenBatch(NamedTuple):
    """A batch that cannot be decoded, in a run."""

    position: int
    size: int
    offset: int
    """The first offset of it that the reader wanted."""
    next_offset: int
    error: InvalidBatch


def find_broken(run: Buffer, start_offset: int = 0, aborted: Sequence[Aborted] = ()) -> BrokenBatch | None:
    """Return the first batch that stops a reader at `start_offset`; None if all can be decoded.

    It costs as much as decoding: for a run that could not be. A header that cannot be one raises its error, since the
    end of such a batch is unknown.
    """
    visibility = _Visibility(start_offset, aborted)
    for position, header in split_batches(run):
        try:
            if visibility.shows(run, position, header):
                codec.parse_records([unpack(run, position, header, DECOMPRESSED_BYTES_MAX)], start_offset)
        except InvalidBatch as error:
            offset = max(header.base_offset, start_offset)
            return BrokenBatch(position, header.size, offset, max(header.next_offset, offset + 1), error)
    return None


def cut_out(run: Buffer, broken: BrokenBatch) -> bytes:
    """Return the run without a batch."""
    view = memoryview(run)
    return b"".join((view[: broken.position], view[broken.position + broken.size :]))


def visible(
    run: Buffer, start_offset: int, aborted: Sequence[Aborted], decompressed_bytes_max: int
) -> Iterator[Section]:
    """Yield the decompressed records of each batch that a reader at `start_offset` may see."""
    visibility = _Visibility(start_offset, aborted)
    for position, header in split_batches(run):
        if visibility.shows(run, position, header):
            yield unpack(run, position, header, decompressed_bytes_max)


class _Visibility:
    """Which batches of a run a reader sees. Asked batch by batch, in order."""

    def __init__(self, start_offset: int, aborted: Sequence[Aborted]) -> None:
        self._start_offset = start_offset
        self._coming = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._aborting: set[int] = set()

    def shows(self, run: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether the reader sees the next batch, whose checksum is right then."""
        coming, aborting = self._coming, self._aborting
        is_wanted = header.last_offset >= self._start_offset
        if is_wanted:
            check_checksum(run, position, header)
        while coming and coming[-1][1] <= header.last_offset:
            aborting.add(coming.pop()[0])
        is_aborting = header.is_transactional and header.producer_id in aborting
        if header.is_control:
            # One before the start was read, or skipped because it is broken: it ended the transaction either way.
            if is_aborting and (not is_wanted or _is_abort(run, position)):
                aborting.remove(header.producer_id)
            return False
        return is_wanted and not is_aborting


def _is_abort(run: Buffer, position: int) -> bool:
    marker = parse_marker(run, position)
    return marker is not None and marker.type is MarkerType.ABORT
