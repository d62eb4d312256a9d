"""Keep only the last value of each key, in sealed segments, without touching order or offsets.

Compaction is due when enough bytes were written since the last run (`min.cleanable.dirty.ratio`), or when a record has
waited for `max.compaction.lag.ms`. A run takes three steps, so that the loop is never blocked and a crash at any point
leaves the old or the new state:

1. `plan` (on the loop): which segments, and what is known of transactions and producers.
2. `CompactionPlan.run` (in a thread): read the segments, find each key's last offset, write what stays to new segments
   in `compacting/` and fsync them.
3. `finish` (in steps): decide for each with one rename, then remove the old files and put the new one in their
   place (segment_swap.py), in a thread. A crash after the decision is repaired at opening. Segments that retention or
   truncation took since the plan was made are left alone.

Removed: records with a later one of the same key, records of aborted transactions, and, once they were kept for
`delete.retention.ms` since compaction first saw them, tombstones and markers of transactions of which nothing is left.
Kept: records without a key, everything from the first open transaction on, the last batch of each producer
(emptied: its sequence number identifies duplicates).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from flymq.host.disk import Disk
from flymq.host.tasks import Steps
from flymq.model.errors import InvalidBatch, ResourcesExhausted, StorageError
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import retain, seal, unpack, with_delete_horizon
from flymq.record.codec import LastOffsets
from flymq.record.compression import DECOMPRESSED_BYTES_MAX, Compression
from flymq.record.header import HEADER_SIZE, BatchHeader, Buffer, parse_header
from flymq.record.record import Record
from flymq.storage.compaction.segment_swap import SCRATCH_NAME, decide_swap, finish_swaps
from flymq.storage.log import Log
from flymq.storage.recovery.checkpoint import Compacted
from flymq.storage.segments.segment import (
    DATA_SUFFIX,
    INDEX_SUFFIX,
    OFFSETS_MAX,
    TIME_INDEX_SUFFIX,
    Segment,
    segment_name,
)

KEYS_MAX = 3 << 21
"""Keys held in memory at once, 24 bytes each in a table that is up to three quarters full: 200 MB. A run ends with the
segment in which it reaches the limit; the next one continues from there."""

_WRITE_BYTES = 1 << 18  # written at once


_GROUP_MAX = 32
"""Segments that become one. Their files are held open while they are exchanged."""


@dataclass(slots=True)
class CompactionResult:
    """What a run changed."""

    groups: list[list[int]] = field(default_factory=list)
    """Base offsets of segments that became one."""
    bytes_before: int = 0
    bytes_after: int = 0


@dataclass(slots=True)
class CompactionPlan:
    """Everything a run needs, copied, so that it can work while the log is in use."""

    disk: Disk
    directory: Path
    config: TopicConfig
    now_ms: int
    truncations: int
    ranges: list[tuple[int, int]]
    """Base and next offset of each segment to compact."""
    done_offset: int
    """Before it every key occurs once: only later records can supersede others."""
    aborted: dict[int, list[tuple[int, int]]]
    """Producer id → first and last offset of each of its aborted transactions."""
    producer_ends: dict[int, int]
    """Producer id → last offset it wrote; -1 if it has written nothing but markers."""

    @property
    def end_offset(self) -> int:
        return self.ranges[-1][1]

    def run(self) -> CompactionResult:
        """Write the compacted segments. In a thread: it reads everything, some of it twice.

        What is done for each record is compiled code that does not hold the interpreter's lock.

        FileVanished means that retention removed a segment first; the next plan leaves it out.
        """
        try:
            return self._run()
        except ResourcesExhausted:
            with suppress(StorageError):  # it would keep the disk full
                self.disk.remove_directory(self.directory / SCRATCH_NAME)
            raise

    def _run(self) -> CompactionResult:
        last_offsets = self._last_offsets()
        scratch = self.directory / SCRATCH_NAME
        self.disk.remove_directory(scratch)
        self.disk.make_directory(scratch)
        result = CompactionResult()
        unended: set[int] = set()
        for group in self._groups():
            compacted = self._rewrite(group, last_offsets, unended, scratch)
            result.groups.append([segment.base_offset for segment in group])
            result.bytes_before += sum(segment.size for segment in group)
            result.bytes_after += compacted.size
            compacted.file.sync()
        return result

    def _segments(self) -> Iterator[Segment]:
        # Objects of our own: those of the log are read by the loop at the same time.
        for base_offset, next_offset in self.ranges:
            yield Segment.open_sealed(
                self.disk,
                self.directory,
                base_offset,
                next_offset=next_offset,
                index_interval_bytes=self.config.index_interval_bytes,
            )

    def _last_offsets(self) -> LastOffsets:
        """Return, for each key written since the last run, the offset of its last record that counts."""
        last = LastOffsets()
        for number, segment in enumerate(self._segments(), start=1):
            if segment.next_offset <= self.done_offset:
                continue
            for _, header, batch in segment.read_checked(0, segment.size):
                if not header.is_control and not self._is_aborted(header):
                    with suppress(InvalidBatch):  # the checksum is right, so a client wrote it like this; it is kept
                        last.add(unpack(batch, 0, header, DECOMPRESSED_BYTES_MAX))
            if len(last) >= KEYS_MAX:
                del self.ranges[number:]
                break
        return last

    def _groups(self) -> Iterator[list[Segment]]:
        """Yield neighbouring segments that together fit into one."""
        group: list[Segment] = []
        for segment in self._segments():
            together = sum(member.size for member in group) + segment.size
            span = segment.next_offset - group[0].base_offset if group else 0
            is_full = together > self.config.segment_bytes or span > OFFSETS_MAX or len(group) == _GROUP_MAX
            if group and is_full:
                yield group
                group = []
            group.append(segment)
        if group:
            yield group

    def _rewrite(self, group: list[Segment], last_offsets: LastOffsets, unended: set[int], scratch: Path) -> Segment:
        """Write the batches of `group` that stay to a new segment.

        `unended` are the producers that have batches left of a transaction whose marker is still to come.
        """
        target = Segment.create(
            self.disk, scratch, group[0].base_offset, index_interval_bytes=self.config.index_interval_bytes
        )
        output = _Output(target)
        for segment in group:
            for _, header, batch in segment.read_checked(0, segment.size):
                if header.is_control:
                    kept = self._marker(header, batch, has_records_left=header.producer_id in unended)
                    unended.discard(header.producer_id)
                else:
                    kept = self._compact(header, batch, last_offsets)
                    if kept is not None and header.is_transactional:
                        unended.add(header.producer_id)
                if kept is not None:
                    output.add(kept)
        output.flush()
        target.seal()
        return target

    def _marker(self, header: BatchHeader, batch: Buffer, *, has_records_left: bool) -> Buffer | None:
        """Return a marker with its delete horizon; None after the horizon, if nothing needs the marker."""
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            return retain(batch, 0, _always, delete_horizon_ms=self.now_ms + self.config.delete_retention_ms)
        # A reader that is told of an aborted transaction needs to see its end. So does a replay that sees a batch of
        # any transaction, even an emptied one: otherwise the transaction would look open. And a producer's last
        # marker carries its epoch.
        is_needed = (
            has_records_left
            or self._is_aborted(header)
            or header.last_offset > self.producer_ends.get(header.producer_id, header.last_offset)
        )
        return batch if is_needed or horizon_ms > self.now_ms else None

    def _compact(self, header: BatchHeader, batch: Buffer, last_offsets: LastOffsets) -> Buffer | None:
        """Return what stays of a batch of records; None when nothing does."""
        horizon_ms = header.delete_horizon_ms
        drop_tombstones = horizon_ms is not None and horizon_ms <= self.now_ms
        kept = tombstones = 0
        if not self._is_aborted(header):
            # The append time belongs to the batch: the records' own timestamps are kept as they are.
            try:
                section = unpack(batch, 0, header, DECOMPRESSED_BYTES_MAX)._replace(append_time_ms=None)
                kept, tombstones = last_offsets.count_kept(section, drop_tombstones)
            except InvalidBatch:
                return batch  # the checksum is right, so a client wrote it like this; not ours to delete
        if kept and kept == header.record_count and (horizon_ms is not None or not tombstones):
            return batch
        if not kept:
            if self.producer_ends.get(header.producer_id) != header.last_offset:
                return None
            return seal(bytearray(HEADER_SIZE), header._replace(record_count=0), Compression.NONE)
        if tombstones and horizon_ms is None:
            horizon_ms = self.now_ms + self.config.delete_retention_ms
            header = with_delete_horizon(header, horizon_ms)
        records = last_offsets.retain(section, drop_tombstones, HEADER_SIZE, header.base_timestamp)
        return seal(records, header._replace(record_count=kept), Compression(header.compression))

    def _is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction, of which the marker is the end."""
        return header.is_transactional and any(
            first <= header.base_offset <= last for first, last in self.aborted.get(header.producer_id, ())
        )


