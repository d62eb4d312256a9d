"""Consumer lag: in records, and as the age of the first unread record.

Cheap enough to be requested every second: the end of a partition is known, and the timestamp of a record is read once
per committed offset, from the header of its batch. So the age has the precision of a batch.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from flymq.broker.replicas.partition import Partition
from flymq.host.clock import Clock
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.record.header import HEADER_SIZE, parse_header

UNKNOWN = -1


@dataclass(slots=True)
class Lag:
    """The lag of a reader in one partition."""

    end_offset: int
    records: int = UNKNOWN
    ms: int = UNKNOWN


class LagMeter:
    """Measures lag, and caches the timestamps it has read."""

    def __init__(self, clock: Clock, *, positions_max: int = 100_000) -> None:
        self._clock = clock
        self._positions_max = positions_max
        self._times: OrderedDict[tuple[TopicPartition, int], int] = OrderedDict()

    def measure(self, partition: Partition, offset: int) -> Lag:
        """Return the lag of a reader whose next offset is `offset`; unknown if it has none."""
        end_offset = partition.high_watermark
        if offset < 0:
            return Lag(end_offset)
        next_offset = max(offset, partition.log.start_offset)
        if next_offset >= end_offset:
            return Lag(end_offset, 0, 0)
        time_ms = self._time_at(partition, next_offset)
        age_ms = UNKNOWN if time_ms < 0 else max(0, self._clock.now_ms() - time_ms)
        return Lag(end_offset, end_offset - next_offset, age_ms)

    def _time_at(self, partition: Partition, offset: int) -> int:
        known = self._times.get((partition.name, offset))
        if known is not None:
            self._times.move_to_end((partition.name, offset))
            return known
        try:
            found = partition.log.read(offset, bytes_max=0)
            if found is None:
                return UNKNOWN
            # Of a batch in a file no more than the header: it may have megabytes.
            header = parse_header(found.read() if found.in_memory else found.read_part(0, HEADER_SIZE))
        except FlyMQError:  # a vanished or corrupt segment, which the state of the log tells; the rest can be measured
            return UNKNOWN
        is_own = header.delete_horizon_ms is None and not header.has_log_append_time
        time_ms = header.base_timestamp if is_own else header.max_timestamp
        self._times[partition.name, offset] = time_ms
        if len(self._times) > self._positions_max:
            self._times.popitem(last=False)
        return time_ms
