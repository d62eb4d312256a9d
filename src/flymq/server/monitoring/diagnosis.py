"""Find the current bottlenecks of the broker, from two samples of its metrics.

`diagnose` is a pure function of two samples, so that every rule can be tested by itself. The thresholds are rules of
thumb, set here only; docs/how-to/monitoring.md explains them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from flymq.gateways.rest.schema.shapes import Diagnosis, Limitation
from flymq.host.process import thread_cpu_s
from flymq.host.time_slices import TimeSlice
from flymq.model.errors import DiskFull, TooManyOpenFiles
from flymq.model.names import TopicPartition
from flymq.server.monitoring.metrics import Measured

INTERVAL_S = 5.0
SAMPLES = 12  # a minute

_BUSY_RATIO = 0.85
_LAG_S = 0.05
_FSYNC_RATIO = 0.7
_FSYNC_S = 0.1
_CONSUMER_LAG_S = 30.0
_HOT_RATIO = 0.7
_HOT_RECORDS_PER_S = 1_000
_BUFFER_RATIO = 0.8
_DISK_FREE_RATIO = 0.1


@dataclass(slots=True)
class GroupSample:
    records: int
    """Lag in records."""
    age_s: float
    """Lag in time: age of the oldest unread record."""
    members: int


@dataclass(slots=True)
class Sample:
    """The metrics that show bottlenecks, at one point in time."""

    at_s: float
    loop_cpu_s: float = 0.0
    """CPU time of the event loop's thread so far."""
    lag_sum_s: float = 0.0
    lag_count: int = 0
    fsync_sum_s: float = 0.0
    fsync_count: int = 0
    end_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    groups: dict[str, GroupSample] = field(default_factory=dict)
    buffer_ratio: float = 0.0
    disk_free_ratio: float = 1.0
    is_disk_full: bool = False
    is_out_of_files: bool = False


class Samples:
    """The samples of the last minute."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._kept: deque[Sample] = deque(maxlen=SAMPLES)

    async def take(self) -> Sample:
        """Take a sample and keep it. Runs in the event loop's thread, whose CPU time it reads."""
        self._kept.append(await take_sample(self._measured))
        return self._kept[-1]

    async def diagnosis(self) -> Diagnosis:
        before = self._kept[0] if self._kept else await self.take()
        now = await take_sample(self._measured)
        return Diagnosis(round(now.at_s - before.at_s, 1), diagnose(now, before))


async def take_sample(measured: Measured) -> Sample:
    """Take a sample, yielding to the event loop every few milliseconds."""
    broker, slice_ = measured.broker, TimeSlice()
    space = measured.disk.space(measured.data_dir)
    sample = Sample(
        at_s=broker.clock.monotonic_s(),
        loop_cpu_s=thread_cpu_s(),
        lag_sum_s=measured.loop_lag.histogram.sum_s,
        lag_count=measured.loop_lag.histogram.count,
        fsync_sum_s=measured.fsync.sum_s,
        fsync_count=measured.fsync.count,
        buffer_ratio=measured.shared.budget.used_ratio,
        disk_free_ratio=space.free_bytes / space.size_bytes if space.size_bytes else 1.0,
        is_disk_full=broker.headroom.is_disk_full,
        is_out_of_files=measured.is_out_of_files,
    )
    for topic in broker.image:
        if not topic.is_internal:
            for partition in broker.replicas.of(topic).values():
                sample.end_offsets[partition.name] = partition.log.end_offset
        await slice_.yield_if_over()
    for group in broker.groups.list():
        lags = [broker.groups.lag(name, value.offset) for name, value in group.offsets.committed.items()]
        await slice_.yield_if_over()
        sample.groups[group.name] = GroupSample(
            sum(max(0, lag.records) for lag in lags),
            max((lag.ms / 1000 for lag in lags), default=0.0),
            len(group.members),
        )
    return sample


def diagnose(now: Sample, before: Sample) -> list[Limitation]:
    """Return the bottlenecks of the broker, worst first."""
    found = [
        *_event_loop(now, before),
        *_disk(now, before),
        *_memory(now),
        *_hot_partitions(now, before),
        *_slow_consumers(now, before),
    ]
    return sorted(found, key=lambda limit: limit.severity != "high")