def roll_late(log: Log, now_ms: int) -> None:
    """Seal the active segment if it has waited for `max.compaction.lag.ms`: only sealed ones are compacted."""
    active = log.segments[-1]
    if log.failure is None and active.size and _is_late(active, log.config, now_ms):
        log.roll()


def needs_checkpoint(log: Log, now_ms: int, *, committed: int | None = None) -> bool:
    """Whether compaction is due, but waits for a checkpoint: what is not durable is not compacted."""
    due = _due(log, now_ms, log.end_offset if committed is None else committed)
    return bool(due) and due[-1].next_offset > log.recovery_offset


def _due(log: Log, now_ms: int, end_offset: int) -> list[Segment]:
    """Return the segments before `end_offset` to compact; none when too little has changed since the last time."""
    config = log.config
    if not config.cleanup_policy.compacts or log.failure is not None:
        return []
    if (first_open := log.producers.first_open_offset) is not None:
        end_offset = min(end_offset, first_open)
    chosen: list[Segment] = []
    for segment in log.segments[:-1]:
        if segment.next_offset > end_offset or now_ms - segment.max_timestamp < config.min_compaction_lag_ms:
            break
        chosen.append(segment)
    dirty = [segment for segment in chosen if segment.next_offset > log.compacted.end_offset]
    dirty_bytes, total_bytes = (sum(segment.size for segment in some) for some in (dirty, chosen))
    if not dirty_bytes:
        return []
    is_enough = dirty_bytes >= total_bytes * config.min_cleanable_dirty_ratio
    return chosen if is_enough or _is_late(dirty[0], config, now_ms) else []


