"""Read a segment whatever its state: the whole batches, and the damage between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from flymq.host.disk import Disk
from flymq.model.errors import InvalidBatch
from flymq.record.bit_flips import find_flipped_bit
from flymq.record.header import HEADER_SIZE, LENGTH_END, MAGIC, MAGIC_AT, BatchHeader, check_batch, parse_header
from flymq.record.reading import parse_records
from flymq.storage.segments.segment import OFFSETS_MAX

OFFSET_END = 8
_SEARCH_BYTES = 1 << 20
_FLIP_BYTES_MAX = 4 << 20
"""Larger batches are not searched for a flipped bit: that takes a second for each megabyte."""


@dataclass(slots=True)
class Whole:
    """Adjacent whole batches."""

    start: int
    end: int
    first_offset: int
    next_offset: int


@dataclass(slots=True)
class Damaged:
    """Bytes that are no whole batch."""

    start: int
    end: int
    reason: str
    offsets: tuple[int, int]
    """The offsets that were here, half-open: those between the batches around it."""
    mended: bytes | None = None
    """The batch as it was, if one flipped bit is all that is wrong with it."""


@dataclass(slots=True)
class Examined:
    """What a segment holds, in the order of its bytes."""

    path: Path
    base_offset: int
    size: int
    parts: list[Whole | Damaged] = field(default_factory=list)

    @property
    def damaged(self) -> list[Damaged]:
        return [part for part in self.parts if isinstance(part, Damaged)]

    @property
    def next_offset(self) -> int:
        """The offset after the last batch that is whole, or can be mended."""
        ends = [part.next_offset if isinstance(part, Whole) else part.offsets[1] for part in self.parts if _kept(part)]
        return ends[-1] if ends else self.base_offset


def _kept(part: Whole | Damaged) -> bool:
    return isinstance(part, Whole) or part.mended is not None


def examine_segment(disk: Disk, path: Path, base_offset: int, following: int | None) -> Examined:
    """Read the whole file. `following` is the base offset of the next segment, if there is one."""
    view = disk.map(path)
    found = Examined(path, base_offset, len(view))
    position, next_offset, limit = 0, base_offset, following if following is not None else base_offset + OFFSETS_MAX
    while position < len(view):
        whole = _read_whole(view, position, next_offset, limit)
        if whole.end > position:
            found.parts.append(whole)
            position, next_offset = whole.end, whole.next_offset
        if position == len(view):
            break
        reason = _why(view, position, next_offset, limit)
        end, offset_after = _find_next(view, position, next_offset, limit)
        damaged = Damaged(position, end, reason, (next_offset, offset_after or following or next_offset))
        if (mended := _mend(view, position, end, next_offset, offset_after or limit)) is not None:
            damaged.mended = mended
            header = parse_header(mended)
            damaged.end = position + header.size
            damaged.offsets = (header.base_offset, header.next_offset)
        found.parts.append(damaged)
        position = damaged.end
        next_offset = damaged.offsets[1] if damaged.mended is not None else offset_after or next_offset
    return found


def _read_whole(view: memoryview, start: int, next_offset: int, limit: int) -> Whole:
    """Return the run of whole batches that begins at `start`; empty when there is none."""
    run = Whole(start, start, next_offset, next_offset)
    for position, header in _batches(view, start, next_offset, limit):
        if run.end == start:
            run.first_offset = header.base_offset
        run.end, run.next_offset = position + header.size, header.next_offset
    return run


def _batches(view: memoryview, position: int, next_offset: int, limit: int) -> Iterator[tuple[int, BatchHeader]]:
    while position < len(view):
        try:
            header = _check(view, position, next_offset, limit)
        except InvalidBatch:
            return
        yield position, header
        position, next_offset = position + header.size, header.next_offset


def _check(view: memoryview, position: int, next_offset: int, limit: int) -> BatchHeader:
    header = check_batch(view, position)
    if not next_offset <= header.base_offset < header.next_offset <= limit:
        raise InvalidBatch(
            f"its offsets are {header.base_offset} to {header.last_offset}, "
            f"but there is only room for {next_offset} to {limit - 1}"
        )
    if header.base_offset > next_offset:
        _check_gap(view, position + header.size, next_offset, header)
    return header


def _check_gap(view: memoryview, following: int, next_offset: int, header: BatchHeader) -> None:
    """Check a batch with a gap before it: its offset, which the checksum does not cover, may have been corrupted."""
    try:
        after = check_batch(view, following)
    except InvalidBatch:
        return
    if next_offset < after.base_offset < header.next_offset:
        raise InvalidBatch(f"its offsets reach to {header.last_offset}, beyond those that follow")


def _why(view: memoryview, position: int, next_offset: int, limit: int) -> str:
    try:
        _check(view, position, next_offset, limit)
    except InvalidBatch as error:
        return error.message
    raise AssertionError("the batch is whole")


def _find_next(view: memoryview, start: int, next_offset: int, limit: int) -> tuple[int, int | None]:
    """Return where the next whole batch begins, and its offset; the end of the file when there is none."""
    magic = bytes([MAGIC])
    for window in range(start + 1, len(view), _SEARCH_BYTES):
        piece = bytes(view[window + MAGIC_AT : window + MAGIC_AT + _SEARCH_BYTES])
        at = piece.find(magic)
        while at >= 0:
            try:
                return window + at, _check(view, window + at, next_offset, limit).base_offset
            except InvalidBatch:
                at = piece.find(magic, at + 1)
    return len(view), None


def _mend(view: memoryview, start: int, end: int, next_offset: int, limit: int) -> bytes | None:
    """Return the first batch of a damaged range as it was, if flipping one bit makes it whole and readable."""
    raw = bytes(view[start : min(end, start + _FLIP_BYTES_MAX)])
    if len(raw) < HEADER_SIZE:
        return None
    for candidate in _candidates(raw, next_offset, is_cut=end - start > len(raw)):
        try:
            header = check_batch(candidate)
            if next_offset <= header.base_offset and header.next_offset <= limit:
                batch = candidate[: header.size]
                parse_records(batch)
                return batch
        except InvalidBatch:
            continue
    return None


def _candidates(raw: bytes, next_offset: int, *, is_cut: bool) -> Iterator[bytes]:
    """Yield the batch with one bit flipped back: under the checksum, or in its offset, length or magic."""
    offset = int.from_bytes(raw[:OFFSET_END])
    if (offset ^ next_offset).bit_count() == 1:
        yield next_offset.to_bytes(OFFSET_END) + raw[OFFSET_END:]
    with suppress(InvalidBatch):
        size = parse_header(raw).size
        if size <= len(raw) and (flipped := find_flipped_bit(raw[:size])) is not None:
            yield _flip(raw[:size], *flipped)
    if is_cut:
        return
    for byte in (*range(OFFSET_END, LENGTH_END), MAGIC_AT):
        for bit in range(8):
            yield _flip(raw, byte, bit)


def _flip(raw: bytes, byte: int, bit: int) -> bytes:
    flipped = bytearray(raw)
    flipped[byte] ^= 1 << bit
    return bytes(flipped)
