from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from flymq.model.delivery import CleanupPolicy, Persistence, TimestampType
from flymq.model.errors import InvalidSetting
from flymq.model.topic_config import TopicConfig


def test_settings_are_changed_by_their_public_names() -> None:
    config = TopicConfig().with_changes(
        {
            "retention.ms": 5,
            "persistence": "fsync",
            "cleanup.policy": "compact,delete",
            "message.timestamp.type": "append",
        }
    )
    assert config.retention_ms == 5
    assert config.persistence is Persistence.FSYNC
    assert config.cleanup_policy is CleanupPolicy.COMPACT_AND_DELETE
    assert config.timestamp_type is TimestampType.LOG_APPEND


def test_text_is_read_as_kafka_clients_send_it() -> None:
    assert TopicConfig().with_changes({"segment.bytes": "4096"}).segment_bytes == 4096


def test_none_brings_a_default_back() -> None:
    config = TopicConfig().with_changes({"retention.ms": 5, "persistence": "memory"})
    assert config.with_changes({"retention.ms": None, "persistence": None}) == TopicConfig()


def test_a_changed_config_leaves_the_old_one_alone() -> None:
    config = TopicConfig()
    config.with_changes({"retention.ms": 5})
    assert config == TopicConfig()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"retention": 5}, "unknown topic setting 'retention'"),
        ({"retention.ms": -2}, "from -1 to"),
        ({"segment.bytes": 10}, "from 1024 to"),
        ({"segment.bytes": 1 << 31}, "from 1024 to"),
        ({"segment.ms": 0}, "from 1 to"),
        ({"retention.ms": "soon"}, "takes an integer, not 'soon'"),
        ({"retention.ms": True}, "not True"),
        ({"retention.ms": [5]}, "takes an integer"),
        ({"persistence": "paper"}, "takes one of 'memory', 'disk', 'fsync', not 'paper'"),
        ({"cleanup.policy": 7}, "takes one of"),
        ({"min.cleanable.dirty.ratio": 1.5}, "from 0 to 1"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_what_is(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        TopicConfig().with_changes(changes)


def test_an_unknown_setting_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidSetting) as refused:
        TopicConfig().with_changes({"retention": 5})
    assert "retention.ms" in refused.value.hint


def test_a_config_goes_round_through_plain_values() -> None:
    config = TopicConfig().with_changes({"retention.ms": 5, "persistence": "fsync", "cleanup.policy": "compact"})
    plain = config.to_mapping()
    assert TopicConfig().with_changes(plain) == config
    assert all(isinstance(value, (str, int, float)) for value in plain.values())


def test_every_setting_has_a_name_a_text_and_a_default_that_is_allowed() -> None:
    defaults = TopicConfig().to_mapping()
    assert len(defaults) == len(fields(TopicConfig))
    assert TopicConfig().with_changes(defaults) == TopicConfig()
    for each in fields(TopicConfig):
        assert each.metadata["text"].endswith(".")


@pytest.mark.parametrize(
    ("overrides", "retention_ms", "retention_bytes"),
    [
        ({}, 7 * 24 * 60 * 60 * 1000, 1 << 30),
        ({"retention.ms": -1}, -1, -1),
        ({"retention.ms": 5}, 5, -1),
        ({"retention.bytes": 6}, -1, 6),
        ({"retention.ms": 5, "retention.bytes": 6}, 5, 6),
        ({"segment.bytes": 4096}, 7 * 24 * 60 * 60 * 1000, 1 << 30),
    ],
)
def test_setting_one_of_time_and_size_leaves_the_other_without_a_limit(
    overrides: dict[str, int], retention_ms: int, retention_bytes: int
) -> None:
    config = TopicConfig().for_topic(overrides)
    assert (config.retention_ms, config.retention_bytes) == (retention_ms, retention_bytes)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({}, "records are kept for 7 days or 1024 MiB a partition"),
        ({"retention.ms": -1}, "records are kept without limit"),
        ({"retention.bytes": 10 << 20}, "records are kept for 10 MiB a partition"),
        ({"cleanup.policy": "compact"}, "compacted: the last value of each key is kept"),
    ],
)
def test_how_long_records_are_kept_is_said_in_words(overrides: dict[str, Any], text: str) -> None:
    assert TopicConfig().for_topic(overrides).describe_retention() == text
