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
        ("", "is empty"),
        (".", "not a valid topic name"),
        ("..", "not a valid topic name"),
        ("a b", "invalid character"),
        ("a/b", "invalid character"),
        ("a\n", "invalid character"),
        ("straße", "invalid character"),
        ("a~b", "invalid character"),
        ("x" * (TOPIC_NAME_LENGTH_MAX + 1), "250 characters, the limit is 249"),
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
