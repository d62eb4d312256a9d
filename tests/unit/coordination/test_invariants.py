"""A decision that breaks an invariant is a bug, and is not written; a log that breaks one is replayed all the same."""

from __future__ import annotations

import msgspec
import pytest

from flymq.coordination.consumer_group import IS_AWAY, JOINS, ConsumerGroup, Heartbeat
from flymq.coordination.entries import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    Entry,
    GroupKey,
    GroupValue,
    OffsetValue,
    ProducerIdentity,
    QueryKey,
    QueryValue,
    TransactionKey,
    TransactionState,
    TransactionValue,
    Unreadable,
    read_entries,
)
from flymq.coordination.group import GroupLimits
from flymq.coordination.groups import GroupTable
from flymq.coordination.transaction_table import TransactionTable
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def generation(number: int) -> Entry:
    return GroupKey("g"), GroupValue(number)


def epoch(number: int) -> Entry:
    return ConsumerGroupKey("g"), ConsumerGroupValue(number)


def member(name: str, *assigned: TopicPartition, revoking: tuple[TopicPartition, ...] = ()) -> Entry:
    return ConsumerMemberKey("g", name), ConsumerMemberValue(assigned=assigned, revoking=revoking)


def gone(name: str) -> Entry:
    return ConsumerMemberKey("g", name), None


def transaction(state: TransactionState, producer_epoch: int, producer_id: int = 7) -> Entry:
    producer = ProducerIdentity(producer_id, producer_epoch)
    return TransactionKey("pay"), TransactionValue(producer, timeout_ms=1000, state=state, successor=producer)


def groups(*entries: Entry) -> GroupTable:
    table = GroupTable(GroupLimits())
    table.apply(entries)
    return table


def transactions(*entries: Entry) -> TransactionTable:
    table = TransactionTable()
    table.apply(entries)
    return table


@pytest.mark.parametrize(
    ("before", "decided"),
    [
        ([generation(3)], [generation(2)]),
        ([epoch(3)], [epoch(2)]),
        ([generation(3)], [(GroupKey("g"), None), epoch(2)]),
        ([epoch(3)], [(ConsumerGroupKey("g"), None), generation(2)]),
    ],
)
def test_a_generation_never_goes_back(before: list[Entry], decided: list[Entry]) -> None:
    with pytest.raises(AssertionError, match="g: the generation goes back from 3 to 2"):
        groups(*before).check(decided)


def test_a_generation_goes_on_when_the_group_changes_its_type() -> None:
    groups(generation(3)).check([(GroupKey("g"), None), epoch(4)])
    groups(epoch(3)).check([(ConsumerGroupKey("g"), None), generation(3)])


@pytest.mark.parametrize(
    "decided",
    [
        [member("b", FIRST)],
        [member("b", revoking=(FIRST,))],
        [member("a", revoking=(FIRST,)), member("b", FIRST)],
        [gone("a"), member("b", FIRST), member("c", FIRST)],
    ],
)
def test_a_partition_has_at_most_one_holder(decided: list[Entry]) -> None:
    with pytest.raises(AssertionError, match=r"g: orders-0 goes to ., but . holds it"):
        groups(epoch(1), member("a", FIRST)).check(decided)


@pytest.mark.parametrize(
    "decided",
    [
        [member("a", FIRST, SECOND)],
        [gone("a"), member("b", FIRST)],
        [member("b", FIRST), member("a")],
        [member("a", revoking=(FIRST,)), member("b", SECOND)],
    ],
)
def test_a_partition_may_change_hands(decided: list[Entry]) -> None:
    groups(epoch(1), member("a", FIRST)).check(decided)


def test_a_committed_offset_is_not_negative() -> None:
    offsets, negative = groups(generation(1)).get("g").offsets, {FIRST: OffsetValue(-1)}
    with pytest.raises(AssertionError, match="the offset committed for orders-0 is -1"):
        offsets.decide_commit(negative)
    with pytest.raises(AssertionError, match="the offset committed for orders-0 is -1"):
        offsets.decide_pend(ProducerIdentity(7, 0), negative)


def test_a_producer_epoch_never_goes_back() -> None:
    table = transactions(transaction(TransactionState.COMMITTED, producer_epoch=3))
    with pytest.raises(AssertionError, match="pay: the producer epoch goes back from 3 to 2"):
        table.check([transaction(TransactionState.ONGOING, producer_epoch=2)])
    table.check([transaction(TransactionState.ONGOING, producer_epoch=3)])
    table.check([transaction(TransactionState.ONGOING, producer_epoch=0, producer_id=8)])


