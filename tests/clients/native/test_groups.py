"""Reading topics in groups: assignments, commits, and members that join and leave."""

import threading
from typing import Any

import pytest

from flymq import AsyncFlyMQClient, FlyMQClient, SqliteOffsets, TopicPartition


def fill(client: FlyMQClient, topic: str, count: int, partitions: int = 4) -> None:
    client.create_topic(topic, partitions=partitions)
    client.produce_batch(topic, [(f"key-{n}", b"%d" % n) for n in range(count)])


def poll_until(consumer, count: int) -> list[int]:
    read: list[int] = []
    while len(read) < count:
        read += [int(record.value) for record in consumer.poll(20_000)]
    return read


def test_a_group_of_one_reads_everything(client, topic):
    fill(client, topic, 100)
    with client.consumer(topic, group=topic) as consumer:
        assert sorted(poll_until(consumer, 100)) == list(range(100))
        assert len(consumer.assignment()) == 4


def test_the_next_member_goes_on_where_the_last_one_stopped(client, topic):
    fill(client, topic, 100, partitions=1)
    with client.consumer(topic, group=topic) as first:
        assert [int(record.value) for record in first.poll(20_000, max_records=40)] == list(range(40))
    with client.consumer(topic, group=topic) as second:
        assert poll_until(second, 60) == list(range(40, 100))


def test_what_was_in_hand_when_it_went_wrong_is_read_again(client, topic):
    fill(client, topic, 10, partitions=1)

    def fail_at(limit: int) -> None:
        with client.consumer(topic, group=topic) as consumer:
            for record in consumer:
                if record.offset == limit:
                    raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        fail_at(3)
    with client.consumer(topic, group=topic) as second:
        assert poll_until(second, 7) == list(range(3, 10))


def test_committing_by_hand(client, topic):
    fill(client, topic, 10, partitions=1)
    place = TopicPartition(topic, 0)
    with client.consumer(topic, group=topic, auto_commit=False) as consumer:
        for record in consumer:
            if record.offset == 4:
                consumer.commit()
            if record.offset == 7:
                break
        assert consumer.committed() == {place: 5}
        consumer.commit({place: 2})
        assert consumer.committed(place) == {place: 2}
    with client.consumer(topic, group=topic, auto_commit=False) as consumer:
        assert poll_until(consumer, 8) == list(range(2, 10))


