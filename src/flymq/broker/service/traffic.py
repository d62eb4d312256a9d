"""Traffic metrics: bytes and records by protocol and topic. Counted per partition of a request, never per record.

Reads are sent as slices of a file without decoding, so records are counted by the offsets of a slice. That is exact
except for offsets without a record: transaction markers, and records deleted by compaction.
"""

from __future__ import annotations

from collections.abc import Iterator


class Flow:
    """Counters of one protocol and one topic."""

    __slots__ = ("bytes_in", "bytes_out", "records_in", "records_out")

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.records_out = 0
        self.bytes_out = 0

    def add(self, other: Flow) -> None:
        self.records_in += other.records_in
        self.bytes_in += other.bytes_in
        self.records_out += other.records_out
        self.bytes_out += other.bytes_out


class Traffic:
    """All flows of a broker."""

    def __init__(self) -> None:
        self._flows: dict[tuple[str, str], Flow] = {}
        self._of_deleted: dict[str, Flow] = {}

    def __iter__(self) -> Iterator[tuple[str, str, Flow]]:
        """Yield protocol, topic and flow."""
        return iter([(*key, flow) for key, flow in self._flows.items()])

    def wrote(self, protocol: str, topic: str, records: int, size: int) -> None:
        flow = self._flows.get((protocol, topic)) or self._add(protocol, topic)
        flow.records_in += records
        flow.bytes_in += size

    def read(self, protocol: str, topic: str, records: int, size: int) -> None:
        flow = self._flows.get((protocol, topic)) or self._add(protocol, topic)
        flow.records_out += records
        flow.bytes_out += size

    def by_protocol(self) -> dict[str, Flow]:
        """Return the sums over all topics since the start, deleted ones included."""
        sums: dict[str, Flow] = {}
        for protocol, flow in self._of_deleted.items():
            sums.setdefault(protocol, Flow()).add(flow)
        for (protocol, _), flow in self._flows.items():
            sums.setdefault(protocol, Flow()).add(flow)
        return sums

    def forget(self, topic: str) -> None:
        """Delete the counters of a topic; they stay in the sums."""
        for key in [key for key in self._flows if key[1] == topic]:
            self._of_deleted.setdefault(key[0], Flow()).add(self._flows.pop(key))

    def _add(self, protocol: str, topic: str) -> Flow:
        return self._flows.setdefault((protocol, topic), Flow())
