"""What members say is read back as it was written, by any implementation, and nonsense is refused, never believed."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from flymq.coordination.subscriptions import (
    Subscription,
    encode_assignment,
    encode_subscription,
    parse_assignment,
    parse_subscription,
    understand,
    understand_assignment,
)
from flymq.model.errors import InvalidRequest
from flymq.model.names import TopicPartition

names = st.text(min_size=1, max_size=20)
partitions = st.lists(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), unique=True)


def in_topic_order(found: list[TopicPartition]) -> list[TopicPartition]:
    """Partitions are written topic by topic, in the order in which the topics first come."""
    first = {topic: at for at, (topic, _) in reversed(list(enumerate(found)))}
    return sorted(found, key=lambda name: first[name.topic])


@given(st.lists(names, unique=True), partitions, st.binary())
def test_a_subscription_is_read_back(topics: list[str], owned: list[TopicPartition], user_data: bytes) -> None:
    found = parse_subscription(encode_subscription(Subscription(topics, owned, user_data)))
    assert found == Subscription(topics, in_topic_order(owned), user_data)


@given(partitions)
def test_an_assignment_is_read_back(assignment: list[TopicPartition]) -> None:
    assert parse_assignment(encode_assignment(assignment)) == in_topic_order(assignment)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    with suppress(InvalidRequest):
        parse_subscription(raw)
    with suppress(InvalidRequest):
        parse_assignment(raw)
    understand(raw)
    understand_assignment(raw)


@given(st.lists(names, unique=True, max_size=3), partitions, st.data())
def test_bytes_that_end_too_early_are_refused(
    topics: list[str], owned: list[TopicPartition], data: st.DataObject
) -> None:
    raw = encode_subscription(Subscription(topics, owned))
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    try:
        parse_subscription(cut)
    except InvalidRequest:
        return
    raise AssertionError("a subscription that was cut off was read")
