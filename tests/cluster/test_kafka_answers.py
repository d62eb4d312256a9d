"""Three brokers as Kafka's clients see them: any broker answers for the whole cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType
from tests.cluster import kafka_requests
from tests.cluster.brokers import WITHIN_S, Brokers
from tests.ports import free_port

from flymq.gateways.kafka.errors import ErrorCode
from flymq.record.batch import encode_batch

BROKERS = [1, 2, 3]
OUTSIDE = {number: free_port() for number in BROKERS}
"""The port of the additional listener of each broker."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers in three racks, none of which is stopped, with a listener for clients outside."""

    def settings(number: int) -> dict[str, object]:
        port = OUTSIDE[number]
        return {"broker.rack": f"rack-{number}", "listener.additional": f"outside://0.0.0.0:{port} as localhost:{port}"}

    brokers = Brokers(tmp_path_factory.mktemp("c"), own_settings=settings)
    try:
        yield brokers
    finally:
        brokers.close()


def admin_of(brokers: Brokers, broker_id: int) -> AdminClient:
    return AdminClient({"bootstrap.servers": brokers[broker_id].address})


def create(brokers: Brokers, topic: NewTopic) -> None:
    admin = admin_of(brokers, 1)
    admin.create_topics([topic], request_timeout=WITHIN_S)[topic.topic].result()


def test_every_broker_lists_all_brokers_with_their_racks_and_the_controller(shared: Brokers) -> None:
    seen = []
    for broker_id in BROKERS:
        admin = admin_of(shared, broker_id)
        found = admin.describe_cluster(request_timeout=WITHIN_S).result()
        assert found.controller is not None
        nodes = sorted((node.id, f"{node.host}:{node.port}", node.rack) for node in found.nodes)
        seen.append((found.cluster_id, found.controller.id, nodes))
    assert seen[0][2] == [(number, shared[number].address, f"rack-{number}") for number in BROKERS]
    assert seen[1:] == seen[:-1]


def test_a_client_is_told_the_addresses_of_the_listener_it_came_in_by(shared: Brokers) -> None:
    outside = [(number, "localhost", OUTSIDE[number]) for number in BROKERS]
    for broker_id in BROKERS:
        found = kafka_requests.metadata(OUTSIDE[broker_id])
        assert [(broker.node_id, broker.host, broker.port) for broker in found.brokers] == outside
    consumer = Consumer({"bootstrap.servers": f"localhost:{OUTSIDE[2]}", "group.id": "outside"})
    assert {broker.port for broker in consumer.list_topics(timeout=WITHIN_S).brokers.values()} == set(OUTSIDE.values())
    consumer.close()