def _event_loop(now: Sample, before: Sample) -> list[Limitation]:
    elapsed_s = now.at_s - before.at_s
    if elapsed_s < 1:
        return []
    busy = (now.loop_cpu_s - before.loop_cpu_s) / elapsed_s
    looks = now.lag_count - before.lag_count
    late_s = (now.lag_sum_s - before.lag_sum_s) / looks if looks else 0.0
    if busy >= _BUSY_RATIO:
        text = f"the event loop is busy {busy:.0%} of the time, and a broker uses one core"
        advice = (
            "Configure larger batches in the producers (linger_ms, batch_bytes), or spread topics over more brokers."
        )
        return [Limitation("event_loop", "high", text, advice, round(busy, 3))]
    if late_s >= _LAG_S:
        text = f"the event loop lags {late_s * 1000:.0f} ms on average, though it is busy only {busy:.0%} of the time"
        advice = "Another process uses the CPU of this machine, or the broker is swapped out: check with top."
        return [Limitation("event_loop", "high", text, advice, round(late_s, 4))]
    return []


def _disk(now: Sample, before: Sample) -> list[Limitation]:
    found = []
    elapsed_s, rounds = now.at_s - before.at_s, now.fsync_count - before.fsync_count
    spent_s = now.fsync_sum_s - before.fsync_sum_s
    ratio = spent_s / elapsed_s if elapsed_s >= 1 else 0.0
    mean_s = spent_s / rounds if rounds else 0.0
    if ratio >= _FSYNC_RATIO or mean_s >= _FSYNC_S:
        text = f"fsync takes {mean_s * 1000:.1f} ms and runs {min(ratio, 1):.0%} of the time"
        advice = "Use a faster disk, larger batches, or acks=leader where a machine crash may lose the last records."
        found.append(Limitation("disk", "high", text, advice, round(mean_s, 4)))
    if now.is_out_of_files:
        text = "there is no free file descriptor, so files cannot be opened and connections not accepted"
        found.append(Limitation("open_files", "high", text, TooManyOpenFiles.hint, 1))
    if now.is_disk_full:
        found.append(Limitation("disk_space", "high", "the disk is full, and writes are refused", DiskFull.hint, 0.0))
    elif now.disk_free_ratio < _DISK_FREE_RATIO:
        text = f"{now.disk_free_ratio:.0%} of the disk is free"
        advice = (
            "Lower retention.ms or retention.bytes of large topics, or free disk space: writes to a full disk fail."
        )
        found.append(Limitation("disk_space", "high", text, advice, round(now.disk_free_ratio, 3)))
    return found


def _memory(now: Sample) -> list[Limitation]:
    if now.buffer_ratio < _BUFFER_RATIO:
        return []
    text = f"requests in flight and unsent responses use {now.buffer_ratio:.0%} of limits.buffer_bytes_max"
    advice = "Clients read slowly or send large requests: raise limits.buffer_bytes_max, or lower their fetch sizes."
    return [Limitation("buffers", "high", text, advice, round(now.buffer_ratio, 3))]


def _hot_partitions(now: Sample, before: Sample) -> list[Limitation]:
    elapsed_s = now.at_s - before.at_s
    if elapsed_s < 1:
        return []
    by_topic: dict[str, list[tuple[int, TopicPartition]]] = {}
    for name, end_offset in now.end_offsets.items():
        came = max(0, end_offset - before.end_offsets.get(name, end_offset))
        by_topic.setdefault(name.topic, []).append((came, name))
    found = []
    for topic, counts in by_topic.items():
        total = sum(came for came, _ in counts)
        most, hottest = max(counts)
        if len(counts) < 2 or total < _HOT_RECORDS_PER_S * elapsed_s or most < _HOT_RATIO * total:
            continue
        text = f"{hottest} receives {most / total:.0%} of the records of {topic}, which has {len(counts)} partitions"
        advice = "Most records have the same key or an explicit partition: use keys that spread better, or no key."
        found.append(Limitation("hot_partition", "medium", text, advice, round(most / total, 3)))
    return found


def _slow_consumers(now: Sample, before: Sample) -> list[Limitation]:
    found = []
    for name, group in now.groups.items():
        earlier = before.groups.get(name)
        if earlier is None or group.age_s < _CONSUMER_LAG_S or group.records < earlier.records:
            continue  # new, nearly caught up, or catching up
        text = f"the group {name!r} is {group.age_s:.0f} s and {group.records} records behind, and does not catch up"
        advice = "Its members are too slow: add members, up to one per partition."
        if not group.members:
            text = f"the group {name!r} has no members and is {group.age_s:.0f} s and {group.records} records behind"
            advice = f"Start its consumers, or delete the group: flymq group delete {name}"
        found.append(Limitation("slow_consumer", "medium", text, advice, round(group.age_s, 1)))
    return found
