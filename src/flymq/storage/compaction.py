"""Keep only the last value of each key, in sealed segments, without touching order or offsets.

A run takes three steps, so that the loop is never held up and a crash at any point leaves the old or the new state:

1. `plan` (on the loop): which segments, and what is known of transactions and producers.
2. `CompactionPlan.run` (in a thread): read the segments, find each key's last offset, write what stays to new segments
   in `compacting/`, fsync them, and commit each with one rename to `<first base>-<last base>.swap`.
3. `finish` (on the loop): take out the old files and put the new one in their place. A crash before the end of this
   step is repaired at opening by `finish_swap`, which does the same.

What goes: records with a later one of the same key, records of aborted transactions, and, once they were kept for
`delete.retention.ms` since compaction first met them, tombstones and transaction markers. What stays: records without
a key, everything from the first open transaction on, the last batch of each producer (emptied: its sequence number
tells repeats apart).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from flymq.host.disk import Disk, replace_file
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import parse_batch, retain
from flymq.record.header import BatchHeader, check_batch
from flymq.record.record import Record
from flymq.storage.log import Log
from flymq.storage.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment, segment_name
from flymq.storage.swap import SCRATCH_NAME, finish_swap, swap_name

DONE_NAME = "compacted"
_OFFSETS_PER_SEGMENT_MAX = (1 << 31) - 1


@dataclass(slots=True)
class CompactionResult:
    """What a run changed."""

    groups: list[list[int]] = field(default_factory=list)
    """Base offsets of segments that became one."""
    bytes_before: int = 0
    bytes_after: int = 0


@dataclass(slots=True)
class CompactionPlan:
    """Everything a run needs, copied, so that it can work while the log goes on."""

    disk: Disk
    directory: Path
    config: TopicConfig
    now_ms: int
    ranges: list[tuple[int, int]]
    """Base and next offset of each segment to compact."""
    aborted: list[tuple[int, int, int]]
    """Producer id, first and last offset of each aborted transaction."""
    producer_ends: dict[int, int]
    """Producer id → last offset it wrote."""

    @property
    def end_offset(self) -> int:
        return self.ranges[-1][1]

    def run(self) -> CompactionResult:
        """Write the compacted segments and commit each. In a thread: it reads everything twice."""
        last_offsets = self._last_offsets()
        scratch = self.directory / SCRATCH_NAME
        self.disk.remove_directory(scratch)
        self.disk.make_directory(scratch)
        result = CompactionResult()
        for group in self._groups():
            compacted = self._rewrite(group, last_offsets, scratch)
            result.groups.append([segment.base_offset for segment in group])
            result.bytes_before += sum(segment.size for segment in group)
            result.bytes_after += compacted.size
            compacted.file.sync()
            self.disk.rename(compacted.path, self.directory / swap_name(result.groups[-1]))
        self.disk.sync_directory(self.directory)
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

    def _last_offsets(self) -> dict[bytes, int]:
        """Return, for each key, the offset of its last record that counts."""
        last: dict[bytes, int] = {}
        for segment in self._segments():
            for header, batch in _batches(segment):
                if header.is_control or self._is_aborted(header):
                    continue
                for record in parse_batch(batch):
                    if record.key is not None:
                        last[record.key] = record.offset
        return last

    def _groups(self) -> Iterator[list[Segment]]:
        """Yield neighbouring segments that together fit into one."""
        group: list[Segment] = []
        for segment in self._segments():
            together = sum(member.size for member in group) + segment.size
            span = segment.next_offset - group[0].base_offset if group else 0
            if group and (together > self.config.segment_bytes or span > _OFFSETS_PER_SEGMENT_MAX):
                yield group
                group = []
            group.append(segment)
        if group:
            yield group

    def _rewrite(self, group: list[Segment], last_offsets: dict[bytes, int], scratch: Path) -> Segment:
        """Write the batches of `group` that stay to a new segment."""
        target = Segment.create(
            self.disk, scratch, group[0].base_offset, index_interval_bytes=self.config.index_interval_bytes
        )
        for segment in group:
            for header, batch in _batches(segment):
                kept = self._compact(header, batch, last_offsets)
                if kept is not None:
                    target.append([kept], [check_batch(kept)])
        target.seal()
        return target

    def _compact(self, header: BatchHeader, batch: bytes, last_offsets: dict[bytes, int]) -> bytes | bytearray | None:
        """Return what stays of a batch; None when nothing does."""
        horizon_ms = header.delete_horizon_ms
        if header.is_control:
            if horizon_ms is None:
                return retain(batch, 0, _always, delete_horizon_ms=self.now_ms + self.config.delete_retention_ms)
            return None if horizon_ms <= self.now_ms else batch
        records = [] if self._is_aborted(header) else parse_batch(batch)
        expired = horizon_ms is not None and horizon_ms <= self.now_ms
        kept = {
            record.offset
            for record in records
            if record.key is None
            or (last_offsets[record.key] <= record.offset and not (expired and record.value is None))
        }
        tombstones = any(record.value is None and record.offset in kept for record in records)
        if len(kept) == header.record_count and (horizon_ms is not None or not tombstones):
            return batch
        if not kept and self.producer_ends.get(header.producer_id) != header.last_offset:
            return None
        new_horizon_ms = None
        if tombstones and horizon_ms is None:
            new_horizon_ms = self.now_ms + self.config.delete_retention_ms
        return retain(batch, 0, lambda record: record.offset in kept, delete_horizon_ms=new_horizon_ms)

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            producer_id == header.producer_id and first <= header.base_offset <= last
            for producer_id, first, last in self.aborted
        )


def plan(log: Log, now_ms: int) -> CompactionPlan | None:
    """Return what to compact; None when too little has changed since the last time."""
    config = log.config
    if not config.cleanup_policy.compacts or log.failure is not None:
        return None
    end_offset = log.recovery_offset
    if (first_open := log.producers.first_open_offset) is not None:
        end_offset = min(end_offset, first_open)
    chosen: list[Segment] = []
    for segment in log.segments[:-1]:
        if segment.next_offset > end_offset or now_ms - segment.max_timestamp < config.min_compaction_lag_ms:
            break
        chosen.append(segment)
    done_offset = _read_done(log.disk, log.directory)
    dirty = sum(segment.size for segment in chosen if segment.next_offset > done_offset)
    total = sum(segment.size for segment in chosen)
    if not dirty or dirty * 100 < total * config.min_cleanable_ratio_percent:
        return None
    end_offset = chosen[-1].next_offset
    return CompactionPlan(
        log.disk,
        log.directory,
        config,
        now_ms,
        [(segment.base_offset, segment.next_offset) for segment in chosen],
        [entry[:3] for entry in log.aborted_between(0, end_offset)],
        {producer.producer_id: producer.window[-1].last_offset for producer in log.producers.all() if producer.window},
    )


def finish(log: Log, plan: CompactionPlan, result: CompactionResult) -> None:
    """Put the compacted segments in the place of the old ones."""
    scratch = log.directory / SCRATCH_NAME
    for group in result.groups:
        if not set(group) <= {segment.base_offset for segment in log.segments}:
            log.disk.remove(log.directory / swap_name(group))  # retention took some of them meanwhile
            continue
        finish_swap(log.disk, log.directory, only_first_base=group[0])
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            name = segment_name(group[0], suffix)
            log.disk.rename(scratch / name, log.directory / name)
        log.replace_segments(group)
    log.forget_aborted_before(plan.end_offset)
    log.disk.remove_directory(scratch)
    replace_file(log.disk, log.directory / DONE_NAME, msgspec.json.encode(plan.end_offset))


def _read_done(disk: Disk, directory: Path) -> int:
    """Return the offset up to which the log was compacted; losing this note only costs a run."""
    path = directory / DONE_NAME
    if not disk.exists(path):
        return 0
    try:
        return msgspec.json.decode(disk.read(path), type=int)
    except msgspec.MsgspecError:
        return 0


def _batches(segment: Segment) -> Iterator[tuple[BatchHeader, bytes]]:
    for position, header in segment.check(0, segment.size):
        yield header, segment.file.pread(header.size, position)


def _always(_record: Record) -> bool:
    return True
