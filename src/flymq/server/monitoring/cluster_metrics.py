"""Metrics of the cluster and of replication. A single broker is a cluster of one: nothing is missing on its page.

Partitions are counted by the broker that leads them, so that sums over all brokers are right; those without a leader
are counted by every broker that knows of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from flymq.broker.broker import Broker
from flymq.broker.service.leaders import follower_lags
from flymq.model.exposition import counters, gauge, gauges, labels
from flymq.server.cluster_member import ClusterMember


def cluster_metrics(broker: Broker, member: ClusterMember | None) -> Iterator[str]:
    cluster = broker.service.cluster
    states = Counter({"live": 0, "fenced": 0, "draining": 0})
    for each in cluster.brokers(("", 0)):
        states["fenced" if not each.is_live else "draining" if each.is_draining else "live"] += 1
    yield from gauges(
        "flymq_brokers",
        "Registered brokers of the cluster, by state, as this broker knows them.",
        [(labels(state=state), count) for state, count in sorted(states.items())],
    )
    is_registered = member is None or member.is_registered
    yield from gauge("flymq_registered", "1 while this broker is registered in the cluster.", ("", int(is_registered)))
    yield from gauge(
        "flymq_peers_connected",
        "Other brokers that this broker has a connection to.",
        ("", 0 if member is None else member.peers.connected),
    )
    yield from _partitions(broker)
    yield from _replication(broker, member)


def _partitions(broker: Broker) -> Iterator[str]:
    here, is_live = broker.replicas.broker_id, broker.service.cluster.is_live
    led = under_replicated = under_min_isr = without_leader = 0
    for topic in broker.image:
        min_isr = topic.config.min_insync_replicas
        for state in topic.partitions:
            if state.leader == here:
                led += 1
                under_replicated += len(state.isr) < len(state.replicas)
                under_min_isr += len(state.isr) < min(min_isr, len(state.replicas))
            else:
                without_leader += not is_live(state.leader)
        yield ""
    yield from gauge("flymq_partitions_led", "Partitions that this broker leads.", ("", led))
    yield from gauge(
        "flymq_partitions_under_replicated",
        "Partitions led by this broker with fewer in-sync replicas than replicas.",
        ("", under_replicated),
    )
    yield from gauge(
        "flymq_partitions_under_min_isr",
        "Partitions led by this broker with so few in-sync replicas that acks=all is refused.",
        ("", under_min_isr),
    )
    yield from gauge(
        "flymq_partitions_without_leader",
        "Partitions of the whole cluster that no live broker leads.",
        ("", without_leader),
    )


def _replication(broker: Broker, member: ClusterMember | None) -> Iterator[str]:
    records = behind_ms = 0
    now_s = broker.clock.monotonic_s()
    for _, partition in list(broker.replicas.led()):
        for lag in follower_lags(partition, now_s):
            records = max(records, lag.records)
            behind_ms = max(behind_ms, lag.behind_ms)
        yield ""
    yield from gauge(
        "flymq_replica_lag_messages_max",
        "Most records that a follower of a partition led by this broker does not have yet.",
        ("", records),
    )
    yield from gauge(
        "flymq_replica_lag_seconds_max",
        "Longest time that a follower of a partition led by this broker has not had everything.",
        ("", behind_ms / 1000),
    )
    replicator = broker.replicas.replicator
    yield from counters(
        "flymq_replication_bytes_in_total",
        "Bytes of record batches copied from other brokers.",
        [("", 0 if replicator is None else replicator.bytes_copied)],
    )
    yield from counters(
        "flymq_replication_bytes_out_total",
        "Bytes of record batches copied by other brokers.",
        [("", broker.service.brokers.bytes_copied)],
    )
    in_sync = None if member is None else member.in_sync
    yield from counters(
        "flymq_isr_shrinks_total",
        "Times that a partition led by this broker lost an in-sync replica that fell behind.",
        [("", 0 if in_sync is None else in_sync.shrinks)],
    )
    yield from counters(
        "flymq_isr_expands_total",
        "Times that a replica of a partition led by this broker came in sync.",
        [("", 0 if in_sync is None else in_sync.expands)],
    )
    yield from counters(
        "flymq_leaderships_total",
        "Times that this broker became the leader of a partition.",
        [("", 0 if member is None else member.leaderships)],
    )
