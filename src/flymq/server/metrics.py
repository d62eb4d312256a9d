"""What the broker tells Prometheus. docs/how-to/monitoring.md lists the names for people.

Two pages: one whose length does not depend on what clients do, to be asked for every few seconds, and one with a line
for each topic, partition and group. The second also has the names of the well-known kafka_exporter, so that dashboards
made for it work as they are.

Pages are generators, sent a few milliseconds' worth at a time. An empty string gives others their turn where much is
counted before the next line.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flymq import __version__
from flymq.broker.coordinators.groups import NO_OFFSET
from flymq.broker.replicas.lag import Lag
from flymq.broker.replicas.partition import Partition
from flymq.broker.service.service import Broker
from flymq.cluster.catalog import PartitionEntry
from flymq.coordination.entries import TransactionState
from flymq.coordination.group import GroupState
from flymq.coordination.groups import AnyGroup
from flymq.gateways.connection import SharedByConnections
from flymq.gateways.listener import Listener
from flymq.model.exposition import counters, gauge, gauges, histograms, labels
from flymq.model.histogram import Histogram
from flymq.model.names import TopicPartition
from flymq.record.codec import COMPILED

_PAGE_BYTES = resource.getpagesize()


@dataclass(slots=True)
class Measured:
    """Where the numbers are."""

    broker: Broker
    listeners: Sequence[Listener]
    shared: SharedByConnections
    fsync: Histogram
    loop_lag: Histogram
    data_dir: Path
    started_at_s: float
    """When the process began to serve, by the wall."""


# --- the page of the broker as a whole ------------------------------------------------------------------------------


def broker_page(measured: Measured) -> Iterator[str]:
    yield from _process(measured)
    yield from _connections(measured)
    yield from _traffic(measured)
    yield from _storage(measured)
    yield from _groups(measured.broker)
    yield from _transactions(measured.broker)


def _process(measured: Measured) -> Iterator[str]:
    codec = "compiled" if COMPILED else "plain"
    build = labels(version=__version__, python=platform.python_version(), codec=codec)
    yield from gauge("flymq_build_info", "What runs here.", (build, 1))
    yield from gauge("flymq_start_time_seconds", "When the broker was started.", ("", measured.started_at_s))
    yield from histograms(
        "flymq_event_loop_lag_seconds", "How late the event loop was, ten times a second.", [("", measured.loop_lag)]
    )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield from counters("process_cpu_seconds_total", "Processor time used.", [("", usage.ru_utime + usage.ru_stime)])
    yield from gauge("process_resident_memory_bytes", "Memory in use.", ("", _resident_bytes(usage)))
    if (open_files := _open_files()) is not None:
        yield from gauge("process_open_fds", "Open files and sockets.", ("", open_files))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield from gauge("process_max_fds", "Open files and sockets allowed.", ("", allowed))


def _connections(measured: Measured) -> Iterator[str]:
    spoken = [protocol for listener in measured.listeners for protocol in listener.protocols]
    open_now, accepted = Counter(dict.fromkeys(spoken, 0)), Counter(dict.fromkeys(spoken, 0))
    for listener in measured.listeners:
        open_now.update(listener.connections_by_protocol())
        accepted.update(listener.accepted)
    yield from gauges("flymq_connections", "Open connections.", _by("protocol", open_now))
    yield from counters("flymq_connections_accepted_total", "Connections ever accepted.", _by("protocol", accepted))
    refused = sum(listener.refused for listener in measured.listeners)
    yield from counters("flymq_connections_refused_total", "Connections refused at a limit.", [("", refused)])
    used = measured.shared.budget.used
    yield from gauge("flymq_buffer_bytes", "Memory of unfinished requests and unsent answers.", ("", used))
    requests = measured.shared.requests
    yield from histograms(
        "flymq_request_duration_seconds",
        "From a request to its answer; a wait that the client asked for is part of it.",
        [
            (labels(protocol=protocol, operation=operation), histogram)
            for (protocol, operation), histogram in sorted(requests.durations.items())
        ],
    )
    yield from counters(
        "flymq_request_failures_total",
        "Requests, or parts of one, that were answered with an error.",
        [(labels(protocol=protocol, code=code), count) for (protocol, code), count in requests.failures.items()],
    )


def _traffic(measured: Measured) -> Iterator[str]:
    flows = [(labels(protocol=name), flow) for name, flow in sorted(measured.broker.traffic.by_protocol().items())]
    yield from counters("flymq_messages_in_total", "Records written.", [(at, f.records_in) for at, f in flows])
    yield from counters("flymq_bytes_in_total", "Bytes of batches written.", [(at, f.bytes_in) for at, f in flows])
    yield from counters("flymq_messages_out_total", "Records read.", [(at, f.records_out) for at, f in flows])
    yield from counters("flymq_bytes_out_total", "Bytes of batches read.", [(at, f.bytes_out) for at, f in flows])


def _storage(measured: Measured) -> Iterator[str]:
    topics = list(measured.broker.topics)
    count, offline, size = 0, 0, 0
    for topic in topics:
        count += len(topic.partitions)
        offline += sum(partition.log.failure is not None for partition in topic.partitions)
        size += sum(partition.log.size for partition in topic.partitions)
        yield ""
    yield from gauge("flymq_topics", "Topics, the broker's own among them.", ("", len(topics)))
    yield from gauge("flymq_partitions", "Partitions.", ("", count))
    yield from gauge("flymq_partitions_offline", "Partitions that a failure of the disk took offline.", ("", offline))
    yield from gauge("flymq_log_bytes", "Bytes of all logs.", ("", size))
    yield from histograms(
        "flymq_fsync_duration_seconds",
        "From asking the disk to the answer; one fsync serves many writers.",
        [("", measured.fsync)],
    )
    disk = os.statvfs(measured.data_dir)
    yield from gauge("flymq_disk_free_bytes", "Free where the data is.", ("", disk.f_bavail * disk.f_frsize))
    yield from gauge(
        "flymq_disk_size_bytes", "Size of the disk where the data is.", ("", disk.f_blocks * disk.f_frsize)
    )


def _groups(broker: Broker) -> Iterator[str]:
    groups = broker.groups.list()
    states = Counter({state.value: 0 for state in GroupState if state is not GroupState.DEAD})
    members, lag_records, lag_ms = 0, 0, 0
    for group in groups:
        states[group.state.value] += 1
        members += len(group.members)
        for _, _, lag in _lags(broker, group):
            lag_records += max(0, lag.records)
            lag_ms = max(lag_ms, lag.ms)
        yield ""
    yield from gauges("flymq_groups", "Consumer groups.", _by("state", states))
    yield from gauge("flymq_group_members_sum", "Members of all groups.", ("", members))
    yield from gauge("flymq_group_lag_messages_sum", "Records that groups have yet to read.", ("", lag_records))
    yield from gauge(
        "flymq_group_lag_seconds_max", "Age of the oldest record that a group has yet to read.", ("", lag_ms / 1000)
    )
    yield from counters(
        "flymq_group_rebalances_total", "How often a group was shared out.", [("", broker.groups.rebalances)]
    )


def _transactions(broker: Broker) -> Iterator[str]:
    states = Counter({state.name.lower(): 0 for state in TransactionState})
    states.update(value.state.name.lower() for _, value in broker.transactions.known())
    yield from gauges("flymq_transactions", "Transactional ids, by the state of each one's last.", _by("state", states))
    ended = broker.transactions.ended
    outcomes = {
        "committed": ended[TransactionState.COMMITTING],
        "aborted": ended[TransactionState.ABORTING],
    }
    yield from counters("flymq_transactions_ended_total", "Transactions that have ended.", _by("outcome", outcomes))


def _by(name: str, counts: dict[str, int]) -> list[tuple[str, float]]:
    return [(labels(**{name: value}), count) for value, count in sorted(counts.items())]


def _open_files() -> int | None:
    """Count this process's descriptors, where the system tells."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return None


