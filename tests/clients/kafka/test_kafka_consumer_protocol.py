"""Groups with `group.protocol=consumer`: the broker tells each member what to read, and all read on meanwhile."""

import json
import subprocess
import sys
import urllib.request
from collections import Counter

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaError
from confluent_kafka.admin import AdminClient, NewPartitions
from kio.schema.errors import ErrorCode
from kio.schema.offset_commit import v9 as commit_v9
from kio.schema.offset_fetch import v9 as fetch_v9
from tests.broker_process import BrokerProcess
from tests.clients.kafka.members import fill, librdkafka_member, poll_until, poll_values
from tests.clients.kafka.peers import PEERS, WAIT_S, Row
from tests.clients.kafka.raw import RawKafka

from flymq import FlyMQClient
from flymq.testing import running_broker

pytestmark = pytest.mark.shows("groups: group.protocol=consumer", client="librdkafka")

QUICK = {"groups.consumer_heartbeat_ms": 50, "groups.consumer_session_timeout_ms": 2_000}


@pytest.fixture(scope="module")
def broker():
    with running_broker(settings=QUICK) as running:
        yield running


def member(address: str, group: str, **settings) -> confluent_kafka.Consumer:
    """A member; `_` in the name of a setting is a dot."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return librdkafka_member(address, group, protocol="consumer", **named)


def assignment_of(consumer: confluent_kafka.Consumer) -> set[tuple[str, int]]:
    return {(each.topic, each.partition) for each in consumer.assignment()}


def describe(address: str, group: str) -> confluent_kafka.admin.ConsumerGroupDescription:
    admin = AdminClient({"bootstrap.servers": address})
    return admin.describe_consumer_groups([group])[group].result(WAIT_S)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_the_partitions_and_take_over_from_one_that_leaves(broker, topic, assignor):
    fill(broker.address, topic)
    first = member(broker.address, topic, group_remote_assignor=assignor)
    second = member(broker.address, topic, group_remote_assignor=assignor)
    first.subscribe([topic])
    assert sorted(poll_values(first, 40)) == list(range(40))
    second.subscribe([topic])
    poll_until(lambda: len(assignment_of(first)) == len(assignment_of(second)) == 2, first, second)
    assert assignment_of(first) | assignment_of(second) == {(topic, number) for number in range(4)}
    assert describe(broker.address, topic).partition_assignor == assignor
    first.close()
    poll_until(lambda: len(assignment_of(second)) == 4, second)
    second.close()


KILLED = """
import sys, confluent_kafka
address, topic = sys.argv[1:]
consumer = confluent_kafka.Consumer({
    "bootstrap.servers": address, "group.id": topic, "group.protocol": "consumer", "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
})
consumer.subscribe([topic])
while True:
    message = consumer.poll(1)
    if message is not None and message.error() is None:
        consumer.commit(message, asynchronous=False)
        print(message.value().decode(), flush=True)
