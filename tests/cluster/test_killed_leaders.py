"""Three brokers as processes: what is acknowledged with acks=all is on every in-sync replica."""

from __future__ import annotations

from tests.cluster.brokers import Brokers

import flymq


def read_all(addresses: str, topic: str, count: int) -> list[bytes]:
    with flymq.FlyMQClient(addresses) as client, client.consumer(topic, start="earliest") as consumer:
        found: list[bytes] = []
        while len(found) < count:
            found += [record.value for record in consumer.poll(timeout_ms=10_000)]
        return found


def test_records_survive_the_kill_of_each_leader_in_turn(cluster: Brokers) -> None:
    with flymq.FlyMQClient(cluster.addresses, acks="all") as client:
        client.admin.create_topic("orders", partitions=1, replication_factor=3)
        sent = []
        for round_ in range(3):
            for number in range(20):
                value = b"%d-%d" % (round_, number)
                client.produce("orders", value)
                sent.append(value)
            leader = cluster.leader_of("orders")
            cluster[leader].kill()
            cluster.store.until(
                lambda image, leader=leader: image.get("orders").partitions[0].leader not in (-1, leader),  # type: ignore[misc]
                "another broker leads",
            )
            assert read_all(cluster.addresses, "orders", len(sent)) == sent
            cluster[leader].start()
            cluster.until_in_sync("orders")
