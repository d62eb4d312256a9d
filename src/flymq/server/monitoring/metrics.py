"""The broker's metrics for Prometheus. docs/how-to/monitoring.md lists their names.

Two pages: `/metrics`, whose size does not depend on the number of topics and groups, to be scraped every few seconds,
and `/metrics/detailed`, with samples for each topic, partition and group. The second also uses the metric names of
kafka_exporter, so that existing dashboards work unchanged.

Pages are generators, streamed in steps of a few milliseconds. An empty string is a chance to yield to the event loop
where much is computed before the next line.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flymq import __version__
from flymq.broker.broker import Broker
from flymq.broker.coordinators.groups import NO_OFFSET
from flymq.broker.replicas.lag import Lag
from flymq.broker.replicas.partition import Partition
from flymq.cluster.catalog import PartitionState
from flymq.cluster.controller import Controller
from flymq.coordination.entries import TransactionState
from flymq.coordination.group import GroupState
from flymq.coordination.groups import AnyGroup
from flymq.gateways.connection import SharedByConnections
from flymq.gateways.listener import Listener
from flymq.host import process
from flymq.host.disk import Disk
from flymq.model.exposition import counters, gauge, gauges, histograms, labels
from flymq.model.histogram import Histogram
from flymq.model.names import TopicPartition
from flymq.record.codec import COMPILED
from flymq.server.cluster_member import ClusterMember
from flymq.server.monitoring.cluster_metrics import cluster_metrics
from flymq.server.monitoring.loop_lag import LoopLag


@dataclass(slots=True)
class Measured:
    """The sources of the metrics."""

    broker: Broker
    listeners: Sequence[Listener]
    shared: SharedByConnections
    fsync: Histogram
    loop_lag: LoopLag
    disk: Disk
    data_dir: Path
    started_at_s: float
    """Start time of the process, wall clock."""
    member: ClusterMember | None = None
    """This broker as one of many. None for a broker without a cluster."""

    @property
    def controller(self) -> Controller | None:
        """This broker's part in the election of the controller."""
        return None if self.member is None else self.member.controller

    @property
    def is_out_of_files(self) -> bool:
        """Whether there is no free descriptor, for files or for connections."""
        return self.broker.headroom.is_out_of_files or any(listener.is_refused for listener in self.listeners)


# --- /metrics: the broker as a whole --------------------------------------------------------------------------------


def broker_page(measured: Measured) -> Iterator[str]:
    yield from _process(measured)
    yield from _connections(measured)
    yield from _traffic(measured)
    yield from _storage(measured)
    yield from _elections(measured)
    yield from cluster_metrics(measured.broker, measured.member)
    yield from _groups(measured.broker)
    yield from _transactions(measured.broker)
    yield from _client_metrics(measured.broker)


def _process(measured: Measured) -> Iterator[str]:
    codec = "compiled" if COMPILED else "plain"
    build = labels(version=__version__, python=platform.python_version(), codec=codec)
    yield from gauge("flymq_build_info", "Versions of FlyMQ and Python, and which record codec is in use.", (build, 1))
    yield from gauge(
        "flymq_start_time_seconds", "Start time of the broker since the Unix epoch.", ("", measured.started_at_s)
    )
    yield from histograms(
        "flymq_event_loop_lag_seconds",
        "Event loop lag, measured ten times a second.",
        [("", measured.loop_lag.histogram)],
    )
    yield from gauge(
        "flymq_event_loop_longest_iteration_seconds",
        "Longest iteration of the event loop in the last minute.",
        ("", measured.loop_lag.longest_s),
    )
    yield from counters(
        "flymq_event_loop_stalls_total",
        "Iterations of the event loop that took more than 20 ms.",
        [("", measured.loop_lag.stalls)],
    )
    yield from counters("process_cpu_seconds_total", "Total user and system CPU time.", [("", process.cpu_s())])
    yield from gauge("process_resident_memory_bytes", "Resident memory size.", ("", process.resident_bytes()))
    if (open_files := process.open_files()) is not None:
        yield from gauge("process_open_fds", "Number of open file descriptors.", ("", open_files))
    open_files_max = process.open_files_max()
    yield from gauge("process_max_fds", "Maximum number of open file descriptors.", ("", open_files_max))