def test_a_broker_that_does_not_reach_itself_where_it_is_advertised_says_so(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    nowhere = free_port()
    brokers = Brokers(tmp_path_factory.mktemp("c"), 1, {"listener.advertised_port": nowhere})
    try:
        while (
            f"told to connect to 127.0.0.1:{nowhere}, where this broker does not reach itself"
            not in brokers[1].log_text
        ):
            assert brokers[1].is_running
    finally:
        brokers.close()


def test_a_topic_is_described_alike_by_every_broker(shared: Brokers) -> None:
    create(shared, NewTopic("alike", 4, 3))
    shared.until_in_sync("alike")
    descriptions = []
    for broker_id in BROKERS:
        topic = admin_of(shared, broker_id).list_topics("alike", timeout=WITHIN_S).topics["alike"]
        descriptions.append(
            {number: (each.leader, each.replicas, each.isrs) for number, each in topic.partitions.items()}
        )
    assert descriptions[0].keys() == {0, 1, 2, 3}
    assert all(sorted(isr) == BROKERS for _, _, isr in descriptions[0].values())
    assert descriptions[1:] == descriptions[:-1]


def test_replicas_are_placed_where_the_client_says(shared: Brokers) -> None:
    create(shared, NewTopic("placed", 2, replica_assignment=[[2, 3], [3, 1]]))
    assert [state.replicas for state in shared.topic("placed").partitions] == [[2, 3], [3, 1]]
    more = NewPartitions("placed", 3, replica_assignment=[[1, 2]])
    admin = admin_of(shared, 2)
    admin.create_partitions([more], request_timeout=WITHIN_S)["placed"].result()
    assert [state.replicas for state in shared.topic("placed").partitions] == [[2, 3], [3, 1], [1, 2]]


@pytest.mark.parametrize("placed", [[[1, 9]], [[1, 1]]])
def test_replicas_where_they_cannot_be_are_refused(shared: Brokers, placed: list[list[int]]) -> None:
    with pytest.raises(KafkaException) as refused:
        create(shared, NewTopic("misplaced", 1, replica_assignment=placed))
    assert refused.value.args[0].code() == KafkaError.INVALID_REPLICA_ASSIGNMENT
    assert shared.store.image.find("misplaced") is None


def test_more_replicas_than_brokers_are_refused(shared: Brokers) -> None:
    with pytest.raises(KafkaException) as refused:
        create(shared, NewTopic("too-wide", 1, 4))
    assert refused.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR


def test_what_is_produced_with_acks_all_is_read_by_way_of_any_broker(shared: Brokers) -> None:
    create(shared, NewTopic("read", 3, 3))
    sent = {b"%d" % number for number in range(300)}
    producer = Producer({"bootstrap.servers": shared[1].address, "acks": "all"})
    for value in sent:
        producer.produce("read", value, key=value)
    assert producer.flush(WITHIN_S) == 0
    consumer = Consumer({"bootstrap.servers": shared[3].address, "group.id": "any", "auto.offset.reset": "earliest"})
    consumer.subscribe(["read"])
    found: set[bytes | None] = set()
    while found < sent:
        found |= {record.value() for record in consumer.consume(100, WITHIN_S) if record.error() is None}
    consumer.close()
    assert found == sent


def test_each_broker_describes_its_own_settings(shared: Brokers) -> None:
    admin = admin_of(shared, 1)
    for broker_id in BROKERS:
        resource = ConfigResource(ResourceType.BROKER, str(broker_id))
        found = admin.describe_configs([resource], request_timeout=WITHIN_S)[resource].result()
        assert found["node.id"].value == str(broker_id)
        assert found["advertised.listeners"].value == f"PLAINTEXT://{shared[broker_id].address}"


def test_a_broker_that_does_not_lead_says_who_does_and_where(shared: Brokers) -> None:
    create(shared, NewTopic("hints", 1, 3))
    topic_id, leader = shared.topic("hints").topic_id, shared.leader_of("hints")
    port = shared[leader % 3 + 1].port
    produced = kafka_requests.produce(port, topic_id, bytes(encode_batch([(None, b"x")])))
    fetched = kafka_requests.fetch(port, topic_id)
    for part, answer in (
        (produced.responses[0].partition_responses[0], produced),
        (fetched.responses[0].partitions[0], fetched),
    ):
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (leader, 0)
        [where] = answer.node_endpoints
        assert (where.node_id, f"{where.host}:{where.port}", where.rack) == (
            leader,
            shared[leader].address,
            f"rack-{leader}",
        )


def test_a_consumer_is_sent_to_an_in_sync_follower_in_its_rack(shared: Brokers) -> None:
    create(shared, NewTopic("near", 1, 3))
    shared.until_in_sync("near")
    topic_id, leader = shared.topic("near").topic_id, shared.leader_of("near")
    follower = leader % 3 + 1
    producer = Producer({"bootstrap.servers": shared.addresses, "acks": "all"})
    for number in range(100):
        producer.produce("near", b"%d" % number)
    assert producer.flush(WITHIN_S) == 0

    def ask(broker: int, rack: str, offset: int = 0) -> Any:
        return kafka_requests.fetch(shared[broker].port, topic_id, offset=offset, rack=rack).responses[0].partitions[0]

    sent_on = ask(leader, f"rack-{follower}")
    assert (sent_on.error_code, sent_on.preferred_read_replica, sent_on.records) == (0, follower, b"")
    for rack in (f"rack-{leader}", "elsewhere", ""):
        read = ask(leader, rack)
        assert (read.preferred_read_replica, bool(read.records)) == (-1, True)
    assert ask(follower, "").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(follower, f"rack-{follower}", 1_000).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    while not (read := ask(follower, f"rack-{follower}")).records:  # until it knows that they are committed
        assert read.error_code == ErrorCode.NONE
    consumer = Consumer(
        {
            "bootstrap.servers": shared.addresses,
            "group.id": "near",
            "auto.offset.reset": "earliest",
            "client.rack": f"rack-{follower}",
        }
    )
    consumer.assign([TopicPartition("near", 0, 0)])
    found: list[bytes] = []
    while len(found) < 100:
        found += [record.value() for record in consumer.consume(100, WITHIN_S) if record.error() is None]
    consumer.close()
    assert found == [b"%d" % number for number in range(100)]
    assert records_out(shared, follower, "near") >= 100


def records_out(brokers: Brokers, broker: int, topic: str) -> float:
    """Return how many records Kafka clients have read of a topic from one broker."""
    page = httpx.get(f"http://{brokers[broker].address}/metrics/detailed").text
    found = re.search(
        rf'^flymq_topic_messages_out_total{{topic="{topic}",protocol="kafka"}} (\S+)$', page, re.MULTILINE
    )
    return 0 if found is None else float(found[1])


def test_replicas_of_a_dead_broker_are_offline_and_partitions_without_a_leader_say_so(cluster: Brokers) -> None:
    create(cluster, NewTopic("twice", 1, replica_assignment=[[1, 2]]))
    create(cluster, NewTopic("once", 1, replica_assignment=[[1]]))
    cluster.until_in_sync("twice", 2)
    cluster[1].kill()
    cluster.store.until(
        lambda image: image.get("twice").partitions[0].leader == 2 and image.get("once").partitions[0].leader < 0,
        "what broker 1 led is led by another, or by nobody",
    )
    cluster.store.until(lambda image: image.members.live == {2, 3}, "broker 1 is gone")
    while True:  # until broker 3 knows it, too
        found = kafka_requests.metadata(cluster[3].port, "twice", "once")
        if [broker.node_id for broker in found.brokers] == [2, 3] and found.topics[1].partitions[0].leader_id < 0:
            break
    states = [
        (each.error_code, each.leader_id, each.offline_replicas) for topic in found.topics for each in topic.partitions
    ]
    assert states == [(ErrorCode.NONE, 2, (1,)), (ErrorCode.LEADER_NOT_AVAILABLE, -1, (1,))]
