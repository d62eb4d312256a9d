"""The native client over the failures of brokers: no error, nothing lost, doubled or reordered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.brokers import Brokers

from flymq import FlyMQClient
from flymq.client.deliveries import Delivery
from flymq.model.names import TopicPartition
from flymq.record.partitioning import partition_for_key

RECORDS = 300


def coordinator_of(cluster: Brokers, topic: str, name: str) -> int:
    """Return the broker that leads the partition of an internal topic to which a group or transaction belongs."""
    partitions = cluster.topic(topic).partitions
    return partitions[partition_for_key(name.encode(), len(partitions))].leader


def kill_and_restart(cluster: Brokers, broker: int) -> None:
    cluster[broker].kill()
    cluster[broker].start()


@contextmanager
def running(work: threading.Thread) -> Iterator[None]:
    work.start()
    try:
        yield
    finally:
        work.join()


def test_a_producer_and_a_consumer_notice_the_kill_of_a_leader_only_as_a_pause(cluster: Brokers) -> None:
    with FlyMQClient(cluster.addresses, acks="all") as client:
        client.create_topic("orders", partitions=3, replication_factor=3)
        producer = client.producer()
        consumer = client.consumer("orders")
        read: dict[int, list[int]] = {0: [], 1: [], 2: []}

        def consume() -> None:
            while sum(map(len, read.values())) < 3 * RECORDS:
                for record in consumer.poll(1_000):
                    read[record.partition].append(int(record.value))

        with running(threading.Thread(target=consume)):
            deliveries: list[Delivery] = []
            for number in range(RECORDS):
                if number == RECORDS // 2:
                    deliveries[-1].result(60)
                    cluster[cluster.leader_of("orders", 0)].kill()
                deliveries += [producer.send("orders", b"%d" % number, partition=each) for each in range(3)]
            for delivery in deliveries:
                delivery.result(60)
        assert read == {partition: list(range(RECORDS)) for partition in range(3)}


def test_a_group_keeps_its_members_and_offsets_over_the_kill_of_its_coordinator(cluster: Brokers) -> None:
    revoked: list[object] = []

    class Listener:
        def on_assigned(self, partitions: object) -> None: ...

        def on_revoked(self, partitions: object) -> None:
            revoked.append(partitions)

    with FlyMQClient(cluster.addresses, acks="all") as client:
        client.create_topic("orders", partitions=2, replication_factor=3)
        client.produce_batch("orders", [b"%d" % number for number in range(RECORDS)], partition=0)
        consumer = client.consumer(
            "orders", group="g", listener=Listener(), auto_commit=False, heartbeat_interval_ms=200
        )
        read: list[int] = []
        while len(read) < RECORDS // 2:
            read += [int(record.value) for record in consumer.poll(10_000, max_records=RECORDS // 2 - len(read))]
        consumer.commit()
        kill_and_restart(cluster, coordinator_of(cluster, "__offsets", "g"))
        while len(read) < RECORDS:
            read += [int(record.value) for record in consumer.poll(10_000)]
        consumer.commit()
        assert read == list(range(RECORDS))
        assert consumer.committed()[TopicPartition("orders", 0)] == RECORDS
        assert revoked == [], "no rebalance: the new coordinator knows the member"
        described = client.admin.describe_group("g")
        assert len(described.members) == 1
        assert [group.name for group in client.admin.list_groups()] == ["g"]
        consumer.close()


def test_a_producer_and_a_consumer_go_on_without_a_leader_that_is_paused(cluster: Brokers) -> None:
    """Its connections stay open and say nothing. The time for requests is so long that only a check can end them."""
    day_ms = 86_400_000
    with FlyMQClient(
        cluster.addresses, acks="all", request_timeout_ms=day_ms, delivery_timeout_ms=day_ms, connect_timeout_ms=day_ms
    ) as client:
        client.create_topic("orders", partitions=1, replication_factor=3)
        consumer = client.consumer("orders")
        assert client.produce("orders", b"0") == 0
        read = [record.value for record in consumer.poll(60_000)]
        leader = cluster.leader_of("orders")
        cluster[leader].pause()
        try:
            assert client.produce("orders", b"1") == 1
            while len(read) < 2:
                read += [record.value for record in consumer.poll(1_000)]
        finally:
            cluster[leader].resume()
        assert read == [b"0", b"1"]
        assert cluster.leader_of("orders") != leader


def test_transactions_are_whole_over_the_kill_of_their_coordinator(cluster: Brokers) -> None:
    with FlyMQClient(cluster.addresses, acks="all") as client:
        client.create_topic("orders", partitions=2, replication_factor=3)
        sent: list[int] = []
        for number in range(30):
            with client.transaction("pay") as transaction:
                if number == 10:
                    kill_and_restart(cluster, coordinator_of(cluster, "__transactions", "pay"))
                for _ in range(2):
                    transaction.produce("orders", b"%d" % number, key=b"%d" % len(sent))
                    sent.append(number)
        read: list[int] = []
        with client.consumer("orders") as consumer:
            while len(read) < len(sent):
                read += [int(record.value) for record in consumer.poll(10_000)]
        assert sorted(read) == sent


def test_offsets_committed_in_transactions_count_once_over_the_kill_of_the_group_coordinator(cluster: Brokers) -> None:
    with FlyMQClient(cluster.addresses, acks="all") as client:
        for topic in ("in", "out"):
            client.create_topic(topic, partitions=2, replication_factor=3)
        client.produce_batch("in", [b"%d" % number for number in range(40)])
        consumer = client.consumer("in", group="movers", auto_commit=False)
        moved = 0
        while moved < 40:
            records = consumer.poll(10_000, max_records=4)
            if not records:
                continue
            with client.transaction("move") as transaction:
                for record in records:
                    transaction.produce("out", record.value)
                if moved < 20 <= moved + len(records):
                    kill_and_restart(cluster, coordinator_of(cluster, "__offsets", "movers"))
                transaction.commit_consumed(consumer)
            moved += len(records)
        consumer.close()
        read: list[int] = []
        with client.consumer("out") as reader:
            while len(read) < 40:
                read += [int(record.value) for record in reader.poll(10_000)]
        assert sorted(read) == list(range(40))
        committed = client.admin.describe_group("movers").positions
        assert sum(position.lag for position in committed) == 0
