"""Topics get more replicas, or move to other brokers, while they are in use."""

from __future__ import annotations

import pytest
from tests.cluster.brokers import Brokers

from flymq import FlyMQClient
from flymq.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor


def values_of(client: FlyMQClient, topic: str) -> list[bytes]:
    """Return all values of a topic, sorted."""
    values: list[bytes] = []
    for name, end in client.admin.latest_offsets(topic).items():
        offset = 0
        while offset < end:
            records = client.fetch(topic, name.partition, offset, max_wait_ms=1_000)
            values += [record.value for record in records]
            offset = records[-1].offset + 1
    return sorted(values)


def replicas_of(client: FlyMQClient, topic: str) -> list[set[int]]:
    return [set(part.replicas) for part in client.admin.describe_topic(topic).partitions]


def test_a_topic_with_one_replica_gets_three_and_survives_the_loss_of_its_broker(cluster: Brokers) -> None:
    with FlyMQClient(cluster.addresses, acks="all") as client:
        client.create_topic("growing", partitions=3, replication_factor=1)
        values = [b"%d" % number for number in range(100)]
        client.produce_batch("growing", values)
        left: list[int] = []
        client.admin.place_replicas("growing", 3)
        client.admin.wait_until_placed("growing", left.append)
        assert left[-1] == 0
        described = client.admin.describe_topic("growing")
        assert described.replication_factor == 3
        assert [set(part.isr) for part in described.partitions] == [{1, 2, 3}] * 3
        assert {part.replicas[0] for part in described.partitions} == {1, 2, 3}
        victim = described.partitions[0].leader
        cluster[victim].kill()
        client.produce_batch("growing", values)
        assert values_of(client, "growing") == sorted(values * 2)
        cluster[victim].start()
    cluster.until_in_sync("growing")


def test_a_topic_moves_to_the_brokers_that_are_named_and_shrinks(cluster: Brokers) -> None:
    with FlyMQClient(cluster.addresses, acks="all") as client:
        client.create_topic("moving", partitions=2, replication_factor=2)
        client.produce_batch("moving", [b"a", b"b"])
        client.admin.place_replicas("moving", brokers=[2, 3])
        client.admin.wait_until_placed("moving")
        assert replicas_of(client, "moving") == [{2, 3}] * 2
        client.admin.place_replicas("moving", 1, brokers=[1])
        client.admin.wait_until_placed("moving")
        assert replicas_of(client, "moving") == [{1}] * 2
        assert values_of(client, "moving") == [b"a", b"b"]
        with pytest.raises(InvalidReplicationFactor, match="4 replicas on 3 brokers"):
            client.admin.place_replicas("moving", 4)
        with pytest.raises(InvalidReplicaAssignment, match="there is no broker 9"):
            client.admin.place_replicas("moving", brokers=[1, 9])
        assert replicas_of(client, "moving") == [{1}] * 2
