from __future__ import annotations

import pytest

from flymq.model.errors import InvalidTopicName
from flymq.model.names import TOPIC_NAME_LENGTH_MAX, TopicPartition, check_topic_name, is_internal


@pytest.mark.parametrize("name", ["a", "orders", "Orders.eu-1_x", "...", "x" * TOPIC_NAME_LENGTH_MAX])
def test_letters_digits_dots_dashes_and_underscores_make_a_name(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "must not be empty"),
        (".", "must not be named"),
        ("..", "must not be named"),
        ("a b", "not allowed"),
        ("a/b", "not allowed"),
        ("a\n", "not allowed"),
        ("straße", "not allowed"),
        ("a~b", "not allowed"),
        ("x" * (TOPIC_NAME_LENGTH_MAX + 1), "at most 249 characters, this one 250"),
    ],
)
def test_a_name_that_is_not_allowed_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidTopicName, match=reason):
        check_topic_name(name)


def test_a_partition_is_called_by_its_topic_and_number() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_the_brokers_own_topics_begin_with_two_underscores() -> None:
    assert is_internal("__offsets")
    assert not is_internal("_offsets")