def _connections(measured: Measured) -> Iterator[str]:
    spoken = [protocol for listener in measured.listeners for protocol in listener.protocols]
    open_now, accepted = Counter(dict.fromkeys(spoken, 0)), Counter(dict.fromkeys(spoken, 0))
    for listener in measured.listeners:
        open_now.update(listener.connections_by_protocol())
        accepted.update(listener.accepted)
    yield from gauges("flymq_connections", "Open connections.", _by("protocol", open_now))
    yield from counters("flymq_connections_accepted_total", "Accepted connections.", _by("protocol", accepted))
    refused = sum(listener.refused for listener in measured.listeners)
    yield from counters(
        "flymq_connections_refused_total", "Connections rejected because of a connection limit.", [("", refused)]
    )
    yield from counters(
        "flymq_connections_expired_total",
        "Connections closed because of a deadline: login, request or unread responses.",
        _by("reason", measured.shared.expired),
    )
    yield from counters(
        "flymq_logins_total",
        "Logins by result: succeeded, failed, or refused because of too many failures.",
        _by("result", measured.broker.service.access.checks.results),
    )
    budget = measured.shared.budget
    yield from gauge("flymq_buffer_bytes", "Memory used by requests in flight and unsent responses.", ("", budget.used))
    yield from counters(
        "flymq_buffer_waits_total", "Large requests that had to wait for memory to be received.", [("", budget.waits)]
    )
    requests = measured.shared.requests
    yield from histograms(
        "flymq_request_duration_seconds",
        "Request latency, including any wait that the client asked for.",
        [
            (labels(protocol=protocol, operation=operation), histogram)
            for (protocol, operation), histogram in sorted(requests.durations.items())
        ],
    )
    yield from counters(
        "flymq_request_failures_total",
        "Requests, or parts of a request, that failed, by error code.",
        [(labels(protocol=protocol, code=code), count) for (protocol, code), count in requests.failures.items()],
    )


def _traffic(measured: Measured) -> Iterator[str]:
    flows = [
        (labels(protocol=name), flow)
        for name, flow in sorted(measured.broker.service.accounts.traffic.by_protocol().items())
    ]
    yield from counters("flymq_messages_in_total", "Records produced.", [(at, f.records_in) for at, f in flows])
    yield from counters(
        "flymq_bytes_in_total", "Bytes of record batches produced.", [(at, f.bytes_in) for at, f in flows]
    )
    yield from counters("flymq_messages_out_total", "Records fetched.", [(at, f.records_out) for at, f in flows])
    yield from counters(
        "flymq_bytes_out_total", "Bytes of record batches fetched.", [(at, f.bytes_out) for at, f in flows]
    )


def _storage(measured: Measured) -> Iterator[str]:
    broker = measured.broker
    count, offline, corrupt, size = 0, 0, 0, 0
    for topic in broker.image:
        here = broker.replicas.of(topic).values()
        count += len(here)
        offline += len(broker.replicas.offline(topic))
        offline += sum(partition.log.failure is not None for partition in here)
        corrupt += sum(len(partition.log.damage) for partition in here)
        size += sum(partition.log.size for partition in here)
        yield ""
    yield from gauge("flymq_topics", "Number of topics, including internal topics.", ("", len(broker.image)))
    yield from gauge("flymq_partitions", "Number of partitions.", ("", count))
    yield from gauge(
        "flymq_partitions_offline",
        "Partitions that are offline: a write failed, or the log could not be opened.",
        ("", offline),
    )
    yield from gauge(
        "flymq_corrupt_batches", "Corrupt batches that readers or the scrub have found since the start.", ("", corrupt)
    )
    yield from gauge("flymq_log_bytes", "Total size of all logs.", ("", size))
    yield from gauge(
        "flymq_internal_records_unreadable",
        "Records of internal topics that could not be read at start and were skipped.",
        ("", broker.set_aside.records),
    )
    yield from counters(
        "flymq_batches_skipped_total",
        "Batches that could not be decoded for a reader over HTTP and were skipped.",
        [("", broker.service.records.skipped.count)],
    )
    yield from histograms(
        "flymq_fsync_duration_seconds",
        "Fsync latency; one fsync serves many producers.",
        [("", measured.fsync)],
    )
    headroom = broker.headroom
    yield from gauge(
        "flymq_disk_full", "1 while writes are refused because the disk is full.", ("", int(headroom.is_disk_full))
    )
    yield from gauge(
        "flymq_open_files_exhausted", "1 while there is no free file descriptor.", ("", int(measured.is_out_of_files))
    )
    yield from gauge(
        "flymq_clock_leap_seconds",
        "How far the clock leapt forward, while retention does not count this time.",
        ("", broker.steady_clock.leap_ms / 1000),
    )
    space = measured.disk.space(measured.data_dir)
    yield from gauge("flymq_disk_free_bytes", "Free space of the data directory's filesystem.", ("", space.free_bytes))
    yield from gauge("flymq_disk_size_bytes", "Size of the data directory's filesystem.", ("", space.size_bytes))