def test_members_share_the_partitions_and_take_over_when_one_leaves(client, topic):
    fill(client, topic, 0)
    with client.consumer(topic, group=topic, heartbeat_interval_ms=20) as first:
        first.poll(timeout_ms=1)
        with (
            FlyMQClient(client_address(client)) as other,
            other.consumer(topic, group=topic, heartbeat_interval_ms=20) as second,
        ):
            wait_for(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            assert not set(first.assignment()) & set(second.assignment())
            client.produce_batch(topic, [(f"key-{n}", b"%d" % n) for n in range(50)])
            read: list[int] = []
            while len(read) < 50:
                read += [int(record.value) for record in [*first.poll(10), *second.poll(10)]]
            assert sorted(read) == list(range(50))
        wait_for(lambda: len(first.assignment()) == 4)


def test_a_listener_is_told_of_partitions_that_come_and_go(client, topic):
    fill(client, topic, 1, partitions=2)
    told: list[tuple[str, list[int]]] = []

    class Listener:
        def on_assigned(self, partitions):
            told.append(("assigned", [part.partition for part in partitions]))

        async def on_revoked(self, partitions):
            told.append(("revoked", [part.partition for part in partitions]))

    with client.consumer(topic, group=topic, listener=Listener(), heartbeat_interval_ms=20) as consumer:
        poll_until(consumer, 1)
        assert told == [("assigned", [0, 1])]
        with FlyMQClient(client_address(client)) as other, other.consumer(topic, group=topic) as second:
            wait_for(lambda: len(second.assignment()) == 1)
            wait_for(lambda: len(told) >= 3)
            assert told[1] == ("revoked", [0, 1])
            assert told[2][0] == "assigned"
            assert len(told[2][1]) == 1


def test_a_listener_that_fails_is_reported_to_whoever_reads(client, topic):
    fill(client, topic, 1)

    class Listener:
        def on_assigned(self, partitions):
            raise LookupError("no state for these")

        def on_revoked(self, partitions):
            pass

    with client.consumer(topic, group=topic, listener=Listener()) as consumer, pytest.raises(LookupError):
        consumer.poll(20_000)


def test_heartbeats_go_on_while_the_user_works(client, topic):
    fill(client, topic, 2, partitions=1)
    with client.consumer(topic, group=topic, session_timeout_ms=6_000, heartbeat_interval_ms=50) as consumer:
        records = iter(consumer)
        assert int(next(records).value) == 0
        before = client.metrics().requests
        wait_for(lambda: client.metrics().requests > before + 5)
        assert int(next(records).value) == 1
        consumer.commit()


def test_an_own_assignor_decides(client, topic):
    fill(client, topic, 1, partitions=2)

    class EverythingToTheFirst:
        name = "everything-to-the-first"

        def assign(self, members, partition_counts):
            first = min(members)
            return {first: [TopicPartition(name, n) for name, count in partition_counts.items() for n in range(count)]}

    with client.consumer(topic, group=topic, assignors=[], custom_assignors=[EverythingToTheFirst()]) as consumer:
        assert poll_until(consumer, 1) == [0]
        assert len(consumer.assignment()) == 2


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_every_assignor_of_the_broker_assigns_everything(client, topic, assignor):
    fill(client, topic, 0)
    settings: dict[str, Any] = {"assignors": [assignor], "heartbeat_interval_ms": 20}
    with client.consumer(topic, group=topic, **settings) as first:
        wait_for(lambda: len(first.assignment()) == 4)
        with FlyMQClient(client_address(client)) as other, other.consumer(topic, group=topic, **settings) as second:
            wait_for(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            assert sorted([*first.assignment(), *second.assignment()]) == [(topic, n) for n in range(4)]


def test_parallel_work_commits_only_what_is_done(client, topic):
    fill(client, topic, 20, partitions=1)
    with pytest.raises(RuntimeError), client.consumer(topic, group=topic) as consumer:

        def handle(record) -> None:
            if record.offset == 12:
                raise RuntimeError("stuck")

        consumer.process(handle, concurrency=4, order_by="partition", retries=0)
    with client.consumer(topic, group=topic) as second:
        assert poll_until(second, 8) == list(range(12, 20))


def test_a_group_is_described_and_moved(client, topic):
    fill(client, topic, 10, partitions=1)
    with client.consumer(topic, group=topic) as consumer:
        poll_until(consumer, 10)
    assert topic in [group.name for group in client.admin.list_groups()]
    description = client.admin.describe_group(topic)
    assert [(part.offset, part.lag) for part in description.positions] == [(10, 0)]
    assert client.admin.reset_offsets(topic, topic, "earliest") == {(topic, 0): 0}
    assert client.admin.reset_offsets(topic, topic, {0: 7}) == {(topic, 0): 7}
    client.admin.delete_group(topic)


def test_offsets_can_be_kept_in_the_programs_own_database(client, topic, tmp_path):
    fill(client, topic, 10, partitions=1)
    place = TopicPartition(topic, 0)
    store = SqliteOffsets(tmp_path / "offsets.db")
    with client.consumer(topic, group=topic, offset_store=store) as consumer:
        assert len(consumer.poll(20_000, max_records=4)) == 4
    assert store.load(topic, [place, TopicPartition(topic, 1)]) == {place: 4}
    assert store.load("another-group", [place]) == {}
    with client.consumer(topic, group=topic, offset_store=store) as consumer:
        assert poll_until(consumer, 6) == list(range(4, 10))
        consumer.commit()
        assert consumer.committed() == {place: 10}
        consumer.seek(topic, 0, 0)
        consumer.seek_to_committed()
        assert consumer.position(topic, 0) == 10
    assert client.admin.describe_group(topic).positions == [], "the broker was told nothing"


async def test_groups_from_asyncio(broker, topic):
    async with AsyncFlyMQClient(broker.address) as client:
        await client.produce_batch(topic, [b"%d" % n for n in range(20)])
        async with client.consumer(topic, group=topic) as consumer:
            read = []
            async for record in consumer:
                read.append(int(record.value))
                if len(read) == 20:
                    break
            await consumer.commit()
            assert sum((await consumer.committed()).values()) == 20


def client_address(client: FlyMQClient) -> str:
    [broker] = client.admin.describe_cluster().brokers
    return f"{broker.host}:{broker.port}"


def wait_for(condition) -> None:
    """Wait for what must come; the test's own time limit ends a wait in vain."""
    changed = threading.Event()
    while not condition():
        changed.wait(0.005)