def _resident_bytes(usage: resource.struct_rusage) -> int:
    """Return the memory in use now; where the system does not tell, the most that ever was."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# --- the page of topics, partitions and groups ----------------------------------------------------------------------


def detailed_page(measured: Measured) -> Iterator[str]:
    broker = measured.broker
    yield from _topic_flows(broker)
    yield from _partitions(broker)
    yield from _group_details(broker)


def _topic_flows(broker: Broker) -> Iterator[str]:
    flows = []
    for protocol, topic, flow in broker.traffic:
        flows.append((labels(topic=topic, protocol=protocol), flow))
        yield ""
    yield from counters("flymq_topic_messages_in_total", "Records written.", ((at, f.records_in) for at, f in flows))
    yield from counters(
        "flymq_topic_bytes_in_total", "Bytes of batches written.", ((at, f.bytes_in) for at, f in flows)
    )
    yield from counters("flymq_topic_messages_out_total", "Records read.", ((at, f.records_out) for at, f in flows))
    yield from counters("flymq_topic_bytes_out_total", "Bytes of batches read.", ((at, f.bytes_out) for at, f in flows))


def _partitions(broker: Broker) -> Iterator[str]:
    yield from gauge("kafka_brokers", "Number of brokers.", ("", 1))
    topics = list(broker.topics)
    yield from gauges(
        "kafka_topic_partitions",
        "Number of partitions of the topic.",
        ((labels(topic=topic.name), len(topic.partitions)) for topic in topics),
    )
    found: list[tuple[str, Partition, PartitionEntry]] = []
    for topic in topics:
        name = labels(topic=topic.name)
        for number, (partition, state) in enumerate(zip(topic.partitions, topic.states, strict=True)):
            found.append((f'{name},partition="{number}"', partition, state))
        yield ""
    yield from gauges("flymq_partition_log_bytes", "Bytes of the log.", ((at, p.log.size) for at, p, _ in found))
    yield from gauges(
        "flymq_partition_offline",
        "1 when a failure of the disk took it offline.",
        ((at, int(p.log.failure is not None)) for at, p, _ in found),
    )
    yield from gauges(
        "kafka_topic_partition_current_offset",
        "Offset of the next record that readers will see.",
        ((at, p.high_watermark) for at, p, _ in found),
    )
    yield from gauges(
        "kafka_topic_partition_oldest_offset",
        "Offset of the first record.",
        ((at, p.log.start_offset) for at, p, _ in found),
    )
    yield from _replicas(found)


def _replicas(found: list[tuple[str, Partition, PartitionEntry]]) -> Iterator[str]:
    yield from gauges("kafka_topic_partition_leader", "Broker that leads it.", ((at, s.leader) for at, _, s in found))
    yield from gauges(
        "kafka_topic_partition_leader_is_preferred",
        "1 when the first of its replicas leads it.",
        ((at, int(s.leader == s.replicas[0])) for at, _, s in found),
    )
    yield from gauges(
        "kafka_topic_partition_replicas", "Number of its replicas.", ((at, len(s.replicas)) for at, _, s in found)
    )
    yield from gauges(
        "kafka_topic_partition_in_sync_replica",
        "Number of its replicas that are in sync.",
        ((at, len(s.isr)) for at, _, s in found),
    )
    yield from gauges(
        "kafka_topic_partition_under_replicated_partition",
        "1 when a replica is not in sync.",
        ((at, int(len(s.isr) < len(s.replicas))) for at, _, s in found),
    )


def _group_details(broker: Broker) -> Iterator[str]:
    named: list[tuple[str, AnyGroup]] = []
    positions: list[tuple[str, int, Lag]] = []
    by_topic: dict[str, list[int]] = {}
    for group in broker.groups.list():
        name = labels(consumergroup=group.name)
        named.append((name, group))
        for partition, offset, lag in _lags(broker, group):
            at_topic = f"{name},{labels(topic=partition.topic)}"
            positions.append((f'{at_topic},partition="{partition.partition}"', offset, lag))
            total = by_topic.setdefault(at_topic, [0, 0])
            total[0] += offset
            total[1] += max(0, lag.records)
            yield ""
    yield from gauges(
        "kafka_consumergroup_current_offset", "Offset it reads next.", ((at, o) for at, o, _ in positions)
    )
    yield from gauges(
        "kafka_consumergroup_lag", "Records it has yet to read.", ((at, g.records) for at, _, g in positions)
    )
    yield from gauges(
        "flymq_group_lag_seconds",
        "Age of the first record it has yet to read; -1 where that is not known.",
        ((at, g.ms / 1000 if g.ms >= 0 else -1) for at, _, g in positions),
    )
    yield from gauges(
        "kafka_consumergroup_current_offset_sum",
        "The offsets of a topic together.",
        ((at, s[0]) for at, s in by_topic.items()),
    )
    yield from gauges(
        "kafka_consumergroup_lag_sum", "The lags of a topic together.", ((at, s[1]) for at, s in by_topic.items())
    )
    yield from gauges("kafka_consumergroup_members", "Members of the group.", ((at, len(g.members)) for at, g in named))
    yield from gauges(
        "flymq_group_generation", "How often the group was shared out.", ((at, g.generation) for at, g in named)
    )


def _lags(broker: Broker, group: AnyGroup) -> Iterator[tuple[TopicPartition, int, Lag]]:
    """Yield where the group stands in each partition it has committed an offset for."""
    for name, value in list(group.offsets.committed.items()):  # it may change while others have their turn
        if value.offset != NO_OFFSET:
            yield name, value.offset, broker.groups.lag(name, value.offset)
