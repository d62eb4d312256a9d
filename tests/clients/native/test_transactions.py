"""Transactions with the SDK: all or nothing, also for what was consumed."""

import pytest

from flymq import AsyncFlyMQClient, FlyMQClient, Isolation
from flymq.errors import BrokerUnavailable, InvalidTransactionState, MessageTooLarge, ProducerFenced, TransactionAborted


@pytest.fixture
def topics(client: FlyMQClient, topic: str) -> tuple[str, str]:
    """Two topics of one partition."""
    names = (topic, f"{topic}-other")
    for name in names:
        client.create_topic(name, partitions=1)
    return names


def visible(client: FlyMQClient, topic: str) -> list[bytes]:
    return [record.value for record in client.fetch(topic)]


def written(client: FlyMQClient, topic: str) -> list[bytes]:
    return [record.value for record in client.fetch(topic, isolation=Isolation.READ_UNCOMMITTED)]


def test_everything_becomes_visible_at_the_end_of_the_block(client, topics):
    one, other = topics
    with client.transaction() as tx:
        tx.produce(one, b"debit")
        tx.send(other, b"credit")
        assert visible(client, one) == []
        assert written(client, one) == [b"debit"]
    assert (visible(client, one), visible(client, other)) == ([b"debit"], [b"credit"])


def test_a_block_that_fails_leaves_nothing(client, topics):
    one, other = topics

    def transfer() -> None:
        with client.transaction() as tx:
            tx.produce(one, b"debit")
            tx.produce_batch(other, [b"credit"] * 10)
            raise ValueError("no such account")

    with pytest.raises(ValueError, match="no such account"):
        transfer()
    assert visible(client, one) == visible(client, other) == []
    assert written(client, one) == [b"debit"]


def test_one_transaction_after_the_other_under_the_same_id(client, topics):
    one, _ = topics
    for number in range(5):
        with client.transaction("payments") as tx:
            tx.produce(one, b"%d" % number)
            tx.produce(one, b"%d again" % number)
            if number % 2:
                tx.abort()
    assert visible(client, one) == [b"0", b"0 again", b"2", b"2 again", b"4", b"4 again"]


def test_transactions_without_an_id_run_side_by_side(client, topics):
    one, _ = topics
    first, second = client.begin_transaction(), client.begin_transaction()
    first.produce(one, b"first")
    second.produce(one, b"second")
    second.commit()
    first.abort()
    assert visible(client, one) == [b"second"]


def test_records_sent_in_a_transaction_share_requests(client, topics):
    before = client.metrics().requests
    with client.transaction() as tx:
        for number in range(2_000):
            tx.send(topics[0], b"%d" % number)
    assert len(visible(client, topics[0])) == 2_000
    assert client.metrics().requests - before < 200


def test_a_transaction_that_has_ended_takes_nothing(client, topics):
    tx = client.begin_transaction()
    tx.commit()
    for call in (lambda: tx.produce(topics[0], b"late"), tx.commit, tx.abort):
        with pytest.raises(InvalidTransactionState):
            call()


def test_a_record_that_cannot_be_written_aborts_the_whole(client, topics):
    one, other = topics
    client.admin.alter_topic(other, {"max.message.bytes": 1000})

    def transfer() -> None:
        with client.transaction() as tx:
            tx.send(one, b"small")
            tx.send(other, bytes(5000))

    with pytest.raises(MessageTooLarge):
        transfer()
    assert visible(client, one) == []


def test_a_second_program_of_the_same_id_fences_the_first(broker, client, topics):
    one, _ = topics
    first = client.begin_transaction("only-one")
    first.produce(one, b"from the first")
    with FlyMQClient(broker.address) as restarted, restarted.transaction("only-one") as second:
        second.produce(one, b"from the second")
    with pytest.raises(ProducerFenced):
        first.commit()
    assert visible(client, one) == [b"from the second"]


def test_a_transaction_open_for_too_long_is_aborted_and_can_be_repeated(client, topics):
    one, _ = topics
    slow = client.begin_transaction("slow", timeout_ms=1000)
    slow.produce(one, b"too slow")
    with client.consumer(one) as consumer:
        client.produce(one, b"after it")  # readable once the transaction is decided
        assert [record.value for record in consumer.poll(20_000)] == [b"after it"]
    with pytest.raises(TransactionAborted):
        slow.commit()
    with client.transaction("slow") as tx:
        tx.produce(one, b"repeated")
    assert visible(client, one) == [b"after it", b"repeated"]


def test_what_was_consumed_is_committed_with_what_was_made_of_it(client, topics):
    source, sink = topics
    client.produce_batch(source, [b"%d" % number for number in range(10)])

    def transform(fail_at: int) -> None:
        with client.consumer(source, group=source, auto_commit=False) as consumer:
            done = 0
            while done < 10:
                with client.transaction("doubler") as tx:
                    for record in consumer.poll(20_000, max_records=3):
                        if int(record.value) == fail_at:
                            raise RuntimeError("crash")
                        tx.send(sink, b"%d" % (2 * int(record.value)))
                        done = int(record.value) + 1
                    tx.commit_consumed(consumer)

    with pytest.raises(RuntimeError):
        transform(fail_at=7)
    assert visible(client, sink) == [b"%d" % (2 * number) for number in range(6)]
    transform(fail_at=-1)
    assert visible(client, sink) == [b"%d" % (2 * number) for number in range(10)]


def test_a_transformation_counts_each_record_once(client, topics):
    source, sink = topics
    client.produce_batch(source, [b"%d" % number for number in range(50)])
    calls: list[int] = []
    with client.consumer(source, group=source, auto_commit=False, poll_records_max=10) as consumer:

        def double(record):
            calls.append(record.offset)
            if record.offset == 25 and calls.count(25) == 1:
                raise BrokerUnavailable("as if a broker went away in the middle")
            if record.offset == 49:
                consumer.stop()
            return [(sink, b"%d" % (2 * int(record.value)), b"key")] if record.offset % 2 else []

        client.transform(consumer, double, transactional_id=f"{source}-doubler")
    assert visible(client, sink) == [b"%d" % (2 * number) for number in range(50) if number % 2]
    assert calls.count(20) == 2, "the aborted transaction began with this record, and was repeated"


def test_a_transformation_ends_with_an_error_that_will_not_pass(client, topics):
    source, _ = topics
    client.produce(source, b"v")
    with client.consumer(source, group=source, auto_commit=False) as consumer, pytest.raises(ZeroDivisionError):
        client.transform(consumer, lambda record: 1 // 0, transactional_id=f"{source}-divider")


def test_offsets_of_a_group_without_members_go_with_the_transaction(client, topics):
    one, other = topics
    client.produce_batch(one, [b"v"] * 5)
    with client.transaction() as tx:
        tx.produce(other, b"v")
        tx.commit_offsets("batch-job", {(one, 0): 5})
    [position] = client.admin.describe_group("batch-job").positions
    assert (position.offset, position.lag) == (5, 0)


async def test_transactions_from_asyncio(broker, topic):
    async with AsyncFlyMQClient(broker.address) as client:
        await client.create_topic(topic, partitions=2)
        async with client.transaction() as tx:
            await tx.produce_batch(topic, [(f"key-{n}", b"v") for n in range(20)])
        undone = await client.begin_transaction()
        await undone.produce(topic, b"undone")
        await undone.abort()
        found = [*await client.fetch(topic, 0), *await client.fetch(topic, 1)]
        assert [record.value for record in found] == [b"v"] * 20
