"""Plan a read: which offsets go into a micro-batch, and how they are split into tasks. No I/O here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from flymq.model.names import TopicPartition
from flymq.spark.source.offsets import Offsets


class OffsetRange(NamedTuple):
    """What one task reads: the offsets of a partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Offsets in the range: at least as many as records, since markers and compacted records count."""
        return self.end - self.start

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def limited(start: Offsets, end: Offsets, offsets_max: int) -> Offsets:
    """Return the end offsets of a micro-batch of about `offsets_max` offsets, divided in proportion to the lag.

    A partition with any lag gets at least one offset, so that a small one next to a huge one does not starve.
    """
    waiting = {name: max(0, offset - start.get(name, offset)) for name, offset in end.items()}
    total = sum(waiting.values())
    if total <= offsets_max:
        return end
    return {
        name: offset - count + min(count, max(1, offsets_max * count // total)) if (count := waiting[name]) else offset
        for name, offset in end.items()
    }


def count_between(start: Offsets, end: Offsets) -> int:
    """Return the number of offsets between, over all partitions that are in both."""
    return sum(max(0, offset - start.get(name, offset)) for name, offset in end.items())


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the range of each partition that has something to read."""
    return [
        OffsetRange(name.topic, name.partition, start[name], offset)
        for name, offset in sorted(end.items())
        if offset > start[name]
    ]


def cut(
    ranges: Sequence[OffsetRange], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """Split ranges so that none has more than `records_max` offsets and there are at least `partitions_min` of them.

    Larger ranges are split into more pieces of equal size; none is empty, so there may be fewer than requested.
    """
    counts = [1 if records_max is None else -(-range_.size // records_max) for range_ in ranges]
    total = sum(range_.size for range_ in ranges)
    if partitions_min is not None and sum(counts) < partitions_min:
        shares = [partitions_min * range_.size // total for range_ in ranges]
        counts = [max(count, share) for count, share in zip(counts, shares, strict=True)]
    by_size = sorted(range(len(ranges)), key=lambda index: -ranges[index].size)
    while partitions_min is not None and sum(counts) < min(partitions_min, total):
        for index in by_size:
            if sum(counts) < partitions_min and counts[index] < ranges[index].size:
                counts[index] += 1
    return [piece for range_, count in zip(ranges, counts, strict=True) for piece in _pieces(range_, count)]


def _pieces(range_: OffsetRange, count: int) -> list[OffsetRange]:
    ends = [range_.start + range_.size * number // count for number in range(count + 1)]
    return [range_._replace(start=start, end=end) for start, end in pairwise(ends) if end > start]