def _is_late(segment: Segment, config: TopicConfig, now_ms: int) -> bool:
    """Whether the first record of a segment has waited for `max.compaction.lag.ms`.

    When it came is known while the broker runs. After a restart it is the latest time of the segment, which was sealed
    no later than that lag after its first record.
    """
    oldest_ms, written_ms = segment.max_timestamp, segment.written_since_ms
    if written_ms is not None:
        oldest_ms = written_ms if oldest_ms < 0 else min(oldest_ms, written_ms)  # -1: no record has a time
    return now_ms - oldest_ms >= config.max_compaction_lag_ms


def plan(log: Log, now_ms: int, *, committed: int | None = None) -> CompactionPlan | None:
    """Return what to compact; None when too little has changed since the last time.

    What is not `committed` may be truncated, so it must not replace what is.
    """
    chosen = _due(log, now_ms, log.recovery_offset if committed is None else min(log.recovery_offset, committed))
    if not chosen:
        return None
    aborted: dict[int, list[tuple[int, int]]] = {}
    for entry in log.aborted_between(0, chosen[-1].next_offset):
        aborted.setdefault(entry.producer_id, []).append((entry.first_offset, entry.last_offset))
    return CompactionPlan(
        disk=log.disk,
        directory=log.directory,
        config=log.config,
        now_ms=now_ms,
        truncations=log.truncations,
        ranges=[(segment.base_offset, segment.next_offset) for segment in chosen],
        done_offset=log.compacted.end_offset,
        aborted=aborted,
        producer_ends={
            producer.producer_id: producer.window[-1].last_offset if producer.window else -1
            for producer in log.producers.all()
        },
    )


def finish(log: Log, plan: CompactionPlan, result: CompactionResult) -> Steps[None]:
    """Put the compacted segments in the place of the old ones.

    Nothing else that removes or replaces segments may run meanwhile; appends, reads and checkpoints may.
    """
    if _is_wanted(log, plan):
        yield from _allow_gaps(log, plan)
    try:
        if _is_wanted(log, plan):
            yield from _finish(log, plan, result)
        yield partial(log.disk.remove_directory, log.directory / SCRATCH_NAME)
    except StorageError as error:
        log.go_offline(error)
        raise


def _is_wanted(log: Log, plan: CompactionPlan) -> bool:
    return log.failure is None and log.truncations == plan.truncations


def _allow_gaps(log: Log, plan: CompactionPlan) -> Steps[None]:
    """From here on a segment may end before the next one begins, and a scan must not report that as a loss."""
    gaps_end = max(plan.end_offset, log.compacted.gaps_end)
    try:
        yield partial(log.note_compacted, Compacted(log.compacted.end_offset, gaps_end=gaps_end))
    except ResourcesExhausted:  # nothing has changed
        with suppress(StorageError):
            yield partial(log.disk.remove_directory, log.directory / SCRATCH_NAME)
        raise
    except StorageError as error:
        log.go_offline(error)
        raise


def _finish(log: Log, plan: CompactionPlan, result: CompactionResult) -> Steps[None]:
    present = {segment.base_offset for segment in log.segments}
    groups = [group for group in result.groups if present.issuperset(group)]  # retention may have taken others
    for group in groups:
        with log.replacing_segments(group):
            yield partial(_swap, log.disk, log.directory, group)
    if groups == result.groups:
        log.forget_aborted_before(plan.end_offset)
        yield partial(log.note_compacted, Compacted(plan.end_offset, gaps_end=log.compacted.gaps_end))


def _swap(disk: Disk, directory: Path, group: list[int]) -> None:
    """Exchange the files, in a thread. Readers of the old segments hold them open."""
    scratch = directory / SCRATCH_NAME
    decide_swap(disk, directory, scratch / segment_name(group[0], DATA_SUFFIX), group)
    finish_swaps(disk, directory)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        name = segment_name(group[0], suffix)
        disk.rename(scratch / name, directory / name)


class _Output:
    """Batches on their way to a segment, written many at once."""

    def __init__(self, target: Segment) -> None:
        self._target = target
        self._pieces: list[Buffer] = []
        self._headers: list[BatchHeader] = []
        self._size = 0

    def add(self, batch: Buffer) -> None:
        self._pieces.append(batch)
        self._headers.append(parse_header(batch))
        self._size += len(batch)
        if self._size >= _WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._pieces:
            self._target.append(self._pieces, self._headers)
            self._pieces, self._headers, self._size = [], [], 0


def _always(_record: Record) -> bool:
    return True