@pytest.mark.parametrize(
    ("ending", "other"),
    [
        (TransactionState.COMMITTING, TransactionState.ONGOING),
        (TransactionState.COMMITTING, TransactionState.ABORTING),
        (TransactionState.COMMITTING, TransactionState.ABORTED),
        (TransactionState.COMMITTING, TransactionState.EMPTY),
        (TransactionState.ABORTING, TransactionState.ONGOING),
        (TransactionState.ABORTING, TransactionState.COMMITTED),
    ],
)
def test_how_a_transaction_ends_is_decided_once(ending: TransactionState, other: TransactionState) -> None:
    with pytest.raises(AssertionError, match=f"pay: the transaction was {ending.value} and becomes {other.value}"):
        transactions(transaction(ending, 3)).check([transaction(other, 4)])


def test_the_last_batch_of_a_query_never_goes_back() -> None:
    with pytest.raises(AssertionError, match="q: the last batch goes back from 5 to 4"):
        transactions((QueryKey("q"), QueryValue(5))).check([(QueryKey("q"), QueryValue(4))])


def test_a_log_that_breaks_the_invariants_is_replayed_and_the_last_entry_counts() -> None:
    table = groups(epoch(3), epoch(2), member("a", FIRST), member("b", FIRST), gone("a"))
    group = table.get("g")
    assert isinstance(group, ConsumerGroup)
    assert group.generation == 2
    assert group.assignments() == {"b": [FIRST]}
    with pytest.raises(AssertionError, match="orders-0 goes to c, but b holds it"):
        table.check([member("c", FIRST)])
    reopened = transactions(transaction(TransactionState.COMMITTING, 3), transaction(TransactionState.ONGOING, 2))
    found = reopened.find("pay")
    assert found is not None and found.state is TransactionState.ONGOING


@pytest.mark.parametrize(
    "successor", [None, ProducerIdentity(7, 2)], ids=["no successor", "a successor of an older epoch"]
)
def test_an_ending_transaction_without_a_valid_successor_is_unreadable(successor: ProducerIdentity | None) -> None:
    valid = TransactionValue(
        ProducerIdentity(7, 3), 1000, TransactionState.COMMITTING, successor=ProducerIdentity(7, 4)
    )
    fields = [*msgspec.structs.astuple(valid)]
    fields[valid.__struct_fields__.index("successor")] = successor
    row = (msgspec.msgpack.encode(TransactionKey("pay")), msgspec.msgpack.encode(fields))
    (found,) = read_entries(encode_batch([row], timestamp_ms=1), TransactionTable.kinds)
    assert isinstance(found, Unreadable) and "successor" in found.reason


@pytest.mark.parametrize("raw", [b"\x92\xa5\xff\xff\xff\xff\xff\xa1g", b"\x91" * 9_000], ids=["no UTF-8", "nested"])
def test_an_entry_that_is_no_text_or_endlessly_nested_is_unreadable(raw: bytes) -> None:
    key = msgspec.msgpack.encode(TransactionKey("pay"))
    found = list(read_entries(encode_batch([(raw, None), (key, raw)]), TransactionTable.kinds))
    assert [type(each) for each in found] == [Unreadable, Unreadable]


def test_members_that_a_damaged_log_gave_the_same_partition_can_still_send_heartbeats() -> None:
    table = groups(epoch(1), member("a", FIRST), member("b", FIRST))
    table.check([member("a", FIRST, SECOND)])
    table.check([member("a")])
    table.check([member("b", FIRST)])


def test_a_static_member_that_a_damaged_log_gave_a_held_partition_returns_without_it() -> None:
    away = ConsumerMemberValue(topics=("orders",), instance="one", epoch=IS_AWAY, assigned=(FIRST, SECOND))
    table = groups(epoch(1), (ConsumerMemberKey("g", "a"), away), member("b", FIRST))
    group = table.get("g")
    assert isinstance(group, ConsumerGroup)
    decided = group.decide_member(Heartbeat("a2", JOINS, "one", rebalance_timeout_ms=1_000, topics=("orders",)))
    table.check(decided)
    table.apply(decided)
    assert group.assignments() == {"b": [FIRST], "a2": [SECOND]}