def _elections(measured: Measured) -> Iterator[str]:
    controller = measured.controller
    unclean = measured.broker.service.topics.unclean_elections
    yield from counters(
        "flymq_unclean_elections_total",
        "Elections of leaders that were not in sync: records were lost. Counted by the broker that decided them.",
        [("", unclean + (0 if controller is None else controller.unclean_elections))],
    )
    is_active = controller is None or controller.epoch is not None
    yield from gauge("flymq_controller_active", "1 on the broker that is the controller.", ("", int(is_active)))


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
    yield from gauges("flymq_groups", "Number of consumer groups, by state.", _by("state", states))
    yield from gauge("flymq_group_members_sum", "Total number of group members.", ("", members))
    yield from gauge("flymq_group_lag_messages_sum", "Total consumer lag in records.", ("", lag_records))
    yield from gauge(
        "flymq_group_lag_seconds_max",
        "Maximum consumer lag in time: age of the oldest unread record of any group.",
        ("", lag_ms / 1000),
    )
    yield from counters("flymq_group_rebalances_total", "Number of rebalances.", [("", broker.groups.rebalances)])


def _transactions(broker: Broker) -> Iterator[str]:
    states = Counter({state.name.lower(): 0 for state in TransactionState})
    states.update(value.state.name.lower() for _, value in broker.transactions.known())
    yield from gauges(
        "flymq_transactions", "Transactional ids, by the state of their latest transaction.", _by("state", states)
    )
    ended = broker.transactions.ended
    outcomes = {
        "committed": ended[TransactionState.COMMITTING],
        "aborted": ended[TransactionState.ABORTING],
    }
    yield from counters(
        "flymq_transactions_ended_total", "Completed transactions, by outcome.", _by("outcome", outcomes)
    )


def _client_metrics(broker: Broker) -> Iterator[str]:
    pushed = broker.service.client_metrics
    yield from gauge(
        "flymq_client_metrics_clients", "Kafka clients that have pushed metrics lately.", ("", pushed.clients)
    )
    yield from counters(
        "flymq_client_metrics_pushes_total", "Pushes of metrics by Kafka clients.", _by("result", pushed.pushes)
    )
    yield from counters(
        "flymq_client_metrics_left_out_total",
        "Numbers that Kafka clients have pushed beyond the limits.",
        [("", pushed.left_out)],
    )


def _by(name: str, counts: dict[str, int]) -> list[tuple[str, float]]:
    return [(labels(**{name: value}), count) for value, count in sorted(counts.items())]


# --- /metrics/detailed: topics, partitions and groups ---------------------------------------------------------------


def detailed_page(measured: Measured) -> Iterator[str]:
    broker = measured.broker
    yield from _topic_flows(broker)
    yield from _partitions(broker)
    yield from _group_details(broker)
    yield from _pushed_by_clients(broker)


def _topic_flows(broker: Broker) -> Iterator[str]:
    flows = []
    for protocol, topic, flow in broker.service.accounts.traffic:
        flows.append((labels(topic=topic, protocol=protocol), flow))
        yield ""
    yield from counters("flymq_topic_messages_in_total", "Records produced.", ((at, f.records_in) for at, f in flows))
    yield from counters(
        "flymq_topic_bytes_in_total", "Bytes of record batches produced.", ((at, f.bytes_in) for at, f in flows)
    )
    yield from counters("flymq_topic_messages_out_total", "Records fetched.", ((at, f.records_out) for at, f in flows))
    yield from counters(
        "flymq_topic_bytes_out_total", "Bytes of record batches fetched.", ((at, f.bytes_out) for at, f in flows)
    )