"""


def test_what_a_killed_member_had_committed_is_not_read_again_and_nothing_is_left_out(broker, topic):
    fill(broker.address, topic, 400)
    command = [sys.executable, "-c", KILLED, broker.address, topic]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    read = [int(program.stdout.readline()) for _ in range(7)]
    program.kill()
    read += map(int, program.communicate()[0].split())
    survivor = member(broker.address, topic)
    survivor.subscribe([topic])
    seen = Counter(poll_values(survivor, 400 - len(read) - 1))
    last = survivor.poll(1)  # the one that was committed, but not told any more, may be missing
    seen.update([] if last is None else [int(last.value())])
    survivor.close()
    assert set(seen.values()) == {1}
    assert not set(read) & set(seen)
    assert len(set(range(400)) - set(read) - set(seen)) <= 1


def test_a_restarted_broker_goes_on_with_the_same_members(tmp_path):
    broker = BrokerProcess(tmp_path, QUICK)
    try:
        fill(broker.address, "orders")
        quickly = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 50}
        consumers = [member(broker.address, "readers", **quickly) for _ in range(2)]
        for consumer in consumers:
            consumer.subscribe(["orders"])
        poll_until(lambda: [len(assignment_of(each)) for each in consumers] == [2, 2], *consumers)
        before = describe(broker.address, "readers")
        broker.kill()
        broker.start()
        PEERS["librdkafka"].write(broker.address, "orders", [Row(None, b"after")])
        found: list[bytes] = []
        poll_until(lambda: b"after" in found, *(Noting(each, found) for each in consumers))
        after = describe(broker.address, "readers")
        assert {each.member_id for each in after.members} == {each.member_id for each in before.members}
        for consumer in consumers:
            consumer.close()
    finally:
        broker.kill()


class Noting:
    """A consumer that notes what it reads."""

    def __init__(self, consumer: confluent_kafka.Consumer, found: list[bytes]) -> None:
        self._consumer = consumer
        self._found = found

    def poll(self, wait_s: float) -> None:
        message = self._consumer.poll(wait_s)
        if message is not None and message.error() is None:
            self._found.append(message.value())


def test_a_pattern_means_topics_that_come_later_and_partitions_that_are_added(broker, topic):
    fill(broker.address, f"{topic}-a", partitions=1)
    consumer = member(broker.address, topic)
    consumer.subscribe([f"^{topic}-.*"])
    poll_until(lambda: assignment_of(consumer) == {(f"{topic}-a", 0)}, consumer)
    fill(broker.address, f"{topic}-b", partitions=1)
    poll_until(lambda: (f"{topic}-b", 0) in assignment_of(consumer), consumer)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_partitions([NewPartitions(f"{topic}-a", 2)])[f"{topic}-a"].result()
    poll_until(lambda: (f"{topic}-a", 1) in assignment_of(consumer), consumer)
    admin.delete_topics([f"{topic}-b"])[f"{topic}-b"].result()
    poll_until(lambda: assignment_of(consumer) == {(f"{topic}-a", 0), (f"{topic}-a", 1)}, consumer)
    consumer.close()


def test_a_static_member_that_restarts_has_its_partitions_back_and_nobody_else_got_it(broker, topic):
    fill(broker.address, topic)
    settings = {"group_instance_id": "one"}
    first, other = member(broker.address, topic, **settings), member(broker.address, topic)
    first.subscribe([topic])
    other.subscribe([topic])
    poll_until(lambda: len(assignment_of(first)) == len(assignment_of(other)) == 2, first, other)
    mine = assignment_of(first)
    first.close()
    again = member(broker.address, topic, **settings)
    again.subscribe([topic])
    poll_until(lambda: assignment_of(again) == mine, again, other)
    assert not assignment_of(other) & mine
    again.close()
    other.close()


def test_a_running_group_changes_its_protocol_and_keeps_its_offsets(broker, topic):
    fill(broker.address, topic)
    classic = librdkafka_member(broker.address, topic)
    classic.subscribe([topic])
    assert sorted(poll_values(classic, 40)) == list(range(40))
    classic.commit(asynchronous=False)
    new = member(broker.address, topic)
    new.subscribe([topic])
    poll_until(lambda: len(assignment_of(classic)) == len(assignment_of(new)) == 2, classic, new)
    assert not assignment_of(classic) & assignment_of(new)
    described = describe(broker.address, topic)
    assert described.type is ConsumerGroupType.CONSUMER
    classic.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 3)], asynchronous=False)
    new.close()
    poll_until(lambda: len(assignment_of(classic)) == 4, classic)
    assert describe(broker.address, topic).type is ConsumerGroupType.CLASSIC
    again = member(broker.address, topic)
    again.subscribe([topic])
    poll_until(lambda: len(assignment_of(again)) == 2, classic, again)
    classic.close()
    poll_until(lambda: len(assignment_of(again)) == 4, again)
    (committed,) = again.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=WAIT_S)
    assert committed.offset == 3
    again.close()


def test_such_a_group_is_seen_from_everywhere(broker, topic):
    fill(broker.address, topic)
    consumer = member(broker.address, topic, client_id="reader")
    consumer.subscribe([topic])
    poll_until(lambda: len(assignment_of(consumer)) == 4, consumer)
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 4)], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.address})
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result().valid
    assert {each.group_id: each.state for each in listed}[topic] is ConsumerGroupState.STABLE
    others = admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC}).result().valid
    assert topic not in {each.group_id for each in others}
    (described,) = describe(broker.address, topic).members
    assert (described.client_id, len(described.assignment.topic_partitions)) == ("reader", 4)
    with FlyMQClient(broker.address) as client:
        native = client.admin.describe_group(topic)
        assert (native.state, len(native.members[0].partitions)) == ("stable", 4)
        assert {each.partition: each.lag for each in native.positions}[0] == 6
    rest = json.load(urllib.request.urlopen(f"http://{broker.address}/api/v1/groups/{topic}"))
    assert (rest["assignor"], rest["members"][0]["client_id"]) == ("uniform", "reader")
    metrics = urllib.request.urlopen(f"http://{broker.address}/metrics/detailed").read().decode()
    assert f'kafka_consumergroup_lag{{consumergroup="{topic}",topic="{topic}",partition="0"}} 6' in metrics
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.delete_consumer_groups([topic])[topic].result()
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    consumer.close()
    admin.delete_consumer_groups([topic])[topic].result()
    assert topic not in {each.group_id for each in admin.list_consumer_groups().result().valid}


def test_offsets_are_told_and_taken_only_in_the_epoch_a_member_is_in(broker, topic):
    fill(broker.address, topic)
    consumer = member(broker.address, topic)
    consumer.subscribe([topic])
    poll_until(lambda: len(assignment_of(consumer)) == 4, consumer)
    (described,) = describe(broker.address, topic).members
    with RawKafka(broker.port) as raw:
        for member_id, epoch, expected in (
            (described.member_id, 999, ErrorCode.stale_member_epoch),
            ("nobody", 1, ErrorCode.unknown_member_id),
        ):
            wanted = fetch_v9.request.OffsetFetchRequestGroup(
                group_id=topic, member_id=member_id, member_epoch=epoch, topics=None
            )
            answer = raw.ask(
                fetch_v9.request.OffsetFetchRequest(groups=(wanted,)), fetch_v9.response.OffsetFetchResponse
            )
            assert answer.groups[0].error_code is expected
            part = commit_v9.request.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=None
            )
            commit = commit_v9.request.OffsetCommitRequest(
                group_id=topic,
                generation_id_or_member_epoch=epoch,
                member_id=member_id,
                topics=(commit_v9.request.OffsetCommitRequestTopic(name=topic, partitions=(part,)),),
            )
            refused = raw.ask(commit, commit_v9.response.OffsetCommitResponse)
            assert refused.topics[0].partitions[0].error_code is expected
    consumer.close()


def test_a_client_that_assigns_itself_partitions_can_commit_while_the_group_has_no_members(broker, topic):
    fill(broker.address, topic, partitions=1)
    reader = member(broker.address, topic)
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    assert poll_values(reader, 10) == list(range(10))
    reader.commit(asynchronous=False)
    (committed,) = reader.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=WAIT_S)
    assert committed.offset == 10
    reader.close()


def test_what_was_read_is_committed_with_what_was_written(broker, topic):
    fill(broker.address, topic, partitions=1)
    consumer = member(broker.address, topic, isolation_level="read_committed")
    consumer.subscribe([topic])
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for commits in (False, True):
        consumer.poll(0)
        producer.begin_transaction()
        producer.produce(f"{topic}-out", b"copied")
        place = [confluent_kafka.TopicPartition(topic, 0, 7)]
        poll_until(lambda: len(assignment_of(consumer)) == 1, consumer)
        producer.send_offsets_to_transaction(place, consumer.consumer_group_metadata(), WAIT_S)
        (producer.commit_transaction if commits else producer.abort_transaction)(WAIT_S)
        (committed,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=WAIT_S)
        assert committed.offset == (7 if commits else confluent_kafka.OFFSET_INVALID)
    consumer.close()