def _partitions(broker: Broker) -> Iterator[str]:
    brokers = broker.service.cluster.usable_brokers(("", 0))
    yield from gauge("kafka_brokers", "Number of brokers.", ("", len(brokers)))
    topics = list(broker.image)
    yield from gauges(
        "kafka_topic_partitions",
        "Number of partitions of the topic.",
        ((labels(topic=topic.name), len(topic.partitions)) for topic in topics),
    )
    found: list[tuple[str, Partition, PartitionState]] = []
    offline: list[tuple[str, int]] = []
    for topic in topics:
        name = labels(topic=topic.name)
        for number, partition in sorted(broker.replicas.of(topic).items()):
            at = f'{name},partition="{number}"'
            found.append((at, partition, topic.partitions[number]))
            offline.append((at, int(partition.log.failure is not None)))
        offline += [(f'{name},partition="{number}"', 1) for number in sorted(broker.replicas.offline(topic))]
        yield ""
    yield from gauges(
        "flymq_partition_log_bytes", "Size of the partition's log.", ((at, p.log.size) for at, p, _ in found)
    )
    yield from gauges(
        "flymq_partition_offline",
        "1 if the partition is offline: a write failed, or its log could not be opened.",
        offline,
    )
    yield from gauges(
        "kafka_topic_partition_current_offset",
        "Current offset of the partition (high watermark).",
        ((at, p.high_watermark) for at, p, _ in found),
    )
    yield from gauges(
        "kafka_topic_partition_oldest_offset",
        "Oldest offset of the partition (log start offset).",
        ((at, p.log.start_offset) for at, p, _ in found),
    )
    yield from _replicas(found)


def _replicas(found: list[tuple[str, Partition, PartitionState]]) -> Iterator[str]:
    yield from gauges(
        "kafka_topic_partition_leader", "Broker id of the partition's leader.", ((at, s.leader) for at, _, s in found)
    )
    yield from gauges(
        "kafka_topic_partition_leader_is_preferred",
        "1 if the leader is the preferred replica.",
        ((at, int(s.leader == s.replicas[0])) for at, _, s in found),
    )
    yield from gauges(
        "kafka_topic_partition_replicas",
        "Number of replicas of the partition.",
        ((at, len(s.replicas)) for at, _, s in found),
    )
    yield from gauges(
        "kafka_topic_partition_in_sync_replica",
        "Number of in-sync replicas of the partition.",
        ((at, len(s.isr)) for at, _, s in found),
    )
    yield from gauges(
        "kafka_topic_partition_under_replicated_partition",
        "1 if the partition is under-replicated.",
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
        "kafka_consumergroup_current_offset",
        "Committed offset of the group in the partition.",
        ((at, o) for at, o, _ in positions),
    )
    yield from gauges(
        "kafka_consumergroup_lag",
        "Consumer lag of the group in the partition, in records.",
        ((at, g.records) for at, _, g in positions),
    )
    yield from gauges(
        "flymq_group_lag_seconds",
        "Consumer lag of the group in the partition, in time: age of the oldest unread record; -1 if unknown.",
        ((at, g.ms / 1000 if g.ms >= 0 else -1) for at, _, g in positions),
    )
    yield from gauges(
        "kafka_consumergroup_current_offset_sum",
        "Sum of the group's committed offsets in the topic.",
        ((at, s[0]) for at, s in by_topic.items()),
    )
    yield from gauges(
        "kafka_consumergroup_lag_sum",
        "Sum of the group's lag in the topic, in records.",
        ((at, s[1]) for at, s in by_topic.items()),
    )
    yield from gauges(
        "kafka_consumergroup_members", "Number of members of the group.", ((at, len(g.members)) for at, g in named)
    )
    yield from gauges(
        "flymq_group_generation",
        "Generation of the group; it grows with each rebalance.",
        ((at, g.generation) for at, g in named),
    )


def _pushed_by_clients(broker: Broker) -> Iterator[str]:
    for name, is_counter, values in broker.service.client_metrics.series():
        family = counters if is_counter else gauges
        yield from family(name, "Pushed by Kafka clients.", values.items())


def _lags(broker: Broker, group: AnyGroup) -> Iterator[tuple[TopicPartition, int, Lag]]:
    """Yield the committed offset and the lag for each partition that the group has committed an offset for."""
    for name, value in list(group.offsets.committed.items()):  # a copy: it may change while the page is streamed
        if value.offset != NO_OFFSET:
            yield name, value.offset, broker.groups.lag(name, value.offset)
